//! Two hundred pods that start at once and send from their first instant. After the answer of a pod's ADD no packet
//! passes that a policy denies, and no packet is lost that the policies allow.

use crate::{
    enforced::Site,
    policed::{
        Controllers,
        pods::{self, Running},
        sandbox::{Answer, Sandbox, Started},
    },
    proxy::NetworkNamespace,
    world::World,
};
use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{scope, sleep},
    time::{Duration, Instant},
};
use tests_lab::{Lab, bpf_object, programs};

const NODE: &str = "node1";
const PODS: usize = 200;
/// The interval between two attempts of a pod to send before it has a network.
const EAGER: Duration = Duration::from_millis(1);
/// The interval between two packets of a pod.
const INTERVAL: Duration = Duration::from_millis(25);
/// The time in which a pod sends after its ADD.
const SENDS: Duration = Duration::from_secs(3);
/// The time after the last packet in which servers read.
const DRAIN: Duration = Duration::from_secs(2);
/// The time from the first agent's first state in force to its end.
const LIFE: Duration = Duration::from_secs(1);
/// The interval between two ADDs of one pod.
const AGAIN: Duration = Duration::from_millis(300);
/// The longest time in which a pod starts, on a machine that runs other tests as well.
const STARTS: Duration = Duration::from_secs(300);
/// Size of a server's receive buffer, in bytes.
const BUFFER: usize = 32 << 20;
const PORT: u16 = 7001;

/// The pods `client` may send to `good` and to no other pod.
fn policy() -> Value {
    let app = |name: &str| json!({"matchLabels": {"app": name}});
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "client", "namespace": "default"},
        "spec": {
            "podSelector": app("client"), "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": app("good")}]}],
        },
    })
}

/// A packet: the number of its pod, its own number, and whether the pod's ADD was answered before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    pod: u16,
    number: u32,
    is_after_add: bool,
}

impl Packet {
    fn bytes(self) -> [u8; 7] {
        let [a, b] = self.pod.to_be_bytes();
        let [c, d, e, f] = self.number.to_be_bytes();
        [a, b, c, d, e, f, u8::from(self.is_after_add)]
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, after] = *<&[u8; 7]>::try_from(bytes).ok()?;
        Some(Self {
            pod: u16::from_be_bytes([a, b]),
            number: u32::from_be_bytes([c, d, e, f]),
            is_after_add: after != 0,
        })
    }
}

/// A server that keeps the packets that it receives.
fn receiver(netns: &NetworkNamespace) -> Result<UdpSocket> {
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let socket = netns.within(|| Ok(UdpSocket::bind(at)?))?;
    setsockopt(&socket, RcvBufForce, &BUFFER)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, ended: &AtomicBool) -> Vec<Packet> {
    let mut packets = Vec::new();
    let mut bytes = [0; 64];
    loop {
        match socket.recv(&mut bytes) {
            Ok(length) => packets.extend(Packet::read(&bytes[..length])),
            Err(_) if ended.load(Ordering::Acquire) => return packets,
            Err(_) => {}
        }
    }
}

/// The state of one pod, for its sender.
#[derive(Default)]
struct Sender {
    is_answered: AtomicBool,
    is_ended: AtomicBool,
}

/// Sends to both servers until the end. Returns the number of packets to each, and how many were before the answer.
fn send(
    netns: &NetworkNamespace,
    pod: u16,
    state: &Sender,
    to: [SocketAddr; 2],
) -> Result<(u32, u32)> {
    let socket = netns.within(|| Ok(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?))?;
    let (mut number, mut before) = (0, 0);
    while !state.is_ended.load(Ordering::Acquire) {
        let is_after_add = state.is_answered.load(Ordering::Acquire);
        let packet = Packet { pod, number, is_after_add }.bytes();
        // The pod has no network before its ADD.
        if socket.send_to(&packet, to[0]).is_err() {
            ensure!(!is_after_add, "pod {pod} cannot send after its ADD");
            sleep(EAGER);
            continue;
        }
        // A denied packet can be an error of the call.
        let _ = socket.send_to(&packet, to[1]);
        number += 1;
        before += u32::from(!is_after_add);
        sleep(INTERVAL);
    }
    Ok((number, before))
}

/// Sends ADDs until one succeeds, as the kubelet does. Returns its result.
fn add(sandbox: &Sandbox, pod: &Started) -> Result<Value> {
    let last = Instant::now() + STARTS;
    loop {
        match sandbox.add()? {
            Answer::Starts(result) => return Ok(result),
            Answer::Fails(..) if Instant::now() < last => sleep(AGAIN),
            Answer::Fails(code, message) => bail!("{}: {code}: {message}", pod.name),
        }
    }
}

/// The packets of a run.
struct Run {
    /// The number of packets of each pod, and how many of them were before the answer of its ADD.
    sent: Vec<(u32, u32)>,
    good: Vec<Packet>,
    bad: Vec<Packet>,
}

/// Starts all pods at once while they send, with a task beside them until all have sent.
fn run(
    world: &World,
    lab: &Lab,
    servers: [&Running; 2],
    started: &[Started],
    mut beside: impl FnMut(&AtomicBool) -> Result<()> + Send,
) -> Result<Run> {
    let sandboxes = started.iter().map(|pod| Sandbox::new(lab, NODE, pod));
    let sandboxes = sandboxes.collect::<Result<Vec<_>>>()?;
    let namespaces = sandboxes.iter().map(|sandbox| pods::enter(lab, NODE, &sandbox.netns()));
    let namespaces = namespaces.collect::<Result<Vec<_>>>()?;
    let states: Vec<Sender> = started.iter().map(|_| Sender::default()).collect();
    let to = servers.map(|server| SocketAddr::from((server.address, PORT)));
    let sockets = [receiver(&servers[0].netns)?, receiver(&servers[1].netns)?];
    let (all_sent, all_read) = (AtomicBool::new(false), AtomicBool::new(false));
    let addresses = Mutex::new(BTreeMap::new());
    let outcome = scope(|scope| {
        let [good, bad] =
            sockets.each_ref().map(|socket| scope.spawn(|| receive(socket, &all_read)));
        let beside = scope.spawn(|| beside(&all_sent));
        let senders: Vec<_> = (namespaces.iter().zip(&states).enumerate())
            .map(|(pod, (netns, state))| {
                scope.spawn(move || send(netns, u16::try_from(pod)?, state, to))
            })
            .collect();
        let adds: Vec<_> = (sandboxes.iter().zip(started).zip(&states))
            .map(|((sandbox, pod), state)| {
                let addresses = &addresses;
                scope.spawn(move || {
                    let result = add(sandbox, pod);
                    state.is_answered.store(true, Ordering::Release);
                    sleep(SENDS);
                    state.is_ended.store(true, Ordering::Release);
                    let address = pods::address_of(&result?)?;
                    addresses.lock().ok().context("a thread panicked")?.insert(&pod.name, address);
                    anyhow::Ok(())
                })
            })
            .collect();
        let added = adds.into_iter().map(|add| add.join().ok().context("a thread panicked")?);
        let added: Result<Vec<()>> = added.collect();
        let sent = senders.into_iter().map(|sent| sent.join().ok().context("a thread panicked")?);
        let sent: Result<Vec<_>> = sent.collect();
        all_sent.store(true, Ordering::Release);
        let beside = beside.join().ok().context("a thread panicked")?;
        sleep(DRAIN);
        all_read.store(true, Ordering::Release);
        let [good, bad] = [good, bad].map(|read| read.join().ok().context("a thread panicked"));
        added?;
        beside?;
        anyhow::Ok(Run { sent: sent?, good: good?, bad: bad? })
    })?;
    let addresses = addresses.into_inner().ok().context("a thread panicked")?;
    for (name, address) in addresses {
        pods::runs(world, name, address)?;
    }
    Ok(outcome)
}

/// Fails if a packet passed or was lost against the policy. Pods that started open may send everything.
fn judge(run: &Run, is_open: impl Fn(usize) -> bool) -> Result<()> {
    let denied: Vec<_> = run
        .bad
        .iter()
        .filter(|packet| packet.is_after_add && !is_open(packet.pod.into()))
        .collect();
    ensure!(denied.is_empty(), "{} denied packets passed: {:?}", denied.len(), denied.first());
    let mut received = vec![0_u32; run.sent.len()];
    let after = run.good.iter().filter(|packet| packet.is_after_add);
    for packet in after {
        received[usize::from(packet.pod)] += 1;
    }
    for (pod, ((sent, before), received)) in run.sent.iter().zip(received).enumerate() {
        let after = sent - before;
        ensure!(after > 0 && received == after, "pod {pod}: {received} of {after} packets arrived");
    }
    Ok(())
}

fn burst(test: &str, name: &str, mode: &str) -> Result<()> {
    let (Some(bin), Some(object)) = (programs(test), bpf_object(test)) else { return Ok(()) };
    // Each of 200 plugins, senders and receivers needs a processor at the same time.
    let world = World::alone()?;
    world.make_node(NODE, &json!({}))?;
    world.apply(&policy())?;
    let mode = format!("NETWORK_POLICY_ENFORCING_MODE={mode}");
    let lab = world.lab(
        &bin,
        name,
        &[
            &["--nodes", "1", "--type", "m5.24xlarge", "--env", "FERRULE_POLICY=true"],
            &["--env", &mode, "--env", "ENABLE_PREFIX_DELEGATION=true"][..],
        ]
        .concat(),
    )?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let mut site = Site::new(&world, &lab, &bin, &object, NODE, replica.at)?;
    let agent = site.agent.as_ref().context("no agent")?;
    site.site.until(agent, "a state in force", |status| status.applied > 0)?;
    let good = pods::start(&world, &lab, NODE, "good", "good")?;
    let bad = pods::start(&world, &lab, NODE, "bad", "bad")?;

    // In standard mode a pod starts open if the agent does not answer its ADD in time, and is logged. The deadline can
    // pass on a slow machine with a healthy agent as well.
    let judged = |packets: &Run, started: &[Started], log: &str| {
        let is_open = |pod: usize| starts_open(&started[pod], log);
        let open = (0..PODS).filter(|pod| is_open(*pod)).count();
        ensure!(mode.ends_with("standard") || open == 0, "{open} pods start open in strict mode");
        ensure!(open < PODS / 2, "{open} of {PODS} pods start open");
        judge(packets, is_open).with_context(|| format!("{open} pods start open"))
    };
    let create = |from: usize| {
        let numbers = from..from + PODS;
        numbers
            .map(|number| pods::create(&world, NODE, &format!("client-{number}"), "client"))
            .collect::<Result<Vec<_>>>()
    };
    let healthy = create(0)?;
    let packets = run(&world, &lab, [&good, &bad], &healthy, |_| Ok(()))?;
    judged(&packets, &healthy, &logs(&lab, &site)).context("with a healthy agent")?;

    // The agent is killed again and again.
    let killed = create(PODS)?;
    let mut kills = 0;
    let packets = run(&world, &lab, [&good, &bad], &killed, |all_sent| {
        while !all_sent.load(Ordering::Acquire) {
            // Each agent lives longer than the one before, so that all pods start on a slow machine as well.
            sleep(LIFE * (kills + 1));
            site.agent = None;
            kills += 1;
            site.start(&object)?;
            // On a slow machine, agents that are killed while they start would answer no ADD at all.
            let agent = site.agent.as_ref().context("no agent")?;
            site.site.until(agent, "a state in force", |status| status.applied > 0)?;
        }
        Ok(())
    })?;
    ensure!(kills > 1, "the agent was killed {kills} times");
    judged(&packets, &killed, &logs(&lab, &site)).context("with a killed agent")?;
    lab.down()
}

/// The logs of the plugin and of the agent.
fn logs(lab: &Lab, site: &Site<'_>) -> String {
    lab.on_node(NODE, &["cat", PLUGIN_LOG]).unwrap_or_default() + &site.site.log()
}

/// True if a line of the plugin's or the agent's log reports that the pod starts open.
fn starts_open(pod: &Started, log: &str) -> bool {
    log.lines().any(|line| {
        line.contains(&format!("/{}: the pod starts without its policies", pod.name))
            || (line.contains(&pod.uid) && line.contains("starts open"))
    })
}

#[test]
fn two_hundred_pods_are_enforced_from_their_first_packet_in_strict_mode() -> Result<()> {
    let test = "two_hundred_pods_are_enforced_from_their_first_packet_in_strict_mode";
    burst(test, "t-policed", "strict")
}

#[test]
fn two_hundred_pods_are_enforced_from_their_first_packet_in_standard_mode() -> Result<()> {
    let test = "two_hundred_pods_are_enforced_from_their_first_packet_in_standard_mode";
    burst(test, "t-policed-std", "standard")
}

/// The path of the plugin's log.
const PLUGIN_LOG: &str = "/var/log/ferrule/plugin.log";
