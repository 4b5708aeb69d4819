//! Policies change under 1,000 open connections. Connections that stay allowed lose no byte, and the others end with
//! their next packet.

use crate::{
    enforced::Site,
    policed::{
        Controllers,
        pods::{self, Running},
        traffic::{Ask, SILENCE, ask_all},
    },
    proxy::NetworkNamespace,
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tests_lab::{bpf_object, programs, wait_for};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

const NODES: [&str; 2] = ["node1", "node2"];
const CLIENTS: usize = 10;
/// Connections of one client to one server.
const SHARE: usize = 50;
/// Number of policy changes while the connections are open.
const CHANGES: usize = 12;
const PORT: u16 = 7002;
/// The interval between two requests of a connection.
const INTERVAL: Duration = Duration::from_millis(50);
/// A request whose answer takes longer has lost a byte for good.
const STALLED: Duration = Duration::from_secs(30);

fn app(name: &str) -> Value {
    json!({"matchLabels": {"app": name}})
}

fn policy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

/// The egress of clients, to pods with these labels.
fn egress(apps: &[&str]) -> Value {
    let to: Vec<_> = apps.iter().map(|name| json!({"podSelector": app(name)})).collect();
    policy(
        "client",
        json!({
            "podSelector": app("client"), "policyTypes": ["Egress"], "egress": [{"to": to}],
        }),
    )
}

/// The change with this number. None affects the decision about the connections.
fn change(number: usize) -> [Value; 2] {
    let from = if number.is_multiple_of(2) { "other" } else { "another" };
    let all = json!({"from": [{"podSelector": app("client")}, {"podSelector": app(from)}]});
    [
        policy("stays", json!({"podSelector": app("stays"), "ingress": [all]})),
        if number.is_multiple_of(2) {
            egress(&["stays", "ends", "other"])
        } else {
            egress(&["stays", "ends"])
        },
    ]
}

/// Answers every byte in this namespace, until the test exits.
fn echo(netns: &NetworkNamespace) -> Result<()> {
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = netns.within(|| Ok(std::net::TcpListener::bind(at)?))?;
    listener.set_nonblocking(true)?;
    std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            loop {
                let (mut client, _) = listener.accept().await?;
                tokio::spawn(async move {
                    let (mut from, mut to) = client.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        })
    });
    Ok(())
}

/// The connections of one client to one server.
struct Load {
    thread: std::thread::JoinHandle<Result<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_ended: AtomicBool,
    /// The number of requests with an answer.
    answered: AtomicU64,
    open: AtomicU64,
}

/// Opens connections from this namespace. Each sends numbers and expects them back, in order and whole, until the end.
fn load(from: &Running, to: SocketAddr) -> Result<Load> {
    let connect = || (0..SHARE).map(|_| Ok(std::net::TcpStream::connect(to)?)).collect();
    let streams: Vec<std::net::TcpStream> = from.netns.within(connect)?;
    let shared = Arc::new(Shared::default());
    let own = Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            for stream in streams {
                stream.set_nonblocking(true)?;
                tasks.spawn(exchange(TcpStream::from_std(stream)?, Arc::clone(&own)));
            }
            while let Some(task) = tasks.join_next().await {
                task.context("a connection panicked")??;
            }
            Ok(())
        })
    });
    Ok(Load { thread, shared })
}

/// Sends numbers and expects each back, until the end.
async fn exchange(mut stream: TcpStream, shared: Arc<Shared>) -> Result<()> {
    shared.open.fetch_add(1, Ordering::Relaxed);
    let mut number = 0_u64;
    while !shared.is_ended.load(Ordering::Acquire) {
        stream.write_all(&number.to_be_bytes()).await?;
        let mut answer = [0; 8];
        let read = timeout(STALLED, stream.read_exact(&mut answer)).await;
        read.with_context(|| format!("request {number} has no answer"))??;
        ensure!(answer == number.to_be_bytes(), "request {number} has another answer: {answer:?}");
        shared.answered.fetch_add(1, Ordering::Relaxed);
        number += 1;
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

impl Load {
    /// Ends the exchange. Fails if a connection lost a byte.
    fn end(self) -> Result<u64> {
        self.shared.is_ended.store(true, Ordering::Release);
        self.thread.join().ok().context("a client panicked")??;
        Ok(self.shared.answered.load(Ordering::Relaxed))
    }
}

/// Opens idle connections from this namespace, on each of which one byte was answered.
fn idle(from: &Running, to: SocketAddr) -> Result<Vec<std::net::TcpStream>> {
    use std::io::{Read as _, Write as _};
    let connect = || (0..SHARE).map(|_| Ok(std::net::TcpStream::connect(to)?)).collect();
    let mut streams: Vec<std::net::TcpStream> = from.netns.within(connect)?;
    for stream in &mut streams {
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(streams)
}

/// Returns the number of connections on which a byte is answered.
fn answering(streams: &mut [std::net::TcpStream]) -> Result<usize> {
    use std::io::{Read as _, Write as _};
    for stream in &mut *streams {
        stream.write_all(&[2])?;
    }
    std::thread::sleep(SILENCE);
    let mut answering = 0;
    for stream in streams {
        stream.set_nonblocking(true)?;
        answering += usize::from(stream.read(&mut [0; 8]).is_ok_and(|length| length > 0));
    }
    Ok(answering)
}

#[test]
fn connections_stay_or_end_as_the_changed_policies_say() -> Result<()> {
    let name = "connections_stay_or_end_as_the_changed_policies_say";
    let (Some(bin), Some(object)) = (programs(name), bpf_object(name)) else { return Ok(()) };
    let world = World::new()?;
    for node in NODES {
        world.make_node(node, &json!({}))?;
    }
    for policy in change(0) {
        world.apply(&policy)?;
    }
    let env = ["--env", "FERRULE_POLICY=true", "--env", "NETWORK_POLICY_ENFORCING_MODE=strict"];
    let lab = world.lab(&bin, "t-open-tcp", &[&["--nodes", "2"], &env[..]].concat())?;
    let controllers = Controllers::new(&world, &bin)?;
    let replica = controllers.start()?;
    let mut sites = Vec::new();
    for node in NODES {
        sites.push(Site::new(&world, &lab, &bin, &object, node, replica.at)?);
    }
    let start = |node, name: &str, app| pods::start(&world, &lab, node, name, app);
    // One server on the clients' node and one on the other, of each kind.
    let stays = [start(NODES[0], "stays-0", "stays")?, start(NODES[1], "stays-1", "stays")?];
    let ends = [start(NODES[0], "ends-0", "ends")?, start(NODES[1], "ends-1", "ends")?];
    for server in stays.iter().chain(&ends) {
        echo(&server.netns)?;
        server.serve()?;
    }
    let clients = (0..CLIENTS).map(|number| start(NODES[0], &format!("client-{number}"), "client"));
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let at = |server: &Running| SocketAddr::from((server.address, PORT));
    // Members reach the nodes a moment later.
    wait_for("all clients to connect", PATIENCE, || {
        let asks: Vec<Ask> = stays
            .iter()
            .chain(&ends)
            .map(|of| Ask::Tcp((of.address, crate::proxy::SERVED).into()))
            .collect();
        for client in &clients {
            let answers = ask_all(&client.netns, &asks)?;
            ensure!(answers.iter().all(Option::is_some), "{}: {answers:?}", client.name);
        }
        Ok(true)
    })?;
    let mut loads = Vec::new();
    let mut ending = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        let server = number % 2;
        loads.push(load(client, at(&stays[server]))?);
        ending.extend(idle(client, at(&ends[server]))?);
    }
    let open = loads.iter().map(|load| load.shared.open.load(Ordering::Relaxed)).sum::<u64>();
    ensure!(ending.len() == CLIENTS * SHARE, "{} connections", ending.len());
    ensure!(open <= (CLIENTS * SHARE) as u64, "{open} connections");

    for number in 1..=CHANGES {
        for policy in change(number) {
            world.apply(&policy)?;
        }
        // A member more or less changes classes as well.
        world.apply(&policy(
            "other",
            json!({
                "podSelector": app(if number.is_multiple_of(2) { "ends" } else { "other" }),
                "ingress": [{"from": [{"podSelector": app("client")}]}],
            }),
        ))?;
        std::thread::sleep(Duration::from_millis(300));
    }
    let mut some = ending.split_off(ending.len() - SHARE);
    ensure!(answering(&mut some)? == SHARE, "a change ended connections that stay allowed");
    let mut ending = ending;

    // From now on the policies deny the connections to `ends`.
    world.apply(&egress(&["stays"]))?;
    let denied: Vec<Ask> =
        ends.iter().map(|of| Ask::Tcp((of.address, crate::proxy::SERVED).into())).collect();
    wait_for("the policy to be in force", PATIENCE, || {
        let answers = ask_all(&clients[0].netns, &denied)?;
        ensure!(answers.iter().all(Option::is_none), "{answers:?}");
        Ok(true)
    })?;
    let left = answering(&mut ending)?;
    ensure!(left == 0, "{left} of {} denied connections are answered", ending.len());
    ensure!(answering(&mut some)? == 0, "denied connections are answered");
    let before: u64 = loads.iter().map(|load| load.shared.answered.load(Ordering::Relaxed)).sum();
    wait_for("the allowed connections to continue", PATIENCE, || {
        let now: u64 = loads.iter().map(|load| load.shared.answered.load(Ordering::Relaxed)).sum();
        Ok(now > before + (CLIENTS * SHARE) as u64)
    })?;
    for load in loads {
        let answered = load.end()?;
        ensure!(answered >= SHARE as u64, "only {answered} requests were answered");
    }
    lab.down()
}
