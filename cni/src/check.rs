//! CHECK compares the daemon, the kernel and `prevResult` with the state after ADD. Additions of later plugins pass.

use crate::{
    attachment::{Call, Served},
    fault::{Code, Fault},
    netconf::PrevResult,
    result::{AddResult, Interface},
    sandbox::Sandbox,
    session::{Session, unavailable},
    wiring::failed,
};
use config_model::{HostEndMode, TableId, VethName, registry};
use ipamd_rpc::{Assignment, Branch, Enforcing, RpcError};
use routing_netlink::{Socket, With};
use routing_plan::{
    Observed,
    pod::{self, GatewayPort, HostEnd, PodNet},
};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Timeout of the daemon's answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most findings in one message.
const MAX_FINDINGS: usize = 8;

pub(crate) fn check(call: &Call) -> Result<Served, Fault> {
    call.attachment.pod.demand_name()?;
    let previous = previous(call)?;
    let sandbox = Sandbox::of(call)?;
    let held = inspect(call);
    let mut findings = Vec::new();
    let promised = promised(call, previous, &sandbox, &mut findings);
    let tables = match &held {
        Ok(held) => judge(call, held.as_ref(), &promised, &mut findings),
        Err(_) => BTreeMap::new(),
    };
    let branch = held.as_ref().ok().and_then(|held| held.as_ref()?.branch.clone());
    // The kernel is checked even without the daemon: its state may explain the failure. Only the daemon knows the ENI of
    // an address, so without it a rule may have any table, and a missing rule is no finding.
    let table = |host: &Observed, address: IpAddr| {
        tables.get(&address).copied().or_else(|| host.table_of(address)).unwrap_or(TableId::MAIN)
    };
    if !promised.is_empty() {
        let layout = held.as_ref().ok().and_then(|held| Some(held.as_ref()?.rules));
        let mode = held.as_ref().ok().and_then(|held| Some(held.as_ref()?.host_end.clone()));
        let nets = |host: &Observed| match branch {
            // The setting may have changed since the pod was built.
            Some(branch) => {
                let enforcing = match is_strict(call, previous) {
                    true => Enforcing::Strict,
                    false => Enforcing::Standard,
                };
                let branch = Branch { enforcing, ..branch };
                Ok(call.branch_plumbing(&branch).into_iter().collect())
            }
            // Without the daemon, the host's rules show the layout.
            None => {
                let layout = layout.unwrap_or_else(|| host.layout());
                let addresses = promised.iter().map(|&address| (address, table(host, address)));
                let addresses: Vec<_> = addresses.collect();
                let host_end = host_end(call, mode, &promised, host)?;
                Ok(call.plumbing(&addresses, layout, &host_end).expect("the name was demanded"))
            }
        };
        findings.extend(kernel(call, previous, &sandbox, nets)?);
    }
    match (findings.is_empty(), held) {
        (true, Ok(_)) => Ok(Served::default()),
        (true, Err(error)) => Err(unavailable(&call.pod_text(), &error)),
        (false, held) => {
            if let Err(error) = held {
                findings.push(unavailable(&call.pod_text(), &error).message);
            }
            Err(mismatch(call, &findings))
        }
    }
}

fn previous(call: &Call) -> Result<&AddResult, Fault> {
    let what = match &call.conf.prev_result {
        PrevResult::Given(result) => return Ok(result),
        PrevResult::Absent => "is missing",
        PrevResult::Unreadable => "is not a result",
    };
    Err(Fault::new(
        Code::InvalidConfig,
        format!("prevResult in the network configuration {what}"),
        "the container runtime must give CHECK the result of the ADD",
    ))
}

fn inspect(call: &Call) -> Result<Option<Assignment>, RpcError> {
    Session::inspect(&call.daemon, &call.key, Instant::now() + DEADLINE)
}

/// Checks the links of `prevResult`, and an address on each interface of the pod.
fn promised(
    call: &Call,
    previous: &AddResult,
    sandbox: &Sandbox,
    findings: &mut Vec<String>,
) -> Vec<IpAddr> {
    let has = |name: &str, path: Option<&str>| {
        previous.interfaces.iter().any(|link| {
            link.name == name && link.sandbox.as_deref().filter(|p| !p.is_empty()) == path
        })
    };
    let path = sandbox.path();
    let pod = call.attachment.pod.pod.as_ref();
    let strict = is_strict(call, previous);
    let prefix = if strict { registry::STRICT_VETH_PREFIX } else { &call.conf.veth_prefix };
    let mut addresses = Vec::new();
    for number in 0..=u8::MAX {
        let ifname = call.key.interface(number).ifname;
        let named = has(&ifname, Some(&path));
        if !named && number > 0 {
            break;
        }
        if !named {
            findings.push(format!("prevResult names no interface {ifname} in {path}"));
        }
        let veth = pod.map(|pod| VethName::of(prefix, pod, number));
        if let Some(veth) = veth.filter(|veth| !has(veth.as_str(), None)) {
            findings.push(format!("prevResult names no host interface {veth}"));
        }
        match previous.addresses_of(&ifname).next() {
            Some(ip) => addresses.push(ip.address.addr()),
            None => findings.push(format!("prevResult has no address on {ifname}")),
        }
    }
    addresses
}

/// True if `prevResult` has the host veth of a strict branch pod.
fn is_strict(call: &Call, previous: &AddResult) -> bool {
    let of_host = |link: &&Interface| link.sandbox.as_deref().is_none_or(str::is_empty);
    let mut host = previous.interfaces.iter().filter(of_host);
    call.veths().is_some_and(|[_, strict]| host.any(|link| link.name == strict.as_str()))
}

/// Checks the daemon's answer. Returns the expected tables of its addresses.
fn judge(
    call: &Call,
    held: Option<&Assignment>,
    promised: &[IpAddr],
    findings: &mut Vec<String>,
) -> BTreeMap<IpAddr, TableId> {
    let Some(held) = held else {
        findings.push(format!("the daemon holds nothing for {}", call.key));
        return BTreeMap::new();
    };
    if !held.confirmed {
        findings.push(format!("{} was not confirmed to the daemon", call.key));
    }
    let pool = held.addresses.iter().flat_map(|held| held.all().map(|ip| (ip, held.table)));
    let branch = held.branch.iter().map(|branch| {
        let table = registry::BRANCH_TABLES + u32::from(branch.vlan);
        (branch.address, TableId(table))
    });
    let tables: BTreeMap<IpAddr, TableId> = pool.chain(branch).collect();
    let text = |addresses: Vec<&IpAddr>| {
        addresses.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let same = promised.len() == tables.len() && promised.iter().all(|ip| tables.contains_key(ip));
    if !promised.is_empty() && !same {
        let (there, wanted) = (text(tables.keys().collect()), text(promised.iter().collect()));
        findings.push(format!("the daemon holds {there} for the pod, not {wanted}"));
    }
    tables
}

/// The observed host end. Without the daemon's answer, a neighbor entry on the gateway port shows a bridged pod.
///
/// # Errors
/// The finding, if the gateway port is missing.
fn host_end(
    call: &Call,
    mode: Option<HostEndMode>,
    addresses: &[IpAddr],
    host: &Observed,
) -> Result<HostEnd, String> {
    let bridged = HostEndMode::bridged(&call.conf.veth_prefix);
    let mode = mode.unwrap_or_else(|| {
        let link = bridged.gateway_port().and_then(|name| host.link_named(name));
        let known = link.map(|link| host.bridged_addresses(&call.key, link.index));
        let is_bridged = known.is_some_and(|known| addresses.iter().any(|ip| known.contains(ip)));
        if is_bridged { bridged.clone() } else { HostEndMode::Routed }
    });
    let Some(name) = mode.gateway_port() else { return Ok(HostEnd::Routed) };
    let port = host.link_named(name).and_then(GatewayPort::of).map(HostEnd::Bridged);
    port.ok_or_else(|| format!("gateway port {name} on the host is missing or down"))
}

fn kernel(
    call: &Call,
    previous: &AddResult,
    sandbox: &Sandbox,
    nets: impl FnOnce(&Observed) -> Result<Vec<PodNet>, String>,
) -> Result<Vec<String>, Fault> {
    let mut inside = sandbox.socket()?;
    let in_pod = inside.observe(With::Neighbors).map_err(|error| failed(&call.key, &error))?;
    let on_host = Socket::open().and_then(|mut host| host.observe(With::Neighbors));
    let on_host = on_host.map_err(|error| failed(&call.key, &error))?;
    let nets = match nets(&on_host) {
        Ok(nets) => nets,
        Err(finding) => return Ok(vec![finding]),
    };
    let findings = nets.iter().flat_map(|net| pod::check(net, &in_pod, &on_host));
    let mut findings: Vec<String> = findings.map(|finding| finding.to_string()).collect();
    for net in &nets {
        findings.extend(mac(previous, net.veth.as_str(), None, &on_host));
        findings.extend(mac(previous, &net.key.ifname, Some(&sandbox.path()), &in_pod));
    }
    Ok(findings)
}

/// Compares the link's Ethernet address with that of `prevResult`, if it has one.
fn mac(
    previous: &AddResult,
    name: &str,
    path: Option<&str>,
    observed: &Observed,
) -> Option<String> {
    let shown = |link: &&Interface| {
        link.name == name && link.sandbox.as_deref().filter(|p| !p.is_empty()) == path
    };
    let shown = previous.interfaces.iter().find(shown)?.mac.as_ref()?;
    let there = observed.link_named(name)?.mac?.to_string();
    let differs = !shown.eq_ignore_ascii_case(&there);
    differs.then(|| format!("link {name} has Ethernet address {there}, not that of prevResult"))
}

fn mismatch(call: &Call, findings: &[String]) -> Fault {
    let shown = findings.iter().take(MAX_FINDINGS).cloned().collect::<Vec<_>>().join("; ");
    let more = findings.len().saturating_sub(MAX_FINDINGS);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    Fault::new(
        Code::CheckFailed,
        format!("{} is not as ADD made it: {shown}{more}", call.pod_text()),
        "ferrule-ipamd repairs the host's side within seconds; if it stays, delete the pod",
    )
}
