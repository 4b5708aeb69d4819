//! ADD: reserve, build, confirm. A failure after the reservation undoes every step.

use crate::{
    attachment::{Call, Served},
    fault::{Code, Fault},
    log::{Level, Log},
    netconf::{Cards, NIC_CONFIG, PrevResult},
    result::{AddResult, Interface, IpConfig, Route},
    sandbox::Sandbox,
    session::{Session, refused, unavailable, unpoliced},
    tombstone,
    wiring::{End, Pair, Wiring},
};
use config_model::{EnforcingMode, EniId, HostEnd, HostLink, Span, Tombstone, VethName, causes};
use datapath_rpc::{Admitted, AgentAt, AgentPod};
use ipamd_npa::PolicyAgent;
use ipamd_rpc::{
    Confirm, Enforcer, PodAddress, Release, ReleaseCause, Reservation, Reserve, ReserveOutcome,
    RpcError,
};
use ipnet::IpNet;
use routing_plan::{
    Family, Scope,
    pod::{self, PodNet},
};
use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

/// The time to build and confirm after an address arrived, even if the ADD's own deadline has passed.
const FINISH: Duration = Duration::from_secs(5);
/// The deadline of aws-network-policy-agent: it loads programs and fills their maps.
const ENFORCE: Duration = Duration::from_secs(10);
/// The deadline of ferrule-agent: it answers within two seconds once it serves its socket.
const ADMIT: Duration = Duration::from_secs(5);
/// The deadline of ferrule-agent's Forget after a failed ADD.
const UNPOLICE: Duration = Duration::from_millis(500);
/// The deadline of the daemon's Release after a failed ADD.
const TAKE_BACK: Duration = Duration::from_secs(2);

pub(crate) fn add(call: &Call, log: &Log) -> Result<Served, Fault> {
    let deadline = Instant::now() + call.conf.add_wait;
    demand_readable(call, log)?;
    call.attachment.pod.demand_name()?;
    let veths = call.veths().expect("the name was demanded");
    let sandbox = Sandbox::of(call)?;
    let mut wiring = Wiring::open(call, &veths, &sandbox)?;
    let Reserved { session, nets, enis, enforcer } =
        reserve(call, &sandbox, &mut wiring, deadline)?;
    let nets = nets.and_then(|nets| demand_uid(call, enforcer.as_ref()).map(|()| nets));
    let finish = deadline.max(Instant::now() + FINISH);
    let [veth, _] = veths;
    let mut pod = NewPod { call, log, session, enforcer, enis, sandbox: &sandbox, policed: false };
    let built = nets.and_then(|nets| {
        let veth = nets.first().map_or(veth, |net| net.veth.clone());
        let pairs = pod.set_up(&mut wiring, &nets, &veth, finish)?;
        Ok(nets.into_iter().zip(pairs).collect::<Vec<_>>())
    });
    let built = built.inspect_err(|_| pod.give_up())?;
    Ok(pod.served(&built))
}

/// Refuses a configuration with an unreadable `prevResult`; logs an unknown annotation.
fn demand_readable(call: &Call, log: &Log) -> Result<(), Fault> {
    if matches!(call.conf.prev_result, PrevResult::Unreadable) {
        return Err(Fault::new(
            Code::InvalidConfig,
            "prevResult in the network configuration is not a result",
            "look at the plugin before ferrule-cni in the chain",
        ));
    }
    if call.conf.cards == Cards::Unknown {
        let text = format!("the pod's annotation {NIC_CONFIG} has an unknown value");
        log.line(Level::Warn, &text, &[]);
    }
    Ok(())
}

/// The daemon's answer: a reservation, which must be confirmed or released.
struct Reserved {
    session: Session,
    /// The interfaces, unless this plugin cannot set them up.
    nets: Result<Vec<PodNet>, Fault>,
    /// The ENI of each interface, in the same order; empty where it is not known.
    enis: Vec<EniId>,
    enforcer: Option<Enforcer>,
}

fn reserve(
    call: &Call,
    sandbox: &Sandbox,
    wiring: &mut Wiring<'_>,
    deadline: Instant,
) -> Result<Reserved, Fault> {
    let request = Reserve {
        key: call.key.clone(),
        pod: call.pod().expect("the name was demanded"),
        netns: sandbox.path(),
        wait: Span::millis(0),
        multi_nic: call.conf.cards == Cards::Every,
    };
    let pod_text = call.pod_text();
    let (session, outcome, enforcer) = Session::reserve(&call.daemon, &request, deadline)
        .map_err(|error| unavailable(&pod_text, &error))?;
    let (nets, enis) = match outcome {
        ReserveOutcome::Reserved(reservation) => {
            if reservation.egress {
                wiring.reach_both_families();
            }
            let enis = reservation.addresses.iter().filter_map(|held| held.eni.clone());
            let nets = wiring
                .host_end(&call.key, &reservation.host_end)
                .and_then(|host_end| plumbing(&reservation, call, &host_end));
            (nets, enis.collect())
        }
        ReserveOutcome::ReservedBranch(branch) => {
            wiring.carried_by(branch.trunk);
            (Ok(call.branch_plumbing(&branch).into_iter().collect()), Vec::new())
        }
        ReserveOutcome::Refused(refusal) => return Err(refused(&pod_text, &refusal)),
    };
    Ok(Reserved { session, nets, enis, enforcer })
}

/// A pod whose addresses are reserved.
struct NewPod<'a> {
    call: &'a Call,
    log: &'a Log,
    session: Session,
    enforcer: Option<Enforcer>,
    /// The ENI of each interface; empty where it is not known.
    enis: Vec<EniId>,
    sandbox: &'a Sandbox,
    /// The enforcer was asked about the pod.
    policed: bool,
}

impl NewPod<'_> {
    /// Builds the interfaces, waits for the pod's policies and confirms. A failure removes the interfaces.
    fn set_up(
        &mut self,
        wiring: &mut Wiring<'_>,
        nets: &[PodNet],
        veth: &VethName,
        finish: Instant,
    ) -> Result<Vec<Pair>, Fault> {
        let done = build_all(wiring, nets, finish).and_then(|pairs| {
            self.sandbox.ensure_current()?;
            self.policed = true;
            self.enforce(nets, &pairs)?;
            // The wait for policies does not count.
            let finish = finish.max(Instant::now() + FINISH);
            confirm(self.call, &mut self.session, veth, finish)?;
            Ok(pairs)
        });
        if done.is_err() {
            for net in nets.iter().rev() {
                if let Err(fault) = wiring.undo(net) {
                    self.log.line(Level::Warn, &fault.message, &[]);
                }
            }
        }
        done
    }

    /// Rolls back: reports the sandbox's end to the agent and releases the address.
    fn give_up(&self) {
        let asked = self.enforcer.as_ref().filter(|_| self.policed);
        unpolice(self.call, &self.session, asked, self.log);
        take_back(self.call, &self.session, self.log);
    }

    /// Blocks the ADD until the pod's policies are in force, if the node has an enforcer.
    fn enforce(&self, nets: &[PodNet], pairs: &[Pair]) -> Result<(), Fault> {
        let (call, session) = (self.call, &self.session);
        let (Some(enforcer), Some(pod)) = (&self.enforcer, &call.attachment.pod.pod) else {
            return Ok(());
        };
        match enforcer {
            Enforcer::NetworkPolicyAgent { socket, mode } => {
                let agent = PolicyAgent { socket: socket.clone(), mode: *mode };
                let enforced = session.enforce(&agent, pod, nets.len(), Instant::now() + ENFORCE);
                enforced.map_err(|error| unpoliced(&call.pod_text(), &error))
            }
            Enforcer::FerruleAgent { socket, mode } => {
                let agent = AgentAt { socket: socket.clone(), mode: *mode };
                let links = host_links(nets, pairs, &self.enis);
                admit(call, session, &agent, &call.agent_pod(pod), &links, self.log)
            }
        }
    }

    fn served(&self, built: &[(PodNet, Pair)]) -> Served {
        let addresses: Vec<String> = built.iter().map(|(net, _)| net.address.to_string()).collect();
        let veth = built.first().map(|(net, _)| net.veth.as_str().to_owned());
        Served {
            stdout: result(self.call, built, self.sandbox).to_json(self.call.conf.version),
            fields: vec![
                ("address", addresses.join(",").into()),
                ("table", built.first().map(|(net, _)| net.table.0).into()),
                ("veth", veth.into()),
            ],
        }
    }
}

fn build_all(
    wiring: &mut Wiring<'_>,
    nets: &[PodNet],
    deadline: Instant,
) -> Result<Vec<Pair>, Fault> {
    nets.iter().map(|net| wiring.build(net, deadline)).collect()
}

/// Refuses a pod without a UID if ferrule-agent enforces policy: it identifies pods by UID.
fn demand_uid(call: &Call, enforcer: Option<&Enforcer>) -> Result<(), Fault> {
    match enforcer {
        Some(Enforcer::FerruleAgent { .. }) if call.attachment.pod.uid.is_empty() => {
            Err(Fault::new(
                Code::InvalidEnvironment,
                format!(
                    "{}: CNI_ARGS lacks K8S_POD_UID, by which policies identify the pod",
                    call.pod_text()
                ),
                "containerd and CRI-O set it; with another runtime set FERRULE_POLICY=false on ferrule-ipamd",
            ))
        }
        Some(Enforcer::FerruleAgent { .. } | Enforcer::NetworkPolicyAgent { .. }) | None => Ok(()),
    }
}

/// The host ends of the pod's interfaces, as ferrule-agent attaches to them.
fn host_links(nets: &[PodNet], pairs: &[Pair], enis: &[EniId]) -> Vec<HostLink> {
    let link = |(number, (net, pair)): (usize, (&PodNet, &Pair))| HostLink {
        name: net.veth.as_str().to_owned(),
        ifindex: pair.host.index.0,
        mac: pair.host.mac,
        addresses: [net.address].into(),
        number: net.number,
        table: Some(net.table),
        mark: None,
        eni: enis.get(number).cloned(),
        host_end: match net.host_end {
            pod::HostEnd::Routed => HostEnd::Routed,
            pod::HostEnd::Bridged(_) => HostEnd::Bridged { port: net.veth.as_str().to_owned() },
        },
    };
    nets.iter().zip(pairs).enumerate().map(link).collect()
}

/// Starts the pod or not by the agent's answer; without an answer, by the mode.
fn admit(
    call: &Call,
    session: &Session,
    agent: &AgentAt,
    pod: &AgentPod,
    links: &[HostLink],
    log: &Log,
) -> Result<(), Fault> {
    let addresses: Vec<IpAddr> = links.iter().flat_map(|link| &link.addresses).copied().collect();
    let open = |why: &str| {
        let text = format!("{}: the pod starts without its policies: {why}", call.pod_text());
        log.line(Level::Warn, &text, &[]);
        Ok(())
    };
    let refused = |why: &str| {
        Err(Fault::new(
            Code::TryAgainLater,
            format!("{}: {why}", call.pod_text()),
            "look at the log of ferrule-agent on this node, and whether it follows ferrule-controller; the \
             runtime will try again",
        ))
    };
    match session.admit(agent, pod, &addresses, links, Instant::now() + ADMIT) {
        Ok(Admitted::Enforced) => Ok(()),
        Ok(Admitted::Open(why)) => open(&why),
        Ok(Admitted::Refused(why)) => refused(&why),
        Err(error) => match agent.mode {
            EnforcingMode::Standard => open(&causes(&error)),
            EnforcingMode::Strict => refused(&causes(&error)),
        },
    }
}

/// Sends Forget for a sandbox that failed. An error is only logged: the end of the pod reaches the agent anyway.
fn unpolice(call: &Call, session: &Session, enforcer: Option<&Enforcer>, log: &Log) {
    let (Some(Enforcer::FerruleAgent { socket, mode }), Some(pod)) =
        (enforcer, &call.attachment.pod.pod)
    else {
        return;
    };
    let agent = AgentAt { socket: socket.clone(), mode: *mode };
    if let Err(error) = session.ended(&agent, &call.agent_pod(pod), Instant::now() + UNPOLICE) {
        log.line(Level::Warn, &causes(&error), &[]);
    }
}

fn confirm(
    call: &Call,
    session: &mut Session,
    veth: &VethName,
    deadline: Instant,
) -> Result<(), Fault> {
    let request = Confirm { key: call.key.clone(), host_interface: veth.as_str().to_owned() };
    match session.confirm(&call.daemon, &request, deadline) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Fault::new(
            Code::TryAgainLater,
            format!("{}: the reservation lapsed before the interface was built", call.pod_text()),
            "the node is very busy; the runtime will try again",
        )),
        Err(error) => Err(unavailable(&call.pod_text(), &error)),
    }
}

/// One interface for each address. An interface with addresses of both families is an error.
fn plumbing(
    reservation: &Reservation,
    call: &Call,
    host_end: &pod::HostEnd,
) -> Result<Vec<PodNet>, Fault> {
    let one = |held: &PodAddress| match (held.ipv4, held.ipv6) {
        (Some(address), None) => Some((IpAddr::V4(address), held.table)),
        (None, Some(address)) => Some((IpAddr::V6(address), held.table)),
        (Some(_), Some(_)) | (None, None) => None,
    };
    let nets = reservation.addresses.iter().map(one).collect::<Option<Vec<_>>>();
    nets.and_then(|addresses| call.plumbing(&addresses, reservation.rules, host_end)).ok_or_else(|| {
        Fault::new(
            Code::TryAgainLater,
            format!(
                "{}: the daemon reserved an interface with addresses of both families, and one is \
                 what this plugin can set up",
                call.pod_text(),
            ),
            "plugin and daemon must be of the same release",
        )
    })
}

/// Releases the reservation. If the daemon does not answer, a tombstone is left: the daemon may have confirmed an
/// interface that is gone.
fn take_back(call: &Call, session: &Session, log: &Log) {
    let deadline = Instant::now() + TAKE_BACK;
    let release =
        || Release { key: call.key.clone(), pod: call.pod(), cause: ReleaseCause::SetupFailed };
    let mut released = session.release(release(), deadline);
    if let Err(RpcError::Lost { .. }) = released {
        released = Session::open(&call.daemon, deadline)
            .and_then(|session| session.release(release(), deadline));
    }
    let Err(error) = released else { return };
    log.line(Level::Warn, &unavailable(&call.pod_text(), &error).message, &[]);
    let tombstone = Tombstone::new(call.key.clone(), call.attachment.pod.pod.clone(), Vec::new());
    if let Err(fault) = tombstone::leave(&call.conf.state_dir, &tombstone) {
        log.line(Level::Warn, &fault.message, &[]);
    }
}

/// The result: `prevResult` with the interfaces added. The routes of further interfaces are left out: they are in tables
/// of their own, which a result can name only from CNI 1.1.0 on.
fn result(call: &Call, built: &[(PodNet, Pair)], sandbox: &Sandbox) -> AddResult {
    let mut ours = AddResult::default();
    for (net, pair) in built {
        let end = |name: &str, end: &End, path: Option<String>| Interface {
            name: name.to_owned(),
            mac: end.mac.map(|mac| mac.to_string()),
            mtu: Some(end.mtu),
            sandbox: path,
            ..Interface::default()
        };
        ours.interfaces.push(end(net.veth.as_str(), &pair.host, None));
        ours.ips.push(IpConfig {
            version: None,
            address: IpNet::from(net.address),
            gateway: Some(net.gateway()),
            interface: Some(ours.interfaces.len()),
        });
        ours.interfaces.push(end(&net.key.ifname, &pair.pod, Some(sandbox.path())));
    }
    if let Some((first, _)) = built.first() {
        let gateway = first.gateway();
        let scope = gateway.is_ipv4().then_some(u32::from(Scope::LINK.0));
        let to_gateway = Route { scope, ..Route::direct(IpNet::from(gateway)) };
        ours.routes = vec![to_gateway, Route::via(Family::of(gateway).any(), gateway)];
    }
    let mut result = call.conf.prev_result.given().cloned().unwrap_or_default();
    result.append(ours);
    result
}
