//! Observes a node. All decisions are in `cli-doctor`.

mod ebpf;
mod files;
pub(crate) mod imds;
mod kernel;
mod netfilter;

use crate::args::{Backend, DoctorArgs};
use cli_doctor::{LinkView, Observation, Observed, RouteView, Routing, RuleView};
use routing_netlink::{Socket, With};
use routing_plan::{Family, LinkKind};
use std::error::Error;

/// Reads the input of all checks.
pub(crate) fn observe(args: &DoctorArgs) -> Observation {
    let routing = routing(&args.veth_prefix);
    let links = routing.iter().flat_map(|routing| &routing.links).map(|link| link.name.as_str());
    let sysctls = files::sysctls(&args.proc, links);
    Observation {
        sysctls,
        sysctl_files: files::sysctl_files(&args.root),
        units: files::units(&args.root),
        udev_rules: files::udev_rules(&args.root),
        link_files: files::link_files(&args.root, &args.veth_prefix),
        networkd_keeps: files::networkd_keeps(&args.root),
        unmanaged: files::unmanaged(&args.root),
        nft: netfilter::nft(),
        legacy: netfilter::legacy(&args.proc),
        imds: imds::ask(&args.imds),
        eni_mtu: args.eni_mtu,
        features: kernel::features(&args.root, &args.proc, &args.sys),
        veth_prefix: args.veth_prefix.clone(),
        ebpf: (args.backend == Backend::Ebpf)
            .then(|| ebpf::observe(&args.root, &args.proc, &args.sys, &args.bpf_pins)),
        routing,
    }
}

/// Reads links, rules and routes of this network namespace.
pub(crate) fn routing(veth_prefix: &str) -> Observed<Routing> {
    let seen = Socket::open()
        .and_then(|mut socket| socket.observe(With::Nothing))
        .map_err(|err| chain("cannot read links, rules and routes", &err))?;
    let links = seen.links.values().map(|link| LinkView {
        index: link.index.0,
        name: link.name.clone(),
        mac: link.mac,
        mtu: link.mtu,
        hardware: link.kind == LinkKind::Device,
        of_pod: link.kind == LinkKind::Veth
            && (link.key().is_some() || link.name.starts_with(veth_prefix)),
    });
    let rules = seen.rules.iter().map(|rule| RuleView {
        v6: rule.family == Family::V6,
        pref: rule.pref,
        src: rule.selector.src,
        dst: rule.selector.dst,
        narrow: rule.selector.mark.is_some() || rule.selector.iif.is_some() || rule.selector.other,
        partial: rule.selector.other,
        table: rule.table,
        protocol: rule.protocol,
        text: rule.to_string(),
    });
    let routes = seen.routes.iter().map(|route| RouteView {
        table: route.table,
        dst: route.dst,
        gateway: route.gateway,
        dev: route.dev.map(|dev| dev.0),
        metric: route.metric,
        protocol: route.protocol,
    });
    Ok(Routing { links: links.collect(), rules: rules.collect(), routes: routes.collect() })
}

/// Formats an action and the chain of its causes.
pub(crate) fn chain(tried: &str, err: &dyn Error) -> String {
    format!("{tried}: {}", config_model::causes(err))
}
