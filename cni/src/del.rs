//! DEL: release first, then the kernel. It succeeds whenever nothing of the interface is left, or
//! a tombstone tells the daemon to see to what is.

use crate::{
    attachment::{Call, Served},
    fault::{Fault, chain},
    log::{Level, Log},
    sandbox::refuse_own_for_del,
    session::Session,
    tombstone,
    wiring::failed,
};
use config_model::{TableId, Tombstone, registry};
use ipamd_rpc::{Release, ReleaseCause, Released, RpcError};
use routing_netlink::{Socket, SocketError, With};
use routing_plan::{
    Action, Link, LinkRef, Observed, Op, Subject,
    pod::{removal, retire},
};
use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

/// All the time that the daemon gets; kubelet waits for every DEL.
const DEADLINE: Duration = Duration::from_secs(5);
/// How much of it a daemon gets that is not there at all: the tombstone serves as well.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn del(call: &Call, log: &Log) -> Result<Served, Fault> {
    refuse_own_for_del(call)?;
    let mut host = Socket::open().map_err(|error| failed(&call.key, &error))?;
    let (how, addresses) = match release(call) {
        Ok(Released::Known(addresses)) => {
            let addresses = addresses.iter().flat_map(ipamd_rpc::PodAddress::all).collect();
            ("released", told(call, &mut host, addresses))
        }
        Ok(Released::Unknown) => ("unknown", untold(call, &mut host)),
        Err(error) => {
            log.line(Level::Warn, &chain(&error), &[]);
            ("tombstone", alone(call, &mut host)?)
        }
    };
    let addresses = addresses.unwrap_or_else(|error| {
        // The daemon knows that the address is free, or the tombstone will tell it; its next pass
        // removes what could not be removed here.
        log.line(Level::Warn, &failed(&call.key, &error).message, &[]);
        Vec::new()
    });
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    let fields = vec![("daemon", how.into()), ("addresses", addresses.into())];
    Ok(Served { stdout: Vec::new(), fields })
}

fn release(call: &Call) -> Result<Released, RpcError> {
    let start = Instant::now();
    let session = Session::open(&call.conf.socket, start + PATIENCE)?;
    let request =
        Release { key: call.key.clone(), pod: call.pod(), cause: ReleaseCause::PodDeleted };
    session.release(request, start + DEADLINE)
}

/// The daemon released these addresses just now, so nobody else can have them yet.
fn told(
    call: &Call,
    host: &mut Socket,
    addresses: Vec<IpAddr>,
) -> Result<Vec<IpAddr>, SocketError> {
    let named = named_link(call, host)?;
    let own = named.clone().filter(|link| is_own(call, link));
    // The pods of amazon-vpc-cni that were taken over have no alias; their route is theirs.
    let routed = own.clone().or(named.filter(|link| link.alias.is_none()));
    let mut ops: Vec<Op> = addresses
        .iter()
        .flat_map(|address| removal(*address, routed.as_ref().map(|link| link.index)))
        .collect();
    ops.extend(own.as_ref().map(retire));
    host.run(&ops)?;
    Ok(addresses)
}

/// The daemon knows nothing of the key, so only what carries it is removed: what is left of an
/// address may be another pod's by now.
fn untold(call: &Call, host: &mut Socket) -> Result<Vec<IpAddr>, SocketError> {
    let Some(own) = own_link(call, host)? else { return Ok(Vec::new()) };
    let seen = host.observe(With::Nothing)?;
    let addresses = routed_to(&seen, &own);
    let mut ops: Vec<Op> =
        addresses.iter().flat_map(|address| removal(*address, Some(own.index))).collect();
    ops.push(retire(&own));
    host.run(&ops)?;
    Ok(addresses)
}

/// The daemon does not answer. The tombstone comes first; then goes what is provably the pod's.
fn alone(call: &Call, host: &mut Socket) -> Result<Result<Vec<IpAddr>, SocketError>, Fault> {
    let seen = host.observe(With::Nothing);
    let own = seen.as_ref().ok().and_then(|seen| seen.link_of(&call.key)).cloned();
    let mut addresses: BTreeSet<IpAddr> = previous_addresses(call).collect();
    if let (Ok(seen), Some(own)) = (&seen, &own) {
        addresses.extend(routed_to(seen, own));
    }
    let pod = call.attachment.pod.pod.clone();
    let told = Tombstone::new(call.key.clone(), pod, addresses.iter().copied().collect());
    tombstone::leave(&call.conf.state_dir, &told)?;
    Ok(seen.and_then(|seen| {
        let provable =
            addresses.into_iter().filter(|address| !is_of_another(&seen, *address, &own));
        let addresses: Vec<IpAddr> = provable.collect();
        let mut ops: Vec<Op> = addresses
            .iter()
            .flat_map(|address| removal(*address, own.as_ref().map(|link| link.index)))
            .collect();
        ops.extend(own.as_ref().map(|link| {
            Op::new(Subject::Link(link.index), Action::DeleteLink(LinkRef::from(link)))
        }));
        host.run(&ops)?;
        Ok(addresses)
    }))
}

/// The addresses that the runtime remembers of this interface.
fn previous_addresses(call: &Call) -> impl Iterator<Item = IpAddr> {
    let previous = call.conf.prev_result.given();
    previous
        .into_iter()
        .flat_map(|result| result.addresses_of(&call.key.ifname))
        .map(|ip| ip.address.addr())
}

/// Whether a route leads to the address by a link other than our own: then another pod has it.
fn is_of_another(seen: &Observed, address: IpAddr, own: &Option<Link>) -> bool {
    let own = own.as_ref().map(|link| link.index);
    seen.routes
        .iter()
        .filter(|route| route.table == TableId::MAIN && route.host_address() == Some(address))
        .any(|route| route.dev.is_some() && route.dev != own)
}

fn routed_to(seen: &Observed, own: &Link) -> Vec<IpAddr> {
    seen.routes
        .iter()
        .filter(|route| route.table == TableId::MAIN && route.dev == Some(own.index))
        .filter_map(routing_plan::Route::host_address)
        .collect()
}

/// The link that carries our key; by its name if the pod is known, else among all.
fn own_link(call: &Call, host: &mut Socket) -> Result<Option<Link>, SocketError> {
    if call.veth().is_some() {
        return Ok(named_link(call, host)?.filter(|link| is_own(call, link)));
    }
    Ok(host.observe(With::Nothing)?.link_of(&call.key).cloned())
}

fn named_link(call: &Call, host: &mut Socket) -> Result<Option<Link>, SocketError> {
    match call.veth() {
        Some(veth) => host.link_named(veth.as_str()),
        None => Ok(host.observe(With::Nothing)?.link_of(&call.key).cloned()),
    }
}

fn is_own(call: &Call, link: &Link) -> bool {
    // A link that was handed over already needs nothing more.
    link.group != registry::GROUP_REAP && link.alias.as_deref() == Some(call.key.alias().as_str())
}
