//! ADD: reserve, build, confirm. Whatever fails after the reservation is taken back.

use crate::{
    attachment::{Call, Served},
    fault::{Code, Fault},
    log::{Level, Log},
    netconf::PrevResult,
    result::{AddResult, Interface, IpConfig, Route},
    sandbox::Sandbox,
    session::{Session, refused, unavailable},
    tombstone,
    wiring::{Pair, Wiring},
};
use config_model::{Span, Tombstone, VethName};
use ipamd_rpc::{Confirm, PodAddress, Release, ReleaseCause, Reserve, ReserveOutcome, RpcError};
use ipnet::{IpNet, Ipv4Net};
use routing_plan::{Scope, pod::PodNet};
use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

/// The deadline is for the wait. An address that came at the last moment gets this long to be put
/// to use.
const FINISH: Duration = Duration::from_secs(5);
/// How long the daemon gets to take back a reservation.
const TAKE_BACK: Duration = Duration::from_secs(2);

pub(crate) fn add(call: &Call, log: &Log) -> Result<Served, Fault> {
    let deadline = Instant::now() + call.conf.add_wait;
    if matches!(call.conf.prev_result, PrevResult::Unreadable) {
        return Err(Fault::new(
            Code::InvalidConfig,
            "prevResult in the network configuration is not a result",
            "look at the plugin that stands before ferrule-cni in the chain",
        ));
    }
    call.attachment.pod.demand_name()?;
    let veth = call.veth().expect("the name was demanded");
    let sandbox = Sandbox::of(call)?;
    let mut wiring = Wiring::open(call, &veth, &sandbox)?;
    let pod = call.pod().expect("the name was demanded");
    let request = Reserve {
        key: call.key.clone(),
        pod,
        netns: sandbox.path(),
        wait: Span::millis(0),
        multi_nic: false,
    };
    let pod_text = call.pod_text();
    let (mut session, outcome) = Session::reserve(&call.conf.socket, &request, deadline)
        .map_err(|error| unavailable(&pod_text, &error))?;
    let reservation = match outcome {
        ReserveOutcome::Reserved(reservation) => reservation,
        ReserveOutcome::Refused(refusal) => return Err(refused(&pod_text, &refusal)),
    };
    let finish = deadline.max(Instant::now() + FINISH);
    let built = only_ipv4(&reservation.addresses, call, &veth).and_then(|net| {
        let done = wiring
            .build(&net, finish)
            .and_then(|pair| sandbox.ensure_current().map(|()| pair))
            .and_then(|pair| confirm(call, &mut session, &veth, finish).map(|()| pair));
        if done.is_err()
            && let Err(fault) = wiring.undo(&net)
        {
            log.line(Level::Warn, &fault.message, &[]);
        }
        done.map(|pair| (net, pair))
    });
    let (net, pair) = built.inspect_err(|_| take_back(call, &session, log))?;
    Ok(Served {
        stdout: result(call, &net, &pair, &sandbox).to_json(call.conf.version),
        fields: vec![
            ("address", net.address.to_string().into()),
            ("table", net.table.0.into()),
            ("veth", veth.as_str().into()),
        ],
    })
}

fn confirm(
    call: &Call,
    session: &mut Session,
    veth: &VethName,
    deadline: Instant,
) -> Result<(), Fault> {
    let request = Confirm { key: call.key.clone(), host_interface: veth.as_str().to_owned() };
    match session.confirm(&call.conf.socket, &request, deadline) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::new(
            Code::TryAgainLater,
            format!("{}: the reservation lapsed before the interface was built", call.pod_text()),
            "the node is very busy; the runtime will try again",
        )),
        Err(error) => Err(unavailable(&call.pod_text(), &error)),
    }
}

/// This version builds one interface with an IPv4 address.
fn only_ipv4(addresses: &[PodAddress], call: &Call, veth: &VethName) -> Result<PodNet, Fault> {
    let [PodAddress { ipv4: Some(address), ipv6: None, table, .. }] = addresses else {
        return Err(Fault::new(
            Code::TryAgainLater,
            format!(
                "{}: the daemon reserved {} interfaces' addresses, but one IPv4 address is what \
                 this plugin can set up",
                call.pod_text(),
                addresses.len()
            ),
            "plugin and daemon must be of the same release",
        ));
    };
    Ok(PodNet {
        key: call.key.clone(),
        veth: veth.clone(),
        number: 0,
        address: IpAddr::V4(*address),
        table: *table,
        mtu: call.conf.mtu,
    })
}

/// Gives the reservation back. If the daemon does not hear it, a tombstone says it: the daemon may
/// have confirmed an interface that is gone.
fn take_back(call: &Call, session: &Session, log: &Log) {
    let deadline = Instant::now() + TAKE_BACK;
    let release =
        || Release { key: call.key.clone(), pod: call.pod(), cause: ReleaseCause::SetupFailed };
    let mut released = session.release(release(), deadline);
    if let Err(RpcError::Lost { .. }) = released {
        released = Session::open(&call.conf.socket, deadline)
            .and_then(|session| session.release(release(), deadline));
    }
    let Err(error) = released else { return };
    log.line(Level::Warn, &unavailable(&call.pod_text(), &error).message, &[]);
    let tombstone = Tombstone::new(call.key.clone(), call.attachment.pod.pod.clone(), Vec::new());
    if let Err(fault) = tombstone::leave(&call.conf.state_dir, &tombstone) {
        log.line(Level::Warn, &fault.message, &[]);
    }
}

/// What was built, after what the plugins before us built.
fn result(call: &Call, net: &PodNet, pair: &Pair, sandbox: &Sandbox) -> AddResult {
    let host = Interface {
        name: net.veth.as_str().to_owned(),
        mac: pair.host.mac.map(|mac| mac.to_string()),
        mtu: Some(pair.host.mtu),
        ..Interface::default()
    };
    let pod = Interface {
        name: net.key.ifname.clone(),
        mac: pair.pod.mac.map(|mac| mac.to_string()),
        mtu: Some(pair.pod.mtu),
        sandbox: Some(sandbox.path()),
        ..Interface::default()
    };
    let gateway = net.gateway();
    let to_gateway =
        Route { scope: Some(u32::from(Scope::LINK.0)), ..Route::direct(IpNet::from(gateway)) };
    let ours = AddResult {
        interfaces: vec![host, pod],
        ips: vec![IpConfig {
            version: None,
            address: IpNet::from(net.address),
            gateway: Some(gateway),
            interface: Some(1),
        }],
        routes: vec![to_gateway, Route::via(IpNet::V4(Ipv4Net::default()), gateway)],
        ..AddResult::default()
    };
    let mut result = call.conf.prev_result.given().cloned().unwrap_or_default();
    result.append(ours);
    result
}
