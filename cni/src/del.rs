//! DEL: release first, then the kernel. It succeeds if nothing of the interface is left, or if a tombstone makes the
//! daemon remove the rest.

use crate::{
    attachment::{Call, Served},
    fault::Fault,
    log::{Level, Log},
    sandbox::refuse_own_for_del,
    session::{Session, unpoliced},
    tombstone,
    wiring::failed,
};
use config_model::{HostEndMode, Tombstone, VethName, causes, registry};
use datapath_rpc::AgentAt;
use ipamd_npa::{PolicyAgent, PolicyError};
use ipamd_rpc::{Enforcer, Release, ReleaseCause, Released, RpcError};
use routing_netlink::{Socket, SocketError, With};
use routing_plan::{
    Action, IfIndex, Link, LinkRef, Op, Subject, disconnect,
    pod::{removal, removal_from_port, retire},
};
use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The daemon's deadline. The kubelet waits for every DEL.
const DEADLINE: Duration = Duration::from_secs(5);
/// Timeout for a missing socket. A tombstone has the same effect as a call.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn del(call: &Call, log: &Log) -> Result<Served, Fault> {
    refuse_own_for_del(call)?;
    let mut host = Socket::open().map_err(|error| failed(&call.key, &error))?;
    let mut found = Found::default();
    let (answer, agent) = match release(call, || found = Found::look_up(call, &mut host)) {
        Ok((session, released, agent)) => (Ok(released), agent.map(|agent| (session, agent))),
        Err(error) => (Err(error), None),
    };
    let was_held = matches!(answer, Ok(Released::Known(_)));
    let (how, addresses) = match answer {
        // A branch ENI: all its links carry the key.
        Ok(Released::Known(addresses)) if addresses.is_empty() => {
            ("released", keyed(call, &mut host))
        }
        Ok(Released::Known(addresses)) => {
            let addresses = addresses.iter().flat_map(ipamd_rpc::PodAddress::all).collect();
            ("released", remove_released(call, &mut host, found, addresses))
        }
        Ok(Released::Unknown) => ("unknown", remove_unknown(call, &mut host)),
        Err(error) => {
            log.line(Level::Warn, &causes(&error), &[]);
            ("tombstone", remove_without_daemon(call, &mut host)?)
        }
    };
    let addresses = addresses.unwrap_or_else(|error| {
        // The daemon knows that the address is free, from the call or from the tombstone. Its next pass removes the rest.
        log.line(Level::Warn, &failed(&call.key, &error).message, &[]);
        Vec::new()
    });
    if let Some((session, agent)) = agent {
        forget(call, &session, &agent, was_held, log)?;
    }
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let fields = vec![("daemon", how.into()), ("addresses", addresses.into())];
    Ok(Served { stdout: Vec::new(), fields })
}

/// Sends Forget to the enforcer. An absent aws-network-policy-agent fails the first DEL only: it may be restarting, and
/// the runtime repeats the DEL.
fn forget(
    call: &Call,
    session: &Session,
    enforcer: &Enforcer,
    was_held: bool,
    log: &Log,
) -> Result<(), Fault> {
    let Some(pod) = &call.attachment.pod.pod else { return Ok(()) };
    let agent = match enforcer {
        Enforcer::NetworkPolicyAgent { socket, mode } => {
            PolicyAgent { socket: socket.clone(), mode: *mode }
        }
        // The controller reports the pod's end to ferrule-agent as well, so a failure here does not fail the DEL.
        Enforcer::FerruleAgent { socket, mode } => {
            let agent = AgentAt { socket: socket.clone(), mode: *mode };
            let pod = call.agent_pod(pod);
            if let Err(error) = session.ended(&agent, &pod, Instant::now() + PATIENCE) {
                log.line(Level::Warn, &causes(&error), &[]);
            }
            return Ok(());
        }
    };
    let Err(error) = session.forget(&agent, pod, Instant::now() + DEADLINE) else { return Ok(()) };
    let fault = unpoliced(&call.pod_text(), &error);
    if was_held && matches!(error, PolicyError::Absent { .. }) {
        return Err(fault);
    }
    log.line(Level::Warn, &fault.message, &[]);
    Ok(())
}

/// The links of a pod with one interface, as they were before the daemon's answer.
#[derive(Default)]
struct Found {
    /// `None` if the lookup must be repeated: the pod's name is not known, or the kernel refused.
    first: Option<Option<Link>>,
    port: Option<Option<IfIndex>>,
}

impl Found {
    fn look_up(call: &Call, host: &mut Socket) -> Self {
        let port = gateway_port(call, host).ok();
        let Some([veth, _]) = call.veths() else { return Self { first: None, port } };
        Self { first: host.link_named(veth.as_str()).ok(), port }
    }
}

/// Releases the pod's addresses, and does `work` while the daemon works.
fn release(
    call: &Call,
    work: impl FnOnce(),
) -> Result<(Session, Released, Option<Enforcer>), RpcError> {
    let start = Instant::now();
    let session = Session::open(&call.daemon, start + PATIENCE)?;
    let request =
        Release { key: call.key.clone(), pod: call.pod(), cause: ReleaseCause::PodDeleted };
    let (released, agent) = session.release_while(request, start + DEADLINE, work)?;
    Ok((session, released, agent))
}

/// Removes the rules and routes of addresses that the daemon has just released: no other pod has them yet.
fn remove_released(
    call: &Call,
    host: &mut Socket,
    found: Found,
    addresses: Vec<IpAddr>,
) -> Result<Vec<IpAddr>, SocketError> {
    let mut ops = Vec::new();
    // The mode of an earlier ADD is not known: a node with a gateway port may have bridged the pod.
    let port = match found.port {
        Some(port) => port,
        None => gateway_port(call, host)?,
    };
    let links = match found.first {
        Some(first) if addresses.len() == 1 => vec![first],
        Some(_) | None => named_links(call, host, addresses.len())?,
    };
    ops.extend(
        port.iter().flat_map(|port| {
            addresses.iter().flat_map(|address| removal_from_port(*address, *port))
        }),
    );
    for (number, link) in (0..).zip(links) {
        let own = link.clone().filter(|link| is_own(call, link));
        // Pods taken over from amazon-vpc-cni have no alias; the route to them is theirs.
        let routed = own.clone().or(link.filter(|link| link.alias.is_none()));
        let address = addresses.get(number).copied();
        let dev = routed.as_ref().map(|link| link.index);
        ops.extend(address.into_iter().flat_map(|address| removal(address, dev)));
        ops.extend(own.as_ref().map(retire));
    }
    host.run(&ops)?;
    Ok(addresses)
}

/// The gateway port of a bridge on this node; `None` on a node without bridged pods.
fn gateway_port(call: &Call, host: &Socket) -> Result<Option<IfIndex>, SocketError> {
    match HostEndMode::bridged(&call.conf.veth_prefix).gateway_port() {
        Some(name) => host.index_of(name),
        None => Ok(None),
    }
}

/// Removes only the links that carry the key: the daemon does not know the key, so an address may be another pod's by
/// now.
fn remove_unknown(call: &Call, host: &mut Socket) -> Result<Vec<IpAddr>, SocketError> {
    let mut first = named_links(call, host, 1)?.into_iter().flatten().collect::<Vec<_>>();
    if let Some([_, strict]) = call.veths() {
        first.extend(host.link_named(strict.as_str())?);
    }
    if !first.iter().any(|link| is_own(call, link)) {
        return Ok(Vec::new());
    }
    keyed(call, host)
}

/// Removes the links that carry the key, and the rules and routes by them.
fn keyed(call: &Call, host: &mut Socket) -> Result<Vec<IpAddr>, SocketError> {
    let seen = host.observe(With::Nothing)?;
    let own: Vec<&Link> = seen.links.values().filter(|link| is_own(call, link)).collect();
    let mut addresses = Vec::new();
    let mut ops: Vec<Op> = disconnect(&seen, own.iter().copied()).collect();
    for link in own {
        let routed = seen.routed_to(link.index);
        ops.extend(routed.iter().flat_map(|address| removal(*address, Some(link.index))));
        ops.push(retire(link));
        addresses.extend(routed);
    }
    host.run(&ops)?;
    Ok(addresses)
}

/// Works without the daemon: leaves the tombstone first, then removes what is provably the pod's.
fn remove_without_daemon(
    call: &Call,
    host: &mut Socket,
) -> Result<Result<Vec<IpAddr>, SocketError>, Fault> {
    let seen = host.observe(With::Neighbors);
    let port = gateway_port(call, host).unwrap_or_default();
    let carries = |link: &&Link| link.key().is_some_and(|key| call.key.covers(&key));
    let own: Vec<Link> = match &seen {
        Ok(seen) => seen.links.values().filter(carries).cloned().collect(),
        Err(_) => Vec::new(),
    };
    let mut addresses: BTreeSet<IpAddr> = previous_addresses(call).collect();
    if let Ok(seen) = &seen {
        addresses.extend(own.iter().flat_map(|link| seen.routed_to(link.index)));
    }
    let keys = own.iter().filter_map(Link::key);
    let bridged: BTreeSet<IpAddr> = match (&seen, port) {
        (Ok(seen), Some(port)) => keys.flat_map(|key| seen.bridged_addresses(&key, port)).collect(),
        (Ok(_) | Err(_), _) => BTreeSet::new(),
    };
    addresses.extend(bridged.iter().copied());
    let pod = call.attachment.pod.pod.clone();
    let tombstone = Tombstone::new(call.key.clone(), pod, addresses.iter().copied().collect());
    tombstone::leave(&call.conf.state_dir, &tombstone)?;
    Ok(seen.and_then(|seen| {
        // A neighbor entry with the pod's Ethernet address proves the route by the gateway port.
        let is_foreign = |address: &IpAddr| {
            let is_port = |dev| port == Some(dev) && bridged.contains(address);
            seen.routed_past(*address, |dev| {
                is_port(dev) || own.iter().any(|link| link.index == dev)
            })
        };
        let provable = addresses.into_iter().filter(|address| !is_foreign(address));
        let addresses: Vec<IpAddr> = provable.collect();
        let dev = |address: &IpAddr| {
            let leads = |link: &&Link| seen.routed_to(link.index).contains(address);
            own.iter().find(leads).map(|link| link.index)
        };
        let mut ops: Vec<Op> =
            addresses.iter().flat_map(|address| removal(*address, dev(address))).collect();
        let by_port =
            |port| bridged.iter().flat_map(move |address| removal_from_port(*address, port));
        ops.extend(port.into_iter().flat_map(by_port));
        ops.extend(disconnect(&seen, own.iter()));
        ops.extend(own.iter().map(|link| {
            Op::new(Subject::Link(link.index), Action::DeleteLink(LinkRef::from(link)))
        }));
        host.run(&ops)?;
        Ok(addresses)
    }))
}

/// The addresses of the pod's interfaces in `prevResult`.
fn previous_addresses(call: &Call) -> impl Iterator<Item = IpAddr> {
    let previous = call.conf.prev_result.given();
    previous.into_iter().flat_map(|result| {
        let names = result.interfaces.iter().map(|link| link.name.as_str());
        let further = names.filter(|name| is_further(name));
        let names: BTreeSet<&str> = further.chain([call.key.ifname.as_str()]).collect();
        names.into_iter().flat_map(|name| result.addresses_of(name)).map(|ip| ip.address.addr())
    })
}

fn is_further(ifname: &str) -> bool {
    let number = ifname.strip_prefix(registry::FURTHER_INTERFACE);
    number.is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number > 0))
}

/// The host ends of the pod's first interfaces: by their names if the pod's name is known, otherwise by the key in
/// their alias.
fn named_links(
    call: &Call,
    host: &mut Socket,
    count: usize,
) -> Result<Vec<Option<Link>>, SocketError> {
    let numbers = (0..=u8::MAX).take(count.max(1));
    let Some(pod) = &call.attachment.pod.pod else {
        let seen = host.observe(With::Nothing)?;
        return Ok(numbers.map(|n| seen.link_of(&call.key.interface(n)).cloned()).collect());
    };
    let prefix = &call.conf.veth_prefix;
    numbers.map(|n| host.link_named(VethName::of(prefix, pod, n).as_str())).collect()
}

fn is_own(call: &Call, link: &Link) -> bool {
    // The daemon already deletes the links of this group.
    link.group != registry::GROUP_REAP && link.key().is_some_and(|key| call.key.covers(&key))
}
