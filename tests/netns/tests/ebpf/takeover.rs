//! The takeover of a node on which the programs of aws-network-policy-agent enforce policies, and its rollback. The
//! programs are that agent's own, and its own code attaches and fills them.

use crate::{
    connections,
    existing::{enforce_at, only_to_b},
    nat::{only_a, outside},
    object,
    repair::drift,
    traffic::{NODE, PODS, SILENCE, answer, connect_to, in_pod, ip, node},
};
use config_model::{PodName, VethName};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Programs};
use datapath_node::Retire;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use routing_netlink::{BpfFilter, Side, Socket};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The name that amazon-vpc-cni gives to the host link of a pod.
fn link_of(pod: &str) -> String {
    let pod = PodName { namespace: "x".to_owned(), name: pod.to_owned() };
    VethName::of("eni", &pod, 0).as_str().to_owned()
}

/// Renames the host links of the pods.
fn rename_links() {
    for (pod, address) in PODS {
        let link = link_of(pod);
        ip(&format!("link set dev {pod} down"));
        ip(&format!("link set dev {pod} name {link}"));
        ip(&format!("link set dev {link} up"));
        ip(&format!("route add {address}/32 dev {link}"));
    }
}

/// The other agent. A drop ends it; its programs, pins and filters stay.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(folder.join("network-policy-agent"));
        command.arg(NODE).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { input: child.stdin.take(), child, output };
        assert_eq!(agent.line(), "started");
        agent
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Puts policies into force as the agent does: a may send to ports of b, and b may receive from a.
    fn enforce(&mut self, tcp: &[u16]) {
        let rule = |cidr: &str, protocol: &str, port: u16| json!({"cidr": cidr, "protocol": protocol, "port": port});
        let mut to_b: Vec<Value> =
            tcp.iter().map(|port| rule("10.0.0.2/32", "TCP", *port)).collect();
        to_b.push(rule("10.0.0.2/32", "UDP", 5353));
        let a = json!({"namespace": "x", "name": "a", "ingress": [], "egress": to_b});
        let all = [json!({"cidr": "0.0.0.0/0"})];
        let from_a = [json!({"cidr": "10.0.0.1/32"})];
        let b = json!({"namespace": "x", "name": "b", "ingress": from_a, "egress": all});
        for pod in [a, b] {
            writeln!(self.input.as_ref().unwrap(), "{pod}").unwrap();
            assert_eq!(self.line(), format!("attached {}", pod["name"].as_str().unwrap()));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The folder in which the agent keeps copies of its programs; if they differ when it starts, it forgets connections. It
/// exists in this mount namespace only.
struct HostFolder {
    is_new: bool,
}

impl HostFolder {
    fn create() -> Self {
        let is_new = !Path::new(HOST).exists();
        if is_new {
            std::fs::create_dir(HOST).unwrap();
        }
        mount(Some("tmpfs"), HOST, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        std::fs::create_dir_all(Path::new(HOST).join("opt/cni/bin")).unwrap();
        Self { is_new }
    }
}

impl Drop for HostFolder {
    fn drop(&mut self) {
        let _ = umount2(HOST, MntFlags::MNT_DETACH);
        if self.is_new {
            let _ = std::fs::remove_dir(HOST);
        }
    }
}

const HOST: &str = "/host";

/// The filters of a pod's host link, in the order in which the kernel runs them.
fn filters(pod: &str, side: Side) -> Vec<BpfFilter> {
    let mut socket = Socket::open().unwrap();
    let index = socket.index_of(&link_of(pod)).unwrap().unwrap();
    socket.bpf_filters(index, side).unwrap()
}

/// Asserts the order of the filters on each pod's host link.
fn assert_order(from_pod: &[&str], to_pod: &[&str]) {
    for (pod, _) in PODS {
        for (side, expected) in [(Side::Ingress, from_pod), (Side::Egress, to_pod)] {
            let names: Vec<String> =
                filters(pod, side).into_iter().map(|filter| filter.name).collect();
            assert_eq!(names, expected, "{pod}, {side:?}");
        }
    }
}

/// Removes the other agent's filters.
fn remove_theirs() {
    let mut socket = Socket::open().unwrap();
    for (pod, _) in PODS {
        for side in [Side::Ingress, Side::Egress] {
            for filter in filters(pod, side).iter().filter(|of| of.name.starts_with("handle_")) {
                assert!(socket.delete_bpf_filter(filter).unwrap());
            }
        }
    }
}

/// Traffic that continues until it is stopped.
struct Traffic {
    stop: Arc<AtomicBool>,
    /// The connections that are allowed, each with the number of its exchanges.
    allowed: Vec<(JoinHandle<()>, Arc<AtomicUsize>)>,
    /// Packets that are denied: they were sent, and none arrives.
    sent: Arc<AtomicUsize>,
    arrived: Arc<AtomicUsize>,
    denied: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start() -> Self {
        let traffic = Self {
            stop: Arc::default(),
            allowed: Vec::new(),
            sent: Arc::default(),
            arrived: Arc::default(),
            denied: Vec::new(),
        };
        let udp = |pod, port: u16| in_pod(pod, move || UdpSocket::bind(("0.0.0.0", port)).unwrap());
        let echo = udp("b", 5353);
        // Until the process ends: it answers the last datagram too.
        thread::spawn(move || {
            let mut bytes = [0; 8];
            while let Ok((length, from)) = echo.recv_from(&mut bytes) {
                let _ = echo.send_to(&bytes[..length], from);
            }
        });
        let mut traffic = traffic;
        traffic.exchange_udp(udp("a", 4001));
        traffic.exchange();
        for (from, port, to) in [("a", 6000, "10.0.0.2"), ("b", 4000, "10.0.0.1")] {
            let receiver = udp(if from == "a" { "b" } else { "a" }, port);
            let sender = udp(from, 7000);
            traffic.deny(sender, SocketAddr::new(to.parse().unwrap(), port), receiver);
        }
        traffic
    }

    /// Opens a connection, on which bytes go back and forth.
    fn exchange(&mut self) {
        let mut stream = connect_to(AT_B).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.repeat(move |count| {
            let bytes = count.to_ne_bytes();
            stream.write_all(&bytes).unwrap();
            let mut answer = [0; size_of::<usize>()];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, bytes, "bytes are lost");
        });
    }

    /// Repeats an exchange, which gets the number of the earlier ones.
    fn repeat(&mut self, mut exchange: impl FnMut(usize) + Send + 'static) {
        let (stop, count) = (Arc::clone(&self.stop), Arc::<AtomicUsize>::default());
        let done = Arc::clone(&count);
        let flow = thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                exchange(done.load(Ordering::SeqCst));
                done.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
            }
        });
        self.allowed.push((flow, count));
    }

    fn exchange_udp(&mut self, socket: UdpSocket) {
        socket.connect(("10.0.0.2", 5353)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        self.repeat(move |count| {
            socket.send(&count.to_ne_bytes()).unwrap();
            let mut answer = [0; size_of::<usize>()];
            socket.recv(&mut answer).expect("a datagram is lost");
            assert_eq!(usize::from_ne_bytes(answer), count);
        });
    }

    fn deny(&mut self, sender: UdpSocket, to: SocketAddr, receiver: UdpSocket) {
        let (stop, sent) = (Arc::clone(&self.stop), Arc::clone(&self.sent));
        self.denied.push(thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let _ = sender.send_to(&[7], to);
                sent.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(200));
            }
        }));
        let (stop, arrived) = (Arc::clone(&self.stop), Arc::clone(&self.arrived));
        receiver.set_read_timeout(Some(SILENCE)).unwrap();
        self.denied.push(thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                if receiver.recv(&mut [0; 8]).is_ok() {
                    arrived.fetch_add(1, Ordering::SeqCst);
                }
            }
        }));
    }

    /// Waits for more exchanges on each connection and for more denied packets, of which none may have arrived.
    fn continues(&self, when: &str) {
        let counts = self.allowed.iter().map(|(_, count)| count).chain([&self.sent]);
        let goals: Vec<_> =
            counts.map(|count| (count, count.load(Ordering::SeqCst) + MORE)).collect();
        while goals.iter().any(|(count, goal)| count.load(Ordering::SeqCst) < *goal) {
            let is_broken = self.allowed.iter().any(|(flow, _)| flow.is_finished());
            assert!(!is_broken, "a connection broke {when}");
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.arrived.load(Ordering::SeqCst), 0, "a denied packet passed {when}");
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.allowed.into_iter().for_each(|(flow, _)| flow.join().unwrap());
        self.denied.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(self.arrived.load(Ordering::SeqCst), 0);
    }
}

/// The exchanges and packets after each step.
const MORE: usize = 20;
/// Much longer than an exchange takes on a busy machine. A lost datagram is never answered.
const PATIENCE: Duration = Duration::from_secs(10);

/// The port of b that both agents allow.
const AT_B: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 8080);
/// A port of b that only the other agent allows, and only later.
const OTHER: u16 = 8081;

#[test]
fn at_each_moment_of_a_takeover_and_a_rollback_one_of_the_two_agents_enforces() {
    let name = "at_each_moment_of_a_takeover_and_a_rollback_one_of_the_two_agents_enforces";
    let Some(object) = object(name) else { return };
    let Some(folder) = std::env::var_os("FERRULE_NETWORK_POLICY_AGENT").map(PathBuf::from) else {
        println!(
            "SKIP {name}: FERRULE_NETWORK_POLICY_AGENT names no folder; use cargo xtask test netns"
        );
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    mount(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), None::<&str>).unwrap();
    rename_links();
    // The kernel tracks connections.
    outside();
    for port in [AT_B.port(), OTHER] {
        answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
    let at_other = SocketAddr::new(AT_B.ip(), OTHER);
    let _host = HostFolder::create();
    let mut agent = Agent::start(&folder);
    agent.enforce(&[AT_B.port()]);
    assert_order(&["handle_egress"], &["handle_ingress"]);
    let mut traffic = Traffic::start();
    traffic.continues("under the other agent");
    assert!(connect_to(at_other).is_none(), "the other agent denies");

    // Its programs enforce without it.
    drop(agent);
    traffic.continues("without the other agent");
    let pins = bpffs.path().join("maps");
    let programs = Programs::load(&object, Some(&pins), &connections()).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins, connections()).unwrap();
    let policies = [only_to_b(), only_a()];
    enforce_at(&mut backend, 1, &policies, link_of);
    assert_order(&["from_pod", "handle_egress"], &["to_pod", "handle_ingress"]);
    traffic.continues("while both enforce");
    traffic.exchange();

    remove_theirs();
    assert_order(&["from_pod"], &["to_pod"]);
    traffic.continues("after the other's filters were removed");
    traffic.exchange();
    assert!(connect_to(at_other).is_none(), "Ferrule denies");
    assert_eq!(drift(&mut backend), None);

    // The other agent attaches its filters before ours, and they let packets pass that we deny.
    let mut agent = Agent::start(&folder);
    agent.enforce(&[AT_B.port(), OTHER]);
    let other = ["handle_egress", "handle_ingress"];
    assert_order(&[other[0], "from_pod"], &[other[1], "to_pod"]);
    traffic.continues("after the other agent has started again");
    let why = drift(&mut backend).unwrap();
    assert!(why.contains("others are before them"), "{why}");
    enforce_at(&mut backend, 1, &policies, link_of);
    assert_order(&["from_pod", other[0]], &["to_pod", other[1]]);
    assert!(connect_to(at_other).is_none(), "Ferrule denies what the other agent allows");
    traffic.continues("after ours were put before the other's again");

    // The rollback: the other's filters are there before ours are removed.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(backend.retire(Retire::Remove)).unwrap();
    assert_order(&other[..1], &other[1..]);
    assert!(connect_to(at_other).is_some(), "only the other agent enforces");
    traffic.continues("after the rollback");
    traffic.end();
}
