//! Services and the fast path of a pod with a branch ENI, strict and standard, on the agent's own view of the links.
//!
//! Pod a is on the primary ENI. Pod b has a branch ENI: a VLAN of the trunk. The router of the VPC drops a packet from an
//! address that is not of the ENI by which the packet comes. The client outside is this router.

use crate::{
    beyond::{answered, ask_from, forwards_with, misplaced},
    existing::{desired_for, endpoints_at},
    fast::{COUNT, nft},
    nat::listen,
    object,
    service::{answer_datagrams, at},
    serving::{Agent, fast_links},
    traffic::{PODS, answer, in_pod, ip, node},
};
use config_model::registry::STRICT_VETH_PREFIX;
use nix::net::if_::if_nametoindex;
use serde_json::json;
use service_objects::{Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

const CLIENT: &str = "router";
const CLIENT_AT: &str = "10.90.0.254";
/// The node's address at the primary ENI.
const PRIMARY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 90, 0, 1));
const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 20, 0, 1));
const BRANCH_MAC: &str = "02:00:00:00:00:07";
/// The router's check of sources. Packets without the tag of the VLAN come from no pod.
const SOURCES: &str = "
table inet sources {
    chain pre {
        type filter hook prerouting priority 0;
        iifname \"eni0\" ip saddr != { 10.90.0.1, 10.0.0.1 } counter drop
        iifname \"branch\" ip saddr != 10.0.0.2 counter drop
        iifname \"eni1\" meta protocol ip counter drop
    }
}";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Strict,
    Standard,
}

impl Mode {
    /// The host end of pod b.
    fn link(self) -> String {
        let prefix = if self == Self::Strict { STRICT_VETH_PREFIX } else { "eni" };
        format!("{prefix}0000000000b")
    }
}

/// Moves the calling thread into the node, whose pod b has a branch ENI. Its rules and routes are those of the plugin.
fn place(bpffs: &Path, mode: Mode) {
    node(bpffs);
    ip("netns add router");
    for eni in ["eni0", "eni1"] {
        ip(&format!("link add name {eni} type veth peer name {eni} netns router"));
        ip(&format!("link set {eni} up"));
        ip(&format!("-n router link set {eni} up"));
    }
    ip("addr add 10.90.0.1/24 dev eni0");
    ip("route add default via 10.90.0.254 dev eni0");
    ip(&format!("link add link eni1 name vlan.eth.7 address {BRANCH_MAC} type vlan id 7"));
    ip("link set vlan.eth.7 up");
    for command in [
        "link set lo up",
        "link add link eni1 name branch type vlan id 7",
        "link set branch up",
        &format!("addr add {CLIENT_AT}/24 dev eni0"),
        "addr add 10.91.0.254/24 dev branch",
        "route add 10.0.0.1 via 10.90.0.1 dev eni0",
        "route add 10.0.0.2 dev branch",
        // A VPC has the MAC of each address.
        &format!("neigh add 10.0.0.2 lladdr {BRANCH_MAC} dev branch nud permanent"),
    ] {
        ip(&format!("-n router {command}"));
    }
    in_pod("router", || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        nft(SOURCES);
        nft(COUNT);
    });
    let link = mode.link();
    ip("link set dev b down");
    ip(&format!("link set dev b name {link}"));
    ip(&format!("link set dev {link} up"));
    ip("route add 10.91.0.254 dev vlan.eth.7 table 107");
    ip("route add default via 10.91.0.254 dev vlan.eth.7 table 107");
    ip("rule add pref 512 to 10.0.0.1 lookup main");
    match mode {
        Mode::Strict => {
            ip(&format!("route add 10.0.0.2 dev {link} table 107"));
            for link in ["vlan.eth.7", &link] {
                ip(&format!("rule add pref 10 iif {link} lookup 107"));
            }
            ip("rule add pref 20 lookup local");
            ip("rule del pref 0 from all lookup local");
        }
        Mode::Standard => {
            ip(&format!("route add 10.0.0.2 dev {link}"));
            ip("rule add pref 512 to 10.0.0.2 lookup main");
            ip("rule add pref 1536 from 10.0.0.2 lookup 107");
        }
    }
    nft(COUNT);
    for namespace in ["a", "b", "router"] {
        answer(in_pod(namespace, || listen("0.0.0.0:8080")));
        answer_datagrams(namespace, 5353);
    }
}

/// An agent's backend, with the links that it observes. A Service leads to each pod.
fn serving(object: &Path, bpffs: &Path, mode: Mode) -> Agent {
    place(bpffs, mode);
    let link = |pod: &str| if pod == "b" { mode.link() } else { pod.to_owned() };
    let desired = desired_for(1, &[], endpoints_at(&PODS, "", link));
    let mut agent = Agent::of(object, &bpffs.join("maps"), desired);
    assert_eq!(agent.apply(), BTreeMap::new());
    let services = [(1, 30_080, 30_053, "10.0.0.2"), (2, 31_080, 31_053, "10.0.0.1")];
    let refused = agent.change(|of, changes| {
        for (number, tcp, udp, pod) in services {
            let service = json!({
                "metadata": {"namespace": "x", "name": format!("s{number}")},
                "spec": {
                    "type": "NodePort", "clusterIPs": [format!("172.20.0.{number}")],
                    "ports": [
                        {"name": "web", "port": 80, "nodePort": tcp},
                        {"name": "dns", "port": 53, "nodePort": udp, "protocol": "UDP"},
                    ],
                },
            });
            let slice = json!({
                "metadata": {
                    "namespace": "x", "name": format!("s{number}-1"),
                    "labels": {"kubernetes.io/service-name": format!("s{number}")},
                },
                "addressType": "IPv4", "endpoints": [{"addresses": [pod]}],
                "ports": [
                    {"name": "web", "port": 8080}, {"name": "dns", "port": 5353, "protocol": "UDP"},
                ],
            });
            let service = Arc::new(Service::read(&service).unwrap());
            let slice = Arc::new(Slice::read(&slice).unwrap());
            changes.slices.insert(slice.name.clone());
            of.slices.insert(slice.name.clone(), slice);
            changes.services.insert(service.name.clone());
            of.services.insert(service.name.clone(), service);
        }
    });
    assert_eq!(refused, BTreeMap::new());
    agent
}

/// The packets that the stacks of the node and of the router forward meanwhile.
fn forwards(run: impl FnOnce()) -> [u64; 2] {
    forwards_with("router", run)
}

/// The pods, and their addresses and Services as the other pod asks for them.
fn ways() -> Vec<(&'static str, SocketAddr)> {
    let [a, b] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let other = IpAddr::from([172, 20, 0, 2]);
    [("a", b, 8080), ("a", VIP, 80), ("b", a, 8080), ("b", other, 80)]
        .into_iter()
        .map(|(from, to, port)| (from, at(to, port)))
        .collect()
}

fn fast(agent: &Agent) -> u64 {
    agent.other().counters().unwrap()["fast_path"]
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_strict_branch_pod_takes_no_shortcut() {
    let Some(object) = object("a_strict_branch_pod_takes_no_shortcut") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let agent = serving(&object, bpffs.path(), Mode::Strict);
    let a = if_nametoindex("a").unwrap();
    assert_eq!(fast_links(&bpffs.path().join("maps")), BTreeSet::from([a]));
    for (from, to) in ways() {
        for _ in 0..2 {
            let count = forwards(|| assert!(answered(from, to), "{from} {to}"));
            // Both sides of the branch. The side of pod a can be on the fast path to another node.
            assert!(count[0] >= 5 && count[1] >= 5, "{from} {to}: {count:?}");
        }
    }
    // Beyond the node.
    let outside = at(CLIENT_AT.parse::<IpAddr>().unwrap(), 8080);
    for _ in 0..2 {
        assert!(forwards(|| assert!(answered("b", outside)))[0] > 0, "the stack has its packets");
        let to_pod = at([10, 0, 0, 2], 8080);
        assert!(forwards(|| assert!(answered(CLIENT, to_pod)))[0] > 0, "the stack has its packets");
    }
    // The node port of pod b is served as that of a pod on another node.
    for _ in 0..2 {
        let count = forwards(|| assert!(answered(CLIENT, at(PRIMARY, 30_080))));
        assert!(count[1] > 0, "its packets pass the router: {count:?}");
        let seen = ask_from(CLIENT, 0, at(PRIMARY, 30_053));
        assert_eq!(seen, Ok(PRIMARY.to_string()), "the backend sees the node");
    }
    assert_eq!(misplaced(), 0, "each packet leaves by the ENI of its source");
    assert_eq!(agent.other().counters().unwrap()["no_backend"], 0);
    // The branch is the only way.
    ip("-n router link set branch down");
    for (from, to) in ways() {
        assert!(!answered(from, to), "{from} {to}");
    }
    assert!(!answered(CLIENT, at(PRIMARY, 30_080)));
    assert!(answered(CLIENT, at(PRIMARY, 31_080)), "pod a needs no branch");
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn the_primary_eni_answers_for_a_standard_branch_pod() {
    let Some(object) = object("the_primary_eni_answers_for_a_standard_branch_pod") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let agent = serving(&object, bpffs.path(), Mode::Standard);
    for _ in 0..3 {
        let before = fast(&agent);
        let count = forwards(|| {
            assert!(answered(CLIENT, at(PRIMARY, 30_080)));
            let client = Ok(CLIENT_AT.to_owned());
            assert_eq!(ask_from(CLIENT, 0, at(PRIMARY, 30_053)), client, "the client's address");
        });
        assert!(count[0] > 0, "the route of pod b leads to the branch: {count:?}");
        assert_eq!(count[1], 0, "no packet of a node port passes the branch");
        assert_eq!(fast(&agent), before, "the stack has its packets");
    }
    // Packets of its own connections leave by the branch.
    let outside = at(CLIENT_AT.parse::<IpAddr>().unwrap(), 8080);
    for _ in 0..2 {
        let count = forwards(|| assert!(answered("b", outside)));
        assert!(count[0] > 0, "{count:?}");
    }
    // Between the pods of the node they need no branch.
    ip("-n router link set branch down");
    for (from, to) in ways() {
        for _ in 0..2 {
            assert_eq!(forwards(|| assert!(answered(from, to), "{from} {to}"))[1], 0);
        }
    }
    assert!(answered(CLIENT, at(PRIMARY, 30_080)), "its answers leave by the primary ENI");
    assert_eq!(misplaced(), 0, "each packet leaves by the ENI of its source");
    assert_eq!(agent.other().counters().unwrap()["no_backend"], 0);
}
