//! Attached kernel, and TCP between two pods of a node.

use crate::{Kernel, detach, object};
use control_wire::NodeSnapshot;
use datapath_abi::Pod;
use datapath_ebpf::{Hook, Programs};
use datapath_plan::{Names, compile};
use nix::{
    mount::{MsFlags, mount},
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns, unshare},
};
use policy_objects::Object;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};
use tests_policy::{node_client::fresh, scenario::Scenario};

/// The node's own address.
pub(crate) const NODE: &str = "192.168.0.1";
/// Time after which a packet without an answer counts as dropped.
pub(crate) const SILENCE: Duration = Duration::from_millis(400);
pub(crate) const PODS: [(&str, &str); 2] = [("a", "10.0.0.1"), ("b", "10.0.0.2")];

pub(crate) fn ip(args: &str) {
    let output = Command::new("ip").args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Moves the calling thread into a node of its own with two pods, and mounts a bpffs at the path.
pub(crate) fn node(bpffs: &Path) {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    std::fs::create_dir_all("/run/netns").unwrap();
    mount(Some("tmpfs"), "/run/netns", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    mount(Some("bpf"), bpffs, Some("bpf"), MsFlags::empty(), none).unwrap();
    // The mount namespace has the sysctls of the network namespace in which /proc/sys is read.
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    ip("link set lo up");
    ip("addr add 192.168.0.1/32 dev lo");
    for (pod, address) in PODS {
        ip(&format!("netns add {pod}"));
        connect_pod(pod, address, "");
    }
}

/// Gives a pod its link. `index` is empty, or the words for the link's number.
pub(crate) fn connect_pod(pod: &str, address: &str, index: &str) {
    ip(&format!(
        "link add {index} name {pod} address 02:00:00:00:00:01 type veth peer name eth0 netns {pod}"
    ));
    ip(&format!("link set dev {pod} up"));
    ip(&format!("route add {address}/32 dev {pod}"));
    for command in [
        "link set lo up",
        "link set eth0 up",
        &format!("addr add {address}/32 dev eth0"),
        "route add 169.254.1.1/32 dev eth0",
        "route add default via 169.254.1.1 dev eth0",
        "neigh add 169.254.1.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent",
    ] {
        ip(&format!("-n {pod} {command}"));
    }
}

/// Adds the outside, which reaches the node by the link `wire`.
pub(crate) fn wire() {
    ip("netns add out");
    ip("link add name wire type veth peer name eth0 netns out");
    ip("addr add 10.9.0.1/24 dev wire");
    ip("link set wire up");
    for command in ["link set lo up", "addr add 10.9.0.2/24 dev eth0", "link set eth0 up"] {
        ip(&format!("-n out {command}"));
    }
    ip("-n out route add default via 10.9.0.1");
}

/// Gives the pods their IPv6 addresses.
pub(crate) fn add_v6() {
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    for (pod, _) in PODS {
        let address = v6_of(pod);
        ip(&format!("addr add fe80::1/64 dev {pod} nodad"));
        ip(&format!("route add {address}/128 dev {pod}"));
        ip(&format!("-n {pod} addr add {address}/128 dev eth0 nodad"));
        ip(&format!("-n {pod} route add default via fe80::1 dev eth0"));
    }
}

/// A pod's IPv6 address.
pub(crate) fn v6_of(pod: &str) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, u16::from(pod.as_bytes()[0]))
}

/// Runs a function in a pod.
pub(crate) fn in_pod<T: Send + 'static>(pod: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let namespace = File::open(format!("/run/netns/{pod}")).unwrap();
    let thread = thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        run()
    });
    thread.join().unwrap()
}

/// Answers each byte of each connection in pod b, until the process ends.
fn serve(port: u16) {
    answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
}

/// Answers each byte of each connection, until the process ends.
pub(crate) fn answer(listener: TcpListener) {
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut connection, mut byte) = (connection, [0]);
                while connection.read(&mut byte).is_ok_and(|count| count == 1) {
                    if connection.write_all(&byte).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

/// Connects from pod a to pod b. `None` if nothing answers.
fn connect(port: u16) -> Option<TcpStream> {
    connect_to(SocketAddr::from(([10, 0, 0, 2], port)))
}

/// Connects from pod a. `None` if nothing answers.
pub(crate) fn connect_to(address: SocketAddr) -> Option<TcpStream> {
    stream(in_pod("a", move || TcpStream::connect_timeout(&address, SILENCE)))
}

/// The connection, or `None` if nothing has answered.
pub(crate) fn stream(connected: std::io::Result<TcpStream>) -> Option<TcpStream> {
    match connected {
        Ok(stream) => {
            stream.set_read_timeout(Some(SILENCE)).unwrap();
            Some(stream)
        }
        Err(error) if error.kind() == ErrorKind::TimedOut => None,
        Err(error) => panic!("{error}"),
    }
}

/// True if a byte on the connection is answered.
pub(crate) fn answers(mut stream: &TcpStream) -> bool {
    stream.write_all(&[7]).unwrap();
    let read = loop {
        match stream.read(&mut [0]) {
            // A read with a time limit ends when the process continues after a stop.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => break read,
        }
    };
    match read {
        Ok(count) => count == 1,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn policy(port: u16) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "b"}},
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
                "ports": [{"port": port}],
            }],
        },
    })
}

/// The state of the node with these policies.
pub(crate) fn snapshot(policies: &[Value]) -> NodeSnapshot {
    snapshot_of(&[NODE], &PODS, policies)
}

/// The state of a node with these addresses and pods.
pub(crate) fn snapshot_of(
    node: &[&str],
    pods: &[(&str, &str)],
    policies: &[Value],
) -> NodeSnapshot {
    let addresses = node.iter().map(|at| json!({"type": "InternalIP", "address": at}));
    let addresses: Vec<Value> = addresses.collect();
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", "uid": "x"}}),
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "n"},
            "status": {"addresses": addresses},
        }),
    ];
    for (pod, address) in pods {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": "x", "uid": pod, "labels": {"app": pod}},
            "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
            "status": {
                "phase": "Running", "podIP": address,
                "podIPs": [{"ip": address}, {"ip": v6_of(pod).to_string()}],
            },
        }));
    }
    objects.extend(policies.iter().cloned());
    let objects = objects.iter().map(|object| Object::read_value(object).unwrap().object);
    let scenario = Scenario { objects: objects.collect(), names: Vec::new() };
    fresh(&scenario, "n").snapshot
}

/// Puts the policies into force.
pub(crate) fn write(kernel: &mut Kernel, policies: &[Value]) {
    write_between(kernel, policies, |_| {});
}

/// [`write`] with calls of `probe` as in [`Kernel::write_between`].
pub(crate) fn write_between(
    kernel: &mut Kernel,
    policies: &[Value],
    probe: impl FnMut(&mut Programs),
) {
    let pods = PODS.map(|pod| (if_nametoindex(pod.0).unwrap(), pod));
    write_pods(kernel, &pods, policies, probe);
}

/// The same for a node with these pods, by link.
pub(crate) fn write_pods(
    kernel: &mut Kernel,
    pods: &[(u32, (&str, &str))],
    policies: &[Value],
    probe: impl FnMut(&mut Programs),
) {
    let mut endpoints = BTreeMap::new();
    for (link, (pod, address)) in pods {
        let address: IpAddr = address.parse().unwrap();
        let (v4, v6) = (Some(address.into()), Some(IpAddr::from(v6_of(pod)).into()));
        let of = Pod { uid: (*pod).to_owned(), v4, v6, ..Pod::default() };
        endpoints.insert(*link, of);
    }
    let pods: Vec<(&str, &str)> = pods.iter().map(|(_, pod)| *pod).collect();
    let tables = compile(&snapshot_of(&[NODE], &pods, policies), &Names::none());
    kernel.write_between(&tables, endpoints, probe);
}

pub(crate) fn attach(kernel: &mut Kernel) {
    for (pod, _) in PODS {
        kernel.attach(Hook::FromPod, pod);
        kernel.attach(Hook::ToPod, pod);
    }
}

#[test]
fn attached_kernel_enforce_changes_and_outlive_their_process() {
    let Some(object) = object("attached_kernel_enforce_changes_and_outlive_their_process") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve(8080);
    serve(8081);
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    write(&mut kernel, &[]);
    attach(&mut kernel);
    let stays = connect(8080).expect("a pod without policies is open");
    let ends = connect(8081).expect("a pod without policies is open");
    assert!(answers(&stays) && answers(&ends));

    // A policy applies to the next packet of each connection.
    write(&mut kernel, &[policy(8080)]);
    assert!(answers(&stays), "the connection stays allowed");
    assert!(!answers(&ends), "the connection is no longer allowed");
    assert!(connect(8080).is_some_and(|stream| answers(&stream)));
    assert!(connect(8081).is_none(), "no rule allows the port");

    // Without a process everything stays as it is, connections too.
    drop(kernel);
    assert!(answers(&stays), "the connection continues without a process");
    assert!(connect(8080).is_some() && connect(8081).is_none());

    // The next process finds the maps and replaces the filters.
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    attach(&mut kernel);
    assert!(answers(&stays), "the connection continues after a restart");
    assert!(connect(8081).is_none());
    write(&mut kernel, &[policy(8081)]);
    assert!(!answers(&stays), "the connection is no longer allowed");
    assert!(connect(8080).is_none() && connect(8081).is_some());

    // A pod sends from its own address only, also without policies.
    write(&mut kernel, &[]);
    ip("-n a addr add 10.0.0.9/32 dev eth0");
    ip("route add 10.0.0.9/32 dev a");
    ip("-n a route replace 10.0.0.2/32 via 169.254.1.1 dev eth0 src 10.0.0.9");
    assert!(connect(8081).is_none(), "a packet with a foreign source passes");
    ip("-n a route del 10.0.0.2/32");
    assert!(connect(8081).is_some());

    for (pod, _) in PODS {
        detach(Hook::FromPod, pod);
        detach(Hook::ToPod, pod);
    }
    assert!(connect(8080).is_some() && connect(8081).is_some(), "detached pods are open");
}
