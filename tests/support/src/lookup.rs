//! Route lookup on an observation, as the kernel does it.

use config_model::{HostEndMode, Mark, TableId};
use routing_plan::{Family, Link, Observed, PodDesired, Route, Rule};
use std::net::IpAddr;

/// The route of a packet: rules in order, then within a table the longest prefix, the lowest metric, and the
/// first route.
///
/// The marks that netfilter sets on packets from an address count too, also for incoming packets.
pub fn lookup(observed: &Observed, from: IpAddr, to: IpAddr, mark: u32) -> Option<&Route> {
    lookup_incoming(observed, None, from, to, mark)
}

/// As [`lookup`], for a packet that arrived on a link.
pub fn lookup_incoming<'a>(
    observed: &'a Observed,
    iif: Option<&str>,
    from: IpAddr,
    to: IpAddr,
    mark: u32,
) -> Option<&'a Route> {
    let mark = observed.marked.get(&from).map_or(mark, |set| mark & !set.mask | set.value);
    let fits = |rule: &&Rule| {
        let selector = &rule.selector;
        let bits = |wanted: Mark| mark & wanted.mask == wanted.value;
        rule.family == Family::of(to)
            && !selector.other
            && (selector.iif.is_none() || selector.iif.as_deref() == iif)
            && selector.protocol.is_none()
            && selector.src.is_none_or(|net| net.contains(&from))
            && selector.dst.is_none_or(|net| net.contains(&to))
            && selector.mark.is_none_or(bits)
    };
    observed.rules.iter().filter(fits).find_map(|rule| best(observed, rule.table, to))
}

fn best(observed: &Observed, table: TableId, to: IpAddr) -> Option<&Route> {
    let usable = |route: &&Route| {
        let up = |dev| observed.links.get(&dev).is_some_and(|link| link.up);
        route.table == table && route.dst.contains(&to) && route.dev.is_some_and(up)
    };
    let rank = |route: &&Route| (u8::MAX - route.dst.prefix_len(), route.metric);
    // The first of equal routes, which `min_by_key` returns.
    observed.routes.iter().filter(usable).min_by_key(rank)
}

/// True if packets reach the pod over its host veth, and packets of the pod use its ENI's table.
pub fn pod_is_connected(observed: &Observed, pod: &PodDesired, eni_mac: config_model::Mac) -> bool {
    let far = crate::node::far();
    let link = |route: &Route| route.dev.and_then(|dev| observed.links.get(&dev));
    let inwards = lookup(observed, far, pod.address, 0).and_then(link);
    let outwards = lookup(observed, pod.address, far, 0).and_then(link);
    let name = pod.host_end.gateway_port().unwrap_or(pod.veth.as_str());
    let is_neighbor = |link: &Link| {
        pod.host_end == HostEndMode::Routed
            || observed.bridged_addresses(&pod.key, link.index).contains(&pod.address)
    };
    inwards.is_some_and(|link| link.name == name && is_neighbor(link))
        && outwards.is_some_and(|link| link.mac == Some(eni_mac))
}
