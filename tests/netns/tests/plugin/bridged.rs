//! Host ends in mode bridged. A kernel bridge stands for the bridge of a datapath, and its device is the gateway port.
//! The test attaches the host veths, as ferrule-agent does when it admits a pod.

use crate::{
    add::VETH,
    binary::Sandbox,
    check::check,
    daemon::{Book, Daemon},
    gc::gc,
    node::{Node, on_a_node},
};
use config_model::{HostEndMode, PodKey, PodName, TableId, VethName, registry};
use routing_netlink::{Socket, With};
use routing_plan::{Action, NodeDesired, Op, PodDesired, Subject, plan};
use serde_json::{Value, json};
use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

const PORT: &str = "enigw0";
const POD: &str = "10.0.0.100";

fn daemon(node: &Node) -> Daemon {
    Daemon::start_with(node, Book { host_end: HostEndMode::bridged("eni"), ..Book::on_table_2() })
}

fn add_port(node: &Node) {
    node.ip(&format!("link add {PORT} address 0a:00:00:00:00:77 type bridge"));
    node.ip(&format!("link set {PORT} up"));
}

/// Makes the host veth a port of the bridge.
fn attach(node: &Node) {
    node.ip(&format!("link set {VETH} master {PORT}"));
}

/// Returns the permanent neighbor entries of a link on the host, as `address MAC`.
fn neighbors(node: &Node) -> Vec<String> {
    let entries = node.show(&format!("neigh show dev {PORT} nud permanent"));
    entries.iter().map(|n| format!("{} {}", text(&n["dst"]), text(&n["lladdr"]))).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn pod_mac(node: &Node, sandbox: &Sandbox) -> String {
    let link = node.show_inside(&sandbox.netns, "link show dev eth0").remove(0);
    text(&link["address"]).to_owned()
}

fn desired(key: &PodKey) -> NodeDesired {
    let name = PodName { namespace: "default".to_owned(), name: "web-0".to_owned() };
    let pod = PodDesired {
        key: key.clone(),
        veth: VethName::of("eni", &name, 0),
        address: POD.parse().unwrap(),
        table: TableId(2),
        host_end: HostEndMode::bridged("eni"),
        confirmed: true,
        adopted: false,
    };
    tests_support::node::node(0, vec![pod])
}

/// Returns the operations of the repair pass for the pod and its links.
fn repairs(host: &mut Socket, desired: &NodeDesired) -> Vec<Op> {
    let observed = host.observe(With::Neighbors).unwrap();
    let of_pod = |op: &Op| matches!(op.subject, Subject::Address(_) | Subject::Link(_));
    // The settings of links are files, which the daemon writes.
    let is_message = |op: &Op| !matches!(op.action, Action::SetIpv6(..));
    let ops = plan(desired, &observed).ops.into_iter();
    ops.filter(|op| of_pod(op) && is_message(op)).collect()
}

/// Connects from the host to the pod by the bridge.
fn reaches(node: &Node, sandbox: &Sandbox) -> bool {
    let at = SocketAddr::new(POD.parse().unwrap(), 8080);
    let _listener = node.inside(&sandbox.netns, || TcpListener::bind(at).unwrap());
    TcpStream::connect_timeout(&at, Duration::from_secs(3)).is_ok()
}

#[test]
fn a_bridged_pod_is_reached_by_the_gateway_port_and_nothing_is_left_of_it() {
    on_a_node(|node| {
        add_port(node);
        let before = (node.host_state(), neighbors(node));
        let _daemon = daemon(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        attach(node);
        assert_eq!(node.pod_routes(), [format!("{POD} {PORT}")]);
        assert_eq!(node.pod_rules(), ["1536 from 10.0.0.100 2", "512 to 10.0.0.100 254"]);
        assert_eq!(neighbors(node), [format!("{POD} {}", pod_mac(node, &sandbox))]);
        let inside = node.show_inside(&sandbox.netns, "neigh show dev eth0 nud permanent");
        let gateway = inside.iter().find(|n| n["dst"] == "169.254.1.1").unwrap();
        assert_eq!(gateway["lladdr"], "0a:00:00:00:00:77");
        assert!(reaches(node, &sandbox));
        check(node, &sandbox, &result).run().is_silent_success();

        node.first_del(&sandbox, &result).run().is_silent_success();
        node.ip(&format!("link delete group {}", registry::GROUP_REAP));
        assert_eq!((node.host_state(), neighbors(node)), before);
    });
}

#[test]
fn repair_follows_a_new_gateway_port_and_leaves_the_bridge_alone() {
    on_a_node(|node| {
        add_port(node);
        let _daemon = daemon(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        attach(node);
        let mut host = Socket::open().unwrap();
        let desired = desired(&PodKey::new("aws-cni", "c1", "eth0").unwrap());
        assert_eq!(repairs(&mut host, &desired), []);

        // Without the port the pod waits, and the route does not move to the host veth.
        node.ip(&format!("link delete {PORT}"));
        assert_eq!(repairs(&mut host, &desired), []);
        let (missing, _) = check(node, &sandbox, &result).run().error(101);
        assert!(missing.contains(PORT), "{missing}");

        add_port(node);
        attach(node);
        let ops = repairs(&mut host, &desired);
        let applied = host.run(&ops).unwrap();
        assert_eq!((applied.changed, applied.refused), (2, Vec::new()), "{ops:?}");
        assert_eq!(repairs(&mut host, &desired), []);
        assert_eq!(node.link(VETH).unwrap()["master"], PORT);
        assert_eq!(node.pod_routes(), [format!("{POD} {PORT}")]);
        assert!(reaches(node, &sandbox));
        check(node, &sandbox, &result).run().is_silent_success();

        // After the pod's end an observation shows the rest, and repair removes it.
        let gone = NodeDesired { pods: Vec::new(), ..desired };
        let ops = repairs(&mut host, &gone);
        let applied = host.run(&ops).unwrap();
        assert_eq!(applied.refused, []);
        assert_eq!((node.pod_routes(), node.pod_rules(), neighbors(node)), Default::default());
    });
}

#[test]
fn gc_removes_a_bridged_pod_that_the_runtime_does_not_know() {
    on_a_node(|node| {
        add_port(node);
        let before = (node.host_state(), neighbors(node));
        let _daemon = daemon(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        attach(node);
        gc(node, &json!([])).run().is_silent_success();
        node.ip(&format!("link delete group {}", registry::GROUP_REAP));
        assert_eq!((node.host_state(), neighbors(node)), before);
    });
}

#[test]
fn an_add_without_the_gateway_port_fails_and_leaves_nothing() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = daemon(node);
        let (message, _) = node.call("ADD", &node.sandbox("c1", "web-0")).run().error(11);
        assert!(message.contains(PORT), "{message}");
        assert_eq!(node.host_state(), before);
        daemon.book(|book| assert_eq!(book.held.len(), 0));
    });
}

#[test]
fn a_del_without_the_daemon_removes_a_bridged_pod() {
    on_a_node(|node| {
        add_port(node);
        let before = (node.host_state(), neighbors(node));
        let started = daemon(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        attach(node);
        drop(started);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!((node.host_state(), neighbors(node)), before);
        // Without prevResult as well: the neighbor entry names the address.
        let started = daemon(node);
        let sandbox = node.sandbox("c2", "web-0");
        node.add(&sandbox);
        drop(started);
        node.call("DEL", &sandbox).run().is_silent_success();
        assert_eq!((node.host_state(), neighbors(node)), before);
    });
}
