//! Losses while programs are replaced and agents restart, and beside a flood of foreign packets.

use crate::{
    WIRE,
    agent::Agent,
    packet,
    verdicts::cb,
    way::{self, Connection, Way},
    world::{self, World},
};
use anyhow::{Context as _, Result, anyhow, ensure};
use datapath_ebpf::Hook;
use routing_netlink::Socket;
use routing_plan::IfIndex;
use std::{
    fs,
    net::UdpSocket,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Lost and passed packets, and lost connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// Packets of a source that no policy allows.
    pub(crate) passed: u64,
    pub(crate) connections: u64,
    pub(crate) requests: u64,
}

/// Replaces the programs, and restarts the agent, under a flood and with open connections.
pub(crate) async fn measure(
    object: &Path,
    pins: &Path,
    world: &World,
    way: &Way,
    [swaps, restarts]: [u32; 2],
) -> Result<Losses> {
    // The end of the file is no part of the object, but of its name.
    let folder = tempfile::tempdir().context("create a folder")?;
    let other = folder.path().join("other.bpf.o");
    let mut bytes = fs::read(object).context("read the object")?;
    bytes.push(0);
    fs::write(&other, bytes).context("write another object")?;
    let mut first = Agent::start(object, pins, world).await?;
    let open = || (0..CONNECTIONS).map(|_| way.connect()).collect::<Result<Vec<_>>>();
    let mut connections = way.beyond.run(open)?;
    for connection in &mut connections {
        connection.request()?;
    }
    let traffic = Running::start(way, connections)?;
    let work = async {
        let mut second = Agent::start(&other, pins, world).await?;
        for swap in 0..swaps {
            let agent = if swap % 2 == 0 { &mut first } else { &mut second };
            let before = program()?;
            agent.repair().await?;
            ensure!(program()? != before, "swap {swap} has not replaced the program");
        }
        drop((first, second));
        for _ in 0..restarts {
            drop(Agent::start(object, pins, world).await?);
        }
        Ok::<_, anyhow::Error>(())
    }
    .await;
    let losses = traffic.stop();
    work?;
    losses
}

/// The kernel's number of the program at the first pod's link.
fn program() -> Result<u32> {
    let link = IfIndex(world::link(0).ifindex);
    let filters = Socket::open()?.bpf_filters(link, Hook::ToPod.side())?;
    filters
        .iter()
        .find_map(|filter| filter.program.as_ref())
        .copied()
        .context("no program is attached")
}

/// Traffic in threads.
struct Running {
    stop: Arc<AtomicBool>,
    allowed: JoinHandle<u64>,
    denied: JoinHandle<u64>,
    received: JoinHandle<Result<[u64; 2]>>,
    requests: JoinHandle<[u64; 2]>,
}

impl Running {
    fn start(way: &Way, connections: Vec<Connection>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let server = way.server.try_clone().context("copy a socket")?;
        let client = way.client.try_clone().context("copy a socket")?;
        let foreign = way.beyond.run(|| way::socket(way::DENIED))?;
        let [one, two, three, four] = std::array::from_fn(|_| Arc::clone(&stop));
        Ok(Self {
            stop,
            received: thread::spawn(move || receive(&server, &one)),
            allowed: thread::spawn(move || send(&client, &two)),
            denied: thread::spawn(move || send(&foreign, &three)),
            requests: thread::spawn(move || request(connections, &four)),
        })
    }

    fn stop(self) -> Result<Losses> {
        self.stop.store(true, Ordering::Relaxed);
        let failed = |_| anyhow!("a thread panicked");
        let sent = self.allowed.join().map_err(failed)?;
        self.denied.join().map_err(failed)?;
        let [received, passed] = self.received.join().map_err(failed)??;
        let [requests, connections] = self.requests.join().map_err(failed)?;
        Ok(Losses { sent, lost: sent - received, passed, connections, requests })
    }
}

/// Returns the number of datagrams.
fn send(from: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        sent += (0..BURST).filter(|_| from.send_to(b"ferrule", way::POD).is_ok()).count() as u64;
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Returns the number of datagrams of both sources: the allowed one and the denied one.
fn receive(at: &UdpSocket, stop: &AtomicBool) -> Result<[u64; 2]> {
    at.set_read_timeout(Some(Duration::from_millis(500))).context("set a time-out")?;
    let (mut bytes, mut received) = ([0; 64], [0; 2]);
    loop {
        match at.recv_from(&mut bytes) {
            Ok((_, from)) => received[usize::from(from.ip() == way::DENIED)] += 1,
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(received),
            Err(_) => {}
        }
    }
}

/// Returns the number of requests, and of the connections that lost one.
fn request(mut connections: Vec<Connection>, stop: &AtomicBool) -> [u64; 2] {
    let all = connections.len();
    let mut requests = 0;
    while !stop.load(Ordering::Relaxed) {
        requests += connections.len() as u64;
        connections.retain_mut(|connection| connection.request().is_ok());
    }
    connections.retain_mut(|connection| connection.request().is_ok());
    [requests, (all - connections.len()) as u64]
}

/// Sends foreign first packets of connections beside idle connections. Returns the number of the latter that are lost.
pub(crate) async fn beside_foreign(
    object: &Path,
    pins: &Path,
    world: &World,
    rounds: u32,
) -> Result<u32> {
    let mut programs = Agent::start(object, pins, world).await?.into_programs()?;
    packet::connections(&mut programs, world.pods, IDLE)?;
    let syn = packet::start(world::address(0, false), world::pod_address(0), 80);
    for _ in 0..rounds {
        let links = [world::link(0).ifindex, WIRE];
        programs.time("first_packet", &syn, links, cb(&syn, world.peers), FOREIGN)?;
    }
    Ok(IDLE - packet::answer(&mut programs, world.pods, IDLE)?)
}

const CONNECTIONS: u32 = 1000;
const IDLE: u32 = 10_000;
/// Foreign packets of a round.
pub(crate) const FOREIGN: u32 = 200_000;
/// The datagrams of a millisecond.
const BURST: usize = 10;
