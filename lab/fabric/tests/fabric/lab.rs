//! A lab of two subnets that is removed at the end of the test, and helpers for its nodes and pods.

use config_model::{CardIndex, DeviceIndex, EniId, Mac, SecurityGroupId, SubnetId};
use lab_fabric::{
    DesiredFabric, DropReason, EniSpec, Fabric, GroupRule, GroupSpec, NicProfile, Node, NodeSpec,
    Peer, Power, Protocol, Subnet, Vpc,
    probe::{self, Reason},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};
use tests_eventually::eventually;

pub(crate) struct TestLab {
    pub(crate) dir: PathBuf,
    pub(crate) fabric: Fabric,
    pub(crate) wanted: DesiredFabric,
}

impl Drop for TestLab {
    fn drop(&mut self) {
        let removed = Fabric::remove(&self.dir);
        if !thread::panicking() {
            removed.unwrap();
        }
    }
}

pub(crate) fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(DIRS).join(format!("{}-{n}", std::process::id()))
}

/// Takes down what an earlier run left behind when it was killed.
pub(crate) fn sweep() {
    for entry in fs::read_dir(DIRS).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let pid = name.split('-').next().unwrap();
        if !Path::new("/proc").join(pid).exists() {
            Fabric::remove(&entry.path()).unwrap();
        }
    }
}

const DIRS: &str = "/run/ferrule-lab-test";

pub(crate) fn vpc() -> Vpc {
    let subnet = |cidr: &str, zone: &str| Subnet { cidr: cidr.parse().unwrap(), zone: zone.into() };
    Vpc {
        cidrs: vec!["10.0.0.0/16".parse().unwrap()],
        cidrs_v6: Vec::new(),
        subnets: BTreeMap::from([
            (SubnetId::new("subnet-1"), subnet("10.0.1.0/24", "a")),
            (SubnetId::new("subnet-2"), subnet("10.0.2.0/24", "b")),
        ]),
        ec2_endpoint: ip("10.0.1.3"),
        api_server: None,
    }
}

pub(crate) fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub(crate) fn group() -> SecurityGroupId {
    SecurityGroupId::new("sg-all")
}

pub(crate) fn allow(protocol: Protocol, cidr: &str) -> GroupRule {
    GroupRule { protocol, peer: Peer::Cidr(cidr.parse().unwrap()) }
}

impl TestLab {
    /// Two subnets, a group that allows all, no node.
    pub(crate) fn empty() -> Self {
        Self::of(&vpc())
    }

    /// The same in a VPC that has IPv6 as well: 2001:db8::/56.
    pub(crate) fn dual_stack() -> Self {
        Self::of(&Vpc { cidrs_v6: vec!["2001:db8::/56".parse().unwrap()], ..vpc() })
    }

    fn of(vpc: &Vpc) -> Self {
        let dir = fresh_dir();
        let fabric = Fabric::create(&dir, vpc).unwrap();
        let v6 = Peer::Cidr6("::/0".parse().unwrap());
        let v6 = GroupRule { protocol: Protocol::All, peer: v6 };
        let all = || vec![allow(Protocol::All, "0.0.0.0/0"), v6.clone()];
        let open = GroupSpec { ingress: all(), egress: all() };
        let wanted =
            DesiredFabric { groups: BTreeMap::from([(group(), open)]), ..DesiredFabric::default() };
        Self { dir, fabric, wanted }
    }

    /// Nodes `a` (10.0.1.10) and `b` (10.0.2.10), in two zones.
    pub(crate) fn two_nodes() -> Self {
        let mut lab = Self::empty();
        lab.want_node("a", NicProfile::EthN, "10.0.1.10");
        lab.want_node("b", NicProfile::EthN, "10.0.2.10");
        lab.apply();
        lab
    }

    pub(crate) fn want_node(&mut self, name: &str, profile: NicProfile, primary: &str) {
        let hostname = format!("ip-{}", primary.replace('.', "-"));
        let spec = NodeSpec { hostname, profile, power: Power::On, boot: 1 };
        self.wanted.nodes.insert(name.into(), spec);
        self.want_eni(name, 0, primary, &[]);
    }

    pub(crate) fn want_eni(&mut self, node: &str, device: u16, primary: &str, more: &[&str]) {
        let primary = ip(primary);
        let [_, _, subnet, host] = primary.octets();
        let eni = EniSpec {
            node: node.into(),
            card: CardIndex(0),
            device: DeviceIndex(device),
            mac: Mac([2, 0, 0, 0, subnet, host]),
            subnet: SubnetId::new(format!("subnet-{subnet}")),
            primary,
            public: None,
            secondary: more.iter().map(|address| ip(address)).collect(),
            prefixes: BTreeSet::new(),
            ipv6: Vec::new(),
            prefixes_v6: BTreeSet::new(),
            groups: BTreeSet::from([group()]),
            source_dest_check: true,
        };
        self.wanted.enis.insert(eni_id(node, device), eni);
    }

    pub(crate) fn apply(&mut self) -> lab_fabric::Applied {
        self.fabric.apply(&self.wanted).unwrap()
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.fabric.node(name).unwrap()
    }

    pub(crate) fn eni(&mut self, node: &str, device: u16) -> &mut EniSpec {
        self.wanted.enis.get_mut(&eni_id(node, device)).unwrap()
    }

    /// The secondary ENI's table and rule, as a node daemon would lay them out.
    pub(crate) fn route_eni(&self, node: &str, device: u16) {
        let eni = &self.wanted.enis[&eni_id(node, device)];
        let gateway = vpc().subnets[&eni.subnet].gateway();
        let (link, table, primary) = (format!("eth{device}"), device + 1, eni.primary);
        ip_batch(
            &self.node(node),
            &format!(
                "link set {link} up\n\
                 address add {primary}/32 dev {link}\n\
                 route add {gateway}/32 dev {link} scope link table {table}\n\
                 route add default via {gateway} dev {link} table {table}\n\
                 rule add pref 32765 from {primary} lookup {table}\n"
            ),
        );
    }

    /// A pod with this address of the node's ENI, wired as a CNI plugin would.
    pub(crate) fn wire_pod(&self, node: &str, pod: &str, address: &str, device: u16) {
        let handle = self.node(node);
        handle.add_pod(pod).unwrap();
        let veth = format!("eni{:x}", u32::from(ip(address)));
        let mut script = format!(
            "link add {veth} mtu 9001 address 02:ff:00:00:00:01 type veth \
             peer name eth0 mtu 9001 netns {pod}\n\
             link set {veth} up\n\
             route add {address}/32 dev {veth}\n\
             rule add pref 512 to {address} lookup main\n"
        );
        if device > 0 {
            let table = device + 1;
            script += &format!("rule add pref 1536 from {address} lookup {table}\n");
        }
        ip_batch(&handle, &script);
        let script = format!(
            "link set eth0 up\n\
             address add {address}/32 dev eth0\n\
             route add 169.254.1.1 dev eth0 scope link\n\
             route add default via 169.254.1.1 dev eth0\n\
             neighbor add 169.254.1.1 lladdr 02:ff:00:00:00:01 dev eth0 nud permanent\n"
        );
        handle.inside_pod(pod, || batch(&script)).unwrap();
    }

    /// The other end answers. A link that has just come up may lose a packet on a busy machine.
    pub(crate) fn reaches(&self, node: &str, from: &str, to: &str, bytes: u16) {
        eventually(
            &format!("an answer to {node}'s {from} from {to}"),
            tests_eventually::PATIENCE,
            || self.echo_sized(node, from, to, bytes) == Ok(()),
        );
    }

    /// One echo of full size from the node's own network.
    pub(crate) fn echo(&self, node: &str, from: &str, to: &str) -> Result<(), Reason> {
        self.echo_sized(node, from, to, 9001)
    }

    pub(crate) fn echo_sized(
        &self,
        node: &str,
        from: &str,
        to: &str,
        bytes: u16,
    ) -> Result<(), Reason> {
        let once = || probe::echo_once(ip(from), ip(to), bytes, PATIENCE).unwrap();
        self.node(node).inside(once).unwrap()
    }

    /// Waits until so many packets have been dropped for this reason, and fails at one more.
    ///
    /// A packet that waits for a neighbor reaches the fabric late on a busy machine.
    pub(crate) fn has_dropped(&self, reason: DropReason, packets: u64) {
        let dropped = || self.fabric.counters().unwrap().dropped(reason);
        eventually(&format!("{reason:?} counts {packets}"), tests_eventually::PATIENCE, || {
            dropped() >= packets
        });
        assert_eq!(dropped(), packets, "{reason:?}");
    }
}

pub(crate) fn eni_id(node: &str, device: u16) -> EniId {
    EniId::new(format!("eni-{node}{device}"))
}

pub(crate) fn ip_batch(node: &Node, script: &str) {
    node.inside(|| batch(script)).unwrap();
}

fn batch(script: &str) {
    for line in script.lines() {
        let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The names of the node's links.
pub(crate) fn links(node: &Node) -> BTreeSet<String> {
    let list = || Command::new("ip").args(["-o", "link"]).output().unwrap();
    let output = node.inside(list).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| line.split(": ").nth(1).unwrap().split('@').next().unwrap().to_owned();
    text.lines().map(name).collect()
}

/// Long enough for a neighbor to be resolved on a busy machine; only failures wait that long.
const PATIENCE: Duration = Duration::from_secs(5);
