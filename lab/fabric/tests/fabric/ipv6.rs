//! IPv6: addresses and /80 prefixes across nodes, the source check, security groups.

use crate::{
    Test,
    lab::{TestLab, eni_id, group, ip_batch},
};
use lab_fabric::{
    Applied, BALANCER_ADDRESSES_V6, DropReason, Forwarding, INTERNET_HOST_V6, NicProfile, Peer,
    Transport,
    probe::{self, ProbePlan, ProbePod},
};
use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};
use tests_eventually::eventually;

pub(crate) const TESTS: &[Test] = &[
    ("ipv6_nodes_and_pods_of_prefixes_reach_each_other", nodes_and_pods_reach_each_other),
    ("pods_of_two_nodes_are_probed_over_ipv6", pods_are_probed),
    ("an_ipv6_source_that_is_not_the_enis_is_dropped", a_strange_source_is_dropped),
    ("security_groups_hold_for_ipv6", security_groups_hold),
    ("a_load_balancer_of_ipv6_leads_clients_to_nodes_and_pods", a_balancer_leads_clients),
    ("ipv6_follows_its_eni_and_applying_again_changes_nothing", ipv6_follows_its_eni),
];

const PATIENCE: Duration = Duration::from_secs(5);
/// Long enough to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(300);

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn node_address(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0, 0, 0, 0x10)
}

/// Address `host` of the prefix of node `n`'s primary ENI.
fn pod_address(n: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, n, 0xaa, 0, 0, host)
}

/// Nodes `a` and `b`, each with an IPv6 address and a /80 prefix on its primary ENI.
fn two_nodes() -> TestLab {
    let mut lab = TestLab::dual_stack();
    for (n, name) in [(1_u16, "a"), (2, "b")] {
        lab.want_node(name, NicProfile::EthN, &format!("10.0.{n}.10"));
        lab.eni(name, 0).ipv6 = vec![node_address(n)];
        lab.eni(name, 0).prefixes_v6 = [format!("2001:db8:0:{n}:aa::/80").parse().unwrap()].into();
    }
    lab.apply();
    for name in ["a", "b"] {
        let forward = || std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1");
        lab.node(name).inside(forward).unwrap().unwrap();
    }
    lab
}

/// A pod with this address, wired as a CNI plugin would.
fn wire(lab: &TestLab, node: &str, address: Ipv6Addr) -> String {
    let [.., host] = address.segments();
    let pod = format!("pod-{host:x}");
    let handle = lab.node(node);
    handle.add_pod(&pod).unwrap();
    let veth = format!("eni{host:x}");
    ip_batch(
        &handle,
        &format!(
            "link add {veth} mtu 9001 address 02:ff:00:00:00:01 type veth \
             peer name eth0 mtu 9001 netns {pod}\n\
             link set {veth} up\n\
             address add fe80::1/64 dev {veth} nodad\n\
             route add {address}/128 dev {veth}\n\
             -6 rule add pref 512 to {address} lookup main\n"
        ),
    );
    let script = format!(
        "link set eth0 up\n\
         address add {address}/128 dev eth0 nodad\n\
         route add fe80::1/128 dev eth0\n\
         route add default via fe80::1 dev eth0\n"
    );
    lab_in_pod(lab, node, &pod, &script);
    pod
}

fn lab_in_pod(lab: &TestLab, node: &str, pod: &str, script: &str) {
    let mut child = lab
        .node(node)
        .pod_command(pod, "ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{script}");
}

fn connect(at: SocketAddr, patience: Duration) -> Option<IpAddr> {
    TcpStream::connect_timeout(&at, patience).ok().map(|s| s.local_addr().unwrap().ip())
}

fn nodes_and_pods_reach_each_other() {
    let lab = two_nodes();
    let on_b = lab.node("b").inside(|| TcpListener::bind((node_address(2), 0)).unwrap()).unwrap();
    let at = on_b.local_addr().unwrap();
    let from = lab.node("a").inside(|| connect(at, PATIENCE)).unwrap();
    assert_eq!(from, Some(node_address(1).into()));

    let (near, far) = (pod_address(1, 0x11), pod_address(2, 0x22));
    let (near_pod, far_pod) = (wire(&lab, "a", near), wire(&lab, "b", far));
    let bind = move || TcpListener::bind((far, 0)).unwrap();
    let listener = lab.node("b").inside_pod(&far_pod, bind).unwrap();
    let at = listener.local_addr().unwrap();
    let from = lab.node("a").inside_pod(&near_pod, || connect(at, PATIENCE)).unwrap();
    assert_eq!(from, Some(near.into()));
    assert_eq!(
        lab.node("a").inside(|| connect(at, PATIENCE)).unwrap(),
        Some(node_address(1).into())
    );

    let counters = lab.fabric.counters().unwrap();
    assert!(counters.drops.values().all(|count| count.packets == 0), "{counters:?}");
    let sources = &counters.enis[&eni_id("a", 0)].sources_v6;
    let prefix = "2001:db8:0:1:aa::/80".parse().unwrap();
    assert!(sources[&prefix].packets > 0, "{sources:?}");
}

fn pods_are_probed() {
    let lab = two_nodes();
    let mut pods = Vec::new();
    for (n, node) in [(1_u16, "a"), (2, "b")] {
        for host in [0x11, 0x12] {
            let address = pod_address(n, 16 * n + host);
            let netns = wire(&lab, node, address);
            let name = format!("default/{netns}");
            pods.push(ProbePod { name, node: node.into(), netns, address: address.into() });
        }
    }
    // Once this is through, both nodes have found their router.
    let on_b = lab.node("b").inside(|| TcpListener::bind((node_address(2), 0)).unwrap()).unwrap();
    let at = on_b.local_addr().unwrap();
    assert!(lab.node("a").inside(|| connect(at, PATIENCE)).unwrap().is_some());
    let mut plan = ProbePlan::full(pods, lab.wanted.enis.clone().into_iter().collect());
    plan.tcp_pairs = 4;
    let report = probe::run(&lab.fabric, &plan).unwrap();
    assert!(report.passed(), "{report:#?}");
    assert_eq!((report.pods.reached, report.tcp.reached), (12, 4));
    assert_eq!((report.node_to_pod.reached, report.pod_to_node.reached), (8, 8));
    // The report names the isolated pod and the reason.
    let victim = plan.pods[0].address;
    ip_batch(&lab.node("a"), &format!("route del {victim}/128\n"));
    (plan.tcp_pairs, plan.patience) = (0, SILENCE);
    let report = probe::run(&lab.fabric, &plan).unwrap();
    assert!(!report.passed());
    for failure in report.failures {
        let because = failure.because.join("\n");
        let named = because.contains(&format!("no route to {victim} in table main on node a"));
        assert!(named, "{failure:#?}");
    }
}

fn a_balancer_leads_clients() {
    let lab = two_nodes();
    let pod = pod_address(2, 0x22);
    let name = wire(&lab, "b", pod);
    let bind = |at: Ipv6Addr| move || TcpListener::bind((at, 0)).unwrap();
    let of_node = lab.node("a").inside(bind(node_address(1))).unwrap();
    let of_pod = lab.node("b").inside_pod(&name, bind(pod)).unwrap();
    let address: IpAddr = BALANCER_ADDRESSES_V6.hosts().nth(1).unwrap().into();
    let to = SocketAddr::new(address, 80);
    for listener in [of_node, of_pod] {
        let at = listener.local_addr().unwrap();
        let (targets, target_port) = (vec![at.ip()], at.port());
        let transport = Transport::Tcp;
        let forward = Forwarding { address, transport, port: 80, target_port, targets };
        lab.fabric.balance(&[forward]).unwrap();
        let client = lab.fabric.inside_internet(|| connect(to, PATIENCE)).unwrap();
        assert_eq!(client, Some(INTERNET_HOST_V6.into()), "{at}");
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), INTERNET_HOST_V6, "the target has the address of the client");
    }
    lab.fabric.balance(&[]).unwrap();
    assert_eq!(lab.fabric.inside_internet(|| connect(to, SILENCE)).unwrap(), None);
}

fn a_strange_source_is_dropped() {
    let lab = two_nodes();
    let listener =
        lab.node("b").inside(|| TcpListener::bind((node_address(2), 0)).unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    // Once this is through, the node has found its router.
    assert!(lab.node("a").inside(|| connect(at, PATIENCE)).unwrap().is_some());
    // An address of the VPC that this ENI does not have.
    let strange = v6("2001:db8:0:1:bb::1");
    let pod = wire(&lab, "a", strange);
    // The link has only just come up: the first packets may not get as far as the fabric.
    eventually(
        "a packet of a strange source is dropped and counted",
        tests_eventually::PATIENCE,
        || {
            assert_eq!(lab.node("a").inside_pod(&pod, || connect(at, SILENCE)).unwrap(), None);
            lab.fabric.counters().unwrap().dropped(DropReason::SourceCheck) > 0
        },
    );
    let counters = lab.fabric.counters().unwrap();
    assert!(counters.enis[&eni_id("a", 0)].spoofed_v6[&strange].packets > 0, "{counters:?}");
    // An unassigned address is not reachable either.
    let nobody = SocketAddr::new(v6("2001:db8:0:2:cc::1").into(), 80);
    eventually("a packet to nobody is dropped and counted", tests_eventually::PATIENCE, || {
        assert_eq!(lab.node("a").inside(|| connect(nobody, SILENCE)).unwrap(), None);
        lab.fabric.counters().unwrap().dropped(DropReason::NoSuchAddress) > 0
    });
}

fn security_groups_hold() {
    let mut lab = two_nodes();
    let listener =
        lab.node("b").inside(|| TcpListener::bind((node_address(2), 0)).unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    let open = lab.wanted.groups[&group()].clone();
    let ingress = &mut lab.wanted.groups.get_mut(&group()).unwrap().ingress;
    ingress.retain(|rule| !matches!(rule.peer, Peer::Cidr6(_)));
    assert!(lab.apply().refiltered);
    eventually("what no rule admits is dropped and counted", tests_eventually::PATIENCE, || {
        assert_eq!(lab.node("a").inside(|| connect(at, SILENCE)).unwrap(), None);
        lab.fabric.counters().unwrap().dropped(DropReason::GroupIngress) > 0
    });
    // The members of the group themselves.
    let mut own = open.clone();
    own.ingress.iter_mut().for_each(|rule| rule.peer = Peer::Group(group()));
    lab.wanted.groups.insert(group(), own);
    lab.apply();
    assert!(lab.node("a").inside(|| connect(at, PATIENCE)).unwrap().is_some());
    assert!(
        lab.fabric.counters().unwrap().dropped(DropReason::GroupIngress) > 0,
        "it still counts"
    );
}

fn ipv6_follows_its_eni() {
    let mut lab = two_nodes();
    assert_eq!(lab.apply(), Applied::default());
    let prefix = lab.eni("a", 0).prefixes_v6.pop_first().unwrap();
    lab.eni("b", 0).prefixes_v6.insert(prefix);
    assert_eq!(lab.apply().remapped, 1);
    assert_eq!(lab.apply(), Applied::default());
    let moved = pod_address(1, 0x33);
    let pod = wire(&lab, "b", moved);
    let listener = lab.node("b").inside_pod(&pod, move || TcpListener::bind((moved, 0)).unwrap());
    let at = listener.as_ref().unwrap().local_addr().unwrap();
    let from = lab.node("a").inside(|| connect(at, PATIENCE)).unwrap();
    assert_eq!(from, Some(node_address(1).into()));
    lab.eni("b", 0).prefixes_v6.clear();
    lab.apply();
    assert_eq!(lab.node("a").inside(|| connect(at, SILENCE)).unwrap(), None);
}
