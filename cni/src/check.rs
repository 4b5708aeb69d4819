//! CHECK: is everything as ADD made it? Later plugins of the chain may have added to it.

use crate::{
    attachment::{Call, Served},
    fault::{Code, Fault},
    netconf::PrevResult,
    result::AddResult,
    sandbox::Sandbox,
    session::{Session, unavailable},
    version::SpecVersion,
    wiring::failed,
};
use config_model::TableId;
use ipamd_rpc::{Held, RpcError};
use routing_netlink::{Socket, With};
use routing_plan::pod::{self, PodNet};
use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

/// How long the daemon gets to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// More findings than these say no more.
const FINDINGS_TOLD: usize = 8;

pub(crate) fn check(call: &Call) -> Result<Served, Fault> {
    let version = call.conf.version;
    if version < SpecVersion::V0_4_0 {
        return Err(Fault::new(
            Code::IncompatibleVersion,
            format!("CNI {version} has no CHECK"),
            "use cniVersion 0.4.0 or later",
        ));
    }
    call.attachment.pod.demand_name()?;
    let previous = previous(call)?;
    let sandbox = Sandbox::of(call)?;
    let held = inspect(call);
    let mut findings = Vec::new();
    let address = promised(call, previous, &sandbox, &mut findings);
    let table = match &held {
        Ok(held) => judge(call, held.as_ref(), address, &mut findings),
        Err(_) => None,
    };
    // The kernel is looked at even without the daemon: what is wrong there may be why. Only the
    // daemon knows of which ENI the address is, so the rule to its table is then left out.
    let table = table.unwrap_or(TableId::MAIN);
    if let Some(address) = address {
        findings.extend(kernel(call, &sandbox, address, table)?);
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

fn inspect(call: &Call) -> Result<Option<Held>, RpcError> {
    let deadline = Instant::now() + DEADLINE;
    Session::open(&call.conf.socket, deadline)?.inspect(call.key.clone(), deadline)
}

/// What the runtime was promised: links and the address on the pod's.
fn promised(
    call: &Call,
    previous: &AddResult,
    sandbox: &Sandbox,
    findings: &mut Vec<String>,
) -> Option<IpAddr> {
    let has = |name: &str, path: Option<&str>| {
        previous.interfaces.iter().any(|link| {
            link.name == name && link.sandbox.as_deref().filter(|p| !p.is_empty()) == path
        })
    };
    let path = sandbox.path();
    if !has(&call.key.ifname, Some(&path)) {
        let ifname = &call.key.ifname;
        findings.push(format!("prevResult names no interface {ifname} in {path}"));
    }
    if let Some(veth) = call.veth().filter(|veth| !has(veth.as_str(), None)) {
        findings.push(format!("prevResult names no host interface {veth}"));
    }
    let address = previous.addresses_of(&call.key.ifname).next().map(|ip| ip.address.addr());
    if address.is_none() {
        findings.push(format!("prevResult has no address on {}", call.key.ifname));
    }
    address
}

/// What the daemon holds; the table to expect, if it holds the address.
fn judge(
    call: &Call,
    held: Option<&Held>,
    address: Option<IpAddr>,
    findings: &mut Vec<String>,
) -> Option<TableId> {
    let Some(held) = held else {
        findings.push(format!("the daemon holds nothing for {}", call.key));
        return None;
    };
    if !held.confirmed {
        findings.push(format!("the daemon was never told that {} is built", call.key));
    }
    let wanted = address?;
    let found = held.addresses.iter().find(|address| address.all().any(|ip| ip == wanted));
    if found.is_none() {
        let others = held.addresses.iter().flat_map(ipamd_rpc::PodAddress::all);
        let others: Vec<String> = others.map(|address| address.to_string()).collect();
        findings.push(format!("the daemon holds {} for the pod, not {wanted}", others.join(", ")));
    }
    found.map(|address| address.table)
}

fn kernel(
    call: &Call,
    sandbox: &Sandbox,
    address: IpAddr,
    table: TableId,
) -> Result<Vec<String>, Fault> {
    let veth = call.veth().expect("the name was demanded");
    let net = PodNet { key: call.key.clone(), veth, number: 0, address, table, mtu: call.conf.mtu };
    let mut inside = sandbox.socket()?;
    let in_pod = inside.observe(With::Neighbours).map_err(|error| failed(&call.key, &error))?;
    let on_host = Socket::open().and_then(|mut host| host.observe(With::Nothing));
    let on_host = on_host.map_err(|error| failed(&call.key, &error))?;
    Ok(pod::check(&net, &in_pod, &on_host).iter().map(ToString::to_string).collect())
}

fn mismatch(call: &Call, findings: &[String]) -> Fault {
    let told = findings.iter().take(FINDINGS_TOLD).cloned().collect::<Vec<_>>().join("; ");
    let more = findings.len().saturating_sub(FINDINGS_TOLD);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    Fault::new(
        Code::CheckFailed,
        format!("{} is not as ADD made it: {told}{more}", call.pod_text()),
        "ferrule-ipamd repairs the host's side within seconds; if it stays, delete the pod",
    )
}
