//! Losses of clients of Services while programs are replaced, agents restart, and a release has another layout of maps.

use crate::{
    cluster::{self, Cluster, FIRST_BACKEND},
    ours::{Programs, in_node, put_into_force},
    site::{Arrivals, PATIENCE, Site},
};
use anyhow::{Context as _, Result, anyhow, ensure};
use datapath_ebpf::Hook;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use routing_netlink::Socket;
use routing_plan::IfIndex;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use tests_bench::world;

/// The traffic of a client, and what was lost of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    pub(crate) requests: u64,
    /// Open connections that lost a request or an answer.
    pub(crate) broken: u64,
    /// Connections that were opened meanwhile.
    pub(crate) opened: u64,
    /// Attempts to open one without success.
    pub(crate) failed: u64,
}

/// Replaces the programs, and restarts the agent.
pub(crate) fn swaps(
    site: &Site,
    programs: Programs<'_>,
    cluster: &Cluster,
    [swaps, restarts]: [u32; 2],
) -> Result<Losses> {
    // The end of the file is no part of the object, but of its name.
    let folder = tempfile::tempdir().context("create a folder")?;
    let object = folder.path().join("other.bpf.o");
    let mut bytes = fs::read(programs.object).context("read the object")?;
    bytes.push(0);
    fs::write(&object, bytes).context("write another object")?;
    let other = Programs { object: &object, ..programs };
    put_into_force(&site.node, programs, cluster)?;
    let work = async || {
        let mut first = programs.start_with(cluster.changes()?).await?;
        let mut second = other.start_with(cluster.changes()?).await?;
        for swap in 0..swaps {
            let agent = if swap % 2 == 0 { &mut first } else { &mut second };
            let before = program()?;
            agent.repair().await?;
            ensure!(program()? != before, "swap {swap} has not replaced the program");
        }
        drop((first, second));
        for _ in 0..restarts {
            drop(programs.start_with(cluster.changes()?).await?);
        }
        Ok::<_, anyhow::Error>(())
    };
    under_traffic(site, || in_node(site, work))
}

/// Starts an agent whose maps have another layout than those of the agent before.
pub(crate) fn upgrade(site: &Site, programs: Programs<'_>, cluster: &Cluster) -> Result<Losses> {
    put_into_force(&site.node, programs, cluster)?;
    under_traffic(site, || {
        // An agent knows the layout by the name of the folder.
        let earlier = maps(programs.pins)?;
        fs::rename(&earlier, programs.pins.join("maps-0")).context("rename the maps")?;
        put_into_force(&site.node, programs, cluster)?;
        thread::sleep(AFTER);
        Ok(())
    })
}

/// The folder of maps.
fn maps(pins: &Path) -> Result<PathBuf> {
    let mut folders = fs::read_dir(pins).context("list the folders of maps")?.flatten();
    let found = folders.find(|folder| folder.path().join("flows").exists());
    Ok(found.context("no folder of maps")?.path())
}

/// The kernel's number of the program at the client's link.
fn program() -> Result<u32> {
    let link = IfIndex(world::link(1).ifindex);
    let filters = Socket::open()?.bpf_filters(link, Hook::FromPod.side())?;
    filters
        .iter()
        .find_map(|filter| filter.program.as_ref())
        .copied()
        .context("no program is attached")
}

/// Works while the client sends datagrams, sends requests by open connections, and opens connections, all to the first
/// Service.
fn under_traffic(site: &Site, work: impl FnOnce() -> Result<()>) -> Result<Losses> {
    let arrivals = site.arrivals()?;
    let connections = site.client.run(|| {
        (0..CONNECTIONS).map(|_| Connection::open(&arrivals)).collect::<Result<Vec<_>>>()
    })?;
    let client = site.client.run(|| socket(world::pod_address(1), 0))?;
    let server = site.server.run(|| socket(world::pod_address(0), FIRST_BACKEND))?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let received = scope.spawn(|| receive(&server, &stop));
        let sent = scope.spawn(|| send(&client, &stop));
        let requests = scope.spawn(|| request(connections, &stop));
        let opened = scope.spawn(|| {
            site.client.enter()?;
            Ok::<_, anyhow::Error>(open(&arrivals, &stop))
        });
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow!("a thread panicked");
        let datagrams = sent.join().map_err(panicked)?;
        let received = received.join().map_err(panicked)??;
        let [requests, broken] = requests.join().map_err(panicked)?;
        let [opened, failed] = opened.join().map_err(panicked)??;
        worked?;
        let lost = datagrams.saturating_sub(received);
        Ok(Losses { datagrams, lost, requests, broken, opened, failed })
    })
}

/// Both ends of a connection to the first Service.
struct Connection {
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    /// The calling thread is in the client.
    fn open(arrivals: &Arrivals<'_>) -> Result<Self> {
        let client =
            TcpStream::connect_timeout(&cluster::frontend(0), PATIENCE).context("connect")?;
        let at = arrivals.next(PATIENCE)?.context("a connection does not arrive")?;
        let (server, _) = at.accept().context("accept a connection")?;
        for end in [&client, &server] {
            end.set_nodelay(true).context("disable the delay")?;
            end.set_read_timeout(Some(PATIENCE)).context("set a time-out")?;
        }
        Ok(Self { client, server })
    }

    /// A request and its answer.
    fn request(&mut self) -> Result<()> {
        let mut bytes = [0; 64];
        self.client.write_all(&bytes).context("send a request")?;
        self.server.read_exact(&mut bytes).context("a request was lost")?;
        self.server.write_all(&bytes).context("send an answer")?;
        self.client.read_exact(&mut bytes).context("an answer was lost")
    }
}

/// Returns the number of datagrams.
fn send(from: &UdpSocket, stop: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        let to = cluster::frontend(0);
        sent += (0..BURST).filter(|_| from.send_to(b"ferrule", to).is_ok()).count() as u64;
        thread::sleep(Duration::from_millis(1));
    }
    sent
}

/// Returns the number of datagrams.
fn receive(at: &UdpSocket, stop: &AtomicBool) -> Result<u64> {
    at.set_read_timeout(Some(Duration::from_millis(500))).context("set a time-out")?;
    let mut received = 0;
    loop {
        match at.recv(&mut [0; 64]) {
            Ok(_) => received += 1,
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

/// Returns the number of connections, and of attempts that failed.
fn open(arrivals: &Arrivals<'_>, stop: &AtomicBool) -> [u64; 2] {
    let mut numbers = [0; 2];
    while !stop.load(Ordering::Relaxed) {
        let connection = Connection::open(arrivals);
        let is_lost = connection.and_then(|mut connection| connection.request()).is_err();
        numbers[usize::from(is_lost)] += 1;
        // Ports of ended connections are not free for a minute.
        thread::sleep(Duration::from_millis(5));
    }
    numbers
}

/// A socket that holds many datagrams.
fn socket(address: Ipv4Addr, port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, port)).context("open a socket")?;
    setsockopt(&socket, RcvBufForce, &(64 << 20)).context("set the buffer of a socket")?;
    Ok(socket)
}

/// The traffic after an upgrade.
const AFTER: Duration = Duration::from_secs(1);
const CONNECTIONS: u32 = 1000;
/// The datagrams of a millisecond.
const BURST: usize = 10;
