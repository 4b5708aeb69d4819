//! A node with pods, the host beyond it, and the sockets at both ends.

use anyhow::{Context as _, Result, bail, ensure};
use config_model::{EniId, Mac, Mark, PodKey, PodName, RuleLayout, TableId, VethName, registry};
use ipnet::IpNet;
use nix::sched::{CloneFlags, unshare};
use routing_netlink::{Netns, Socket, With, write_sysctls};
use routing_plan::{
    Action, EniDesired, Family, IfIndex, LinkAddr, LinkRef, NodeDesired, Observed, Op, PodDesired,
    PrimaryDesired, Route, Subject, SysctlName,
    nat::sources,
    plan,
    pod::{PodNet, VethEnd, VethPair},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::AsFd as _,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The layout of the node's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Routes only, as in a router: the reference.
    None,
    /// A rule to each pod and a rule from it.
    PerPod,
    /// Shared rules; the pods' addresses are in prefixes.
    Prefixes,
    /// Shared rules; the pods have single addresses, and netfilter marks their packets.
    Singles,
}

impl Rules {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::PerPod, Self::Prefixes, Self::Singles];

    /// Name of the layout in figures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PerPod => "per_pod",
            Self::Prefixes => "compact_prefixes",
            Self::Singles => "compact_singles",
        }
    }

    fn layout(self) -> RuleLayout {
        match self {
            Self::None | Self::PerPod => RuleLayout::PerPod,
            Self::Prefixes | Self::Singles => RuleLayout::Compact,
        }
    }
}

/// A node that is set up. Its namespaces are removed on drop.
pub(crate) struct Node {
    pub(crate) pods: usize,
    pub(crate) layout: Rules,
    /// Number of its IPv4 rules, including the kernel's own.
    pub(crate) rules: usize,
    /// In the namespace of the last pod.
    pod: UdpSocket,
    pod_address: SocketAddr,
    /// In the namespace beyond the ENIs.
    beyond: UdpSocket,
    beyond_address: SocketAddr,
    /// In the node's namespace.
    host: Socket,
    desired: NodeDesired,
    marked: Marks,
    netns: Netns,
    _namespaces: [Netns; 3],
}

type Marks = BTreeMap<Ipv4Addr, Mark>;

/// An m5.24xlarge has 15 ENIs with 49 addresses for pods each.
const SECONDARY_ENIS: u8 = 14;
const PODS_OF_ENI: usize = 50;
const FIRST_HOST: usize = 16;
const MTU: u32 = 9001;
const PORT: u16 = 7007;
/// Address of the host beyond the node.
const BEYOND: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// A packet counts as lost after this time.
const LOST: Duration = Duration::from_secs(5);
const SHORT_WAIT: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    pub(crate) fn set_up(pods: usize, layout: Rules) -> Result<Self> {
        ensure!(pods > 0 && pods <= usize::from(SECONDARY_ENIS) * PODS_OF_ENI, "{pods} pods");
        // A separate thread enters the namespaces and then ends.
        let worker = thread::spawn(move || NodeBuilder::open(pods, layout)?.finish());
        worker.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
    }

    /// With thousands of links the kernel takes seconds until each link has its carrier, and drops packets
    /// until then. Afterwards both ends have resolved their neighbors as well.
    fn wait_for_carriers(&self) -> Result<()> {
        let give_up = Instant::now() + PATIENCE;
        let patience = |time| {
            let both = [&self.pod, &self.beyond];
            both.iter().try_for_each(|socket| socket.set_read_timeout(Some(time)))
        };
        patience(SHORT_WAIT).context("set a time-out")?;
        while let Err(error) = self.round_trip() {
            ensure!(Instant::now() < give_up, "{error:#} for {PATIENCE:?}");
        }
        // Late packets must not count as answers to the next ones.
        while receive(&self.pod).is_ok() || receive(&self.beyond).is_ok() {}
        patience(LOST).context("set a time-out")
    }

    /// Changes the layout to the other one and back, pass by pass as the daemon does, with continuous
    /// traffic. Returns the number of round trips meanwhile and the number of rules at the end.
    pub(crate) fn switch_layout_twice(&mut self) -> Result<(u64, usize)> {
        let Self { host, desired, marked, netns, pod, pod_address, beyond, beyond_address, .. } =
            self;
        let stop = AtomicBool::new(false);
        let trips = || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                send(beyond, *pod_address)?;
                receive(pod)?;
                send(pod, *beyond_address)?;
                receive(beyond)?;
                count += 1;
            }
            Ok::<u64, anyhow::Error>(count)
        };
        let switch = || {
            for _ in 0..2 {
                desired.layout = desired.layout.other();
                converge(host, desired, marked)?;
            }
            let observed = host.observe(With::Nothing)?;
            Ok::<usize, anyhow::Error>(
                observed.rules.iter().filter(|rule| rule.family == Family::V4).count(),
            )
        };
        thread::scope(|scope| {
            let trips = scope.spawn(trips);
            let switched = run_in(netns, switch);
            stop.store(true, Ordering::Relaxed);
            let count = trips.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?;
            Ok((count?, switched??))
        })
    }

    /// A packet to the pod and one back.
    pub(crate) fn round_trip(&self) -> Result<()> {
        send(&self.beyond, self.pod_address)?;
        receive(&self.pod)?;
        self.one_way()
    }

    /// A packet from the pod.
    pub(crate) fn one_way(&self) -> Result<()> {
        send(&self.pod, self.beyond_address)?;
        receive(&self.beyond)
    }
}

fn send(from: &UdpSocket, to: SocketAddr) -> Result<()> {
    from.send_to(b"ferrule", to).map(drop).with_context(|| format!("send a packet to {to}"))
}

fn receive(at: &UdpSocket) -> Result<()> {
    let mut packet = [0; 16];
    at.recv(&mut packet).map(drop).context("a packet was lost")
}

/// A node under construction. The calling thread is in the node's namespace.
struct NodeBuilder {
    pods: usize,
    layout: Rules,
    host: Socket,
    beyond: Netns,
    parked: Netns,
    measured: Netns,
    node: Netns,
    made: u16,
}

impl NodeBuilder {
    fn open(pods: usize, layout: Rules) -> Result<Self> {
        let beyond = namespace()?;
        let parked = namespace()?;
        let measured = namespace()?;
        let node = namespace()?;
        let host = Socket::open()?;
        Ok(Self { pods, layout, host, beyond, parked, measured, node, made: 0 })
    }

    fn finish(mut self) -> Result<Node> {
        let forward = SysctlName::new("net/ipv4/ip_forward").context("not a sysctl name")?;
        write_sysctls(&[(forward, "1")]).context("enable forwarding on the node")?;
        self.enis()?;
        let desired = self.desired();
        let mut marked = BTreeMap::new();
        let mut last = None;
        for pod in &desired.pods {
            last = Some(self.build(pod, pod == &desired.pods[self.pods - 1])?);
        }
        let (net, veth) = last.context("the node has no pod")?;
        let rules = match self.layout {
            Rules::None => self.without_rules(&desired, &net)?,
            Rules::PerPod | Rules::Prefixes | Rules::Singles => {
                converge(&mut self.host, &desired, &mut marked)?
            }
        };
        let gateway_mac = mac(200, 0);
        self.set_up_pod(&net, veth, gateway_mac)?;
        self.add_return_route(&net)?;
        let bind = |at: &Netns, address: IpAddr| {
            Ok::<_, anyhow::Error>(run_in(at, move || UdpSocket::bind((address, PORT)))??)
        };
        let node = Node {
            pods: self.pods,
            layout: self.layout,
            rules,
            pod: bind(&self.measured, net.address)?,
            pod_address: (net.address, PORT).into(),
            beyond: bind(&self.beyond, BEYOND.into())?,
            beyond_address: (BEYOND, PORT).into(),
            host: self.host,
            desired,
            marked,
            netns: self.node,
            _namespaces: [self.beyond, self.parked, self.measured],
        };
        node.wait_for_carriers()?;
        Ok(node)
    }

    /// The node's ENIs. The far ends belong to the VPC router, with the first address of each subnet.
    fn enis(&mut self) -> Result<()> {
        let mut router = self.beyond.socket()?;
        for n in 0..=SECONDARY_ENIS {
            let far = mac(100 + n, 0);
            let link = self.veth(&format!("eth{n}"), mac(n, 0), "beyond", far)?;
            if n == 0 {
                apply_all(&mut self.host, &[Action::AddAddress(address_on(link, own(0), 24))])?;
                let default = Route::default_via(TableId::MAIN, gateway(0), link);
                apply_all(&mut self.host, &[Action::ReplaceRoute(default)])?;
            }
            let name = format!("far{}", self.made);
            let peer = router.link_named(&name)?.context("the far end of an ENI")?;
            let up = Action::SetUp(LinkRef::from(&peer));
            apply_all(
                &mut router,
                &[up, Action::AddAddress(address_on(peer.index, gateway(n), 24))],
            )?;
        }
        let lo = router.link_named("lo")?.context("no loopback")?;
        let beyond = address_on(lo.index, BEYOND.into(), 32);
        apply_all(&mut router, &[Action::SetUp(LinkRef::from(&lo)), Action::AddAddress(beyond)])
    }

    fn desired(&self) -> NodeDesired {
        let eni = |n: u8| EniDesired {
            eni: EniId::new(format!("eni-{n}")),
            mac: mac(n, 0),
            address: Some(own(n)),
            subnet: IpNet::new_assert(own(n), 24).trunc(),
            table: table(n),
            mtu: MTU,
            blocks: self.blocks(n),
            trunk: false,
        };
        let pods: Vec<PodDesired> = (0..self.pods).map(pod).collect();
        NodeDesired {
            family: Family::V4,
            layout: self.layout.layout(),
            primary: PrimaryDesired { mac: mac(0, 0), mtu: MTU },
            connmark: Some(registry::CONNMARK),
            external: BTreeSet::new(),
            enis: (1..=SECONDARY_ENIS).map(eni).collect(),
            managed: pods.iter().map(|pod| IpNet::from(pod.address)).collect(),
            pods,
            branches: Vec::new(),
            trunk: None,
            strict: false,
            spared: BTreeSet::new(),
            veth_prefix: "eni".to_owned(),
            egress: false,
            sysctls: BTreeMap::new(),
        }
    }

    /// Addresses of an ENI for pods: four prefixes of sixteen, or single addresses.
    fn blocks(&self, n: u8) -> BTreeSet<IpNet> {
        let (step, length) = if self.layout == Rules::Prefixes { (16, 28) } else { (1, 32) };
        let hosts = (FIRST_HOST..FIRST_HOST + PODS_OF_ENI).step_by(step);
        hosts.map(|at| IpNet::new_assert(address(n, at), length)).collect()
    }

    fn build(&mut self, pod: &PodDesired, measured: bool) -> Result<(PodNet, IfIndex)> {
        let net = PodNet {
            key: pod.key.clone(),
            veth: pod.veth.clone(),
            number: 0,
            address: pod.address,
            table: pod.table,
            layout: self.layout.layout(),
            host_end: routing_plan::pod::HostEnd::Routed,
            mtu: MTU,
            branch: None,
        };
        let place = if measured { "measured" } else { "parked" };
        let link = self.veth(net.veth.as_str(), mac(200, 0), place, mac(201, self.made))?;
        if self.layout == Rules::None {
            apply_all(&mut self.host, &[Action::ReplaceRoute(net.host_route(link))])?;
        } else {
            let batch = net.host_batch(link).into_iter().map(|op| op.action);
            apply_all(&mut self.host, &batch.collect::<Vec<_>>())?;
        }
        Ok((net, link))
    }

    /// Routes only: the destination selects the ENI for packets of the measured pod.
    fn without_rules(&mut self, desired: &NodeDesired, net: &PodNet) -> Result<usize> {
        let number = desired
            .enis
            .iter()
            .position(|eni| eni.table == net.table)
            .context("no ENI has the pod's table")?;
        let eni = &desired.enis[number];
        let n = u8::try_from(number + 1).context("an ENI's number")?;
        let link = self.host.link_named(&format!("eth{n}"))?.context("the ENI has no link")?;
        let gateway = eni.gateway();
        let beyond = Route {
            dst: IpNet::from(IpAddr::V4(BEYOND)),
            ..Route::default_via(TableId::MAIN, gateway, link.index)
        };
        apply_all(
            &mut self.host,
            &[
                Action::SetMtu(LinkRef::from(&link), MTU),
                Action::AddAddress(address_on(link.index, own(n), 24)),
                Action::ReplaceRoute(beyond),
            ],
        )?;
        let observed = self.host.observe(With::Nothing)?;
        Ok(observed.rules.iter().filter(|rule| rule.family == Family::V4).count())
    }

    /// The steps of an ADD inside the pod.
    fn set_up_pod(&mut self, net: &PodNet, _host_end: IfIndex, host_mac: Mac) -> Result<()> {
        let mut pod = self.measured.socket()?;
        let link = pod.link_named(&format!("far{}", self.made))?.context("the pod's end")?;
        let batch = net.pod_batch(link.index, host_mac).into_iter().map(|op| op.action);
        apply_all(&mut pod, &batch.collect::<Vec<_>>())
    }

    /// The route of the VPC router to the pod's ENI.
    fn add_return_route(&mut self, net: &PodNet) -> Result<()> {
        let n = u8::try_from((self.pods - 1) / PODS_OF_ENI + 1).context("an ENI's number")?;
        let mut router = self.beyond.socket()?;
        let observed = router.observe(With::Nothing)?;
        let by = |address: &&LinkAddr| address.address.addr() == gateway(n);
        let link = observed.addresses.iter().find(by).context("the far end of the ENI")?.dev;
        let route = Route {
            dst: IpNet::from(net.address),
            ..Route::default_via(TableId::MAIN, own(n), link)
        };
        apply_all(&mut router, &[Action::ReplaceRoute(route)])
    }

    /// Creates a veth pair, sets the near end up and returns its index.
    fn veth(&mut self, name: &str, near: Mac, place: &str, far: Mac) -> Result<IfIndex> {
        self.made += 1;
        let end = |name: &str, mac| VethEnd { name: name.to_owned(), mac, mtu: MTU };
        // The index must differ from that of the peer, or the link waits for its carrier.
        let host_index = Some(IfIndex(10_000 + u32::from(self.made)));
        let pair = VethPair {
            host: end(name, near),
            host_index,
            pod: end(&format!("far{}", self.made), far),
        };
        let to = match place {
            "beyond" => &self.beyond,
            "measured" => &self.measured,
            _ => &self.parked,
        };
        self.host.create_veth(&pair, to.as_fd())?;
        Ok(IfIndex(10_000 + u32::from(self.made)))
    }
}

/// Creates a network namespace and moves the calling thread into it.
fn namespace() -> Result<Netns> {
    unshare(CloneFlags::CLONE_NEWNET).context("create a network namespace; run as root")?;
    Ok(Netns::current()?)
}

/// Runs a closure on a new thread in that namespace.
fn run_in<T: Send>(at: &Netns, work: impl FnOnce() -> T + Send) -> Result<T> {
    let enter = || {
        nix::sched::setns(at, CloneFlags::CLONE_NEWNET).context("enter a network namespace")?;
        Ok(work())
    };
    thread::scope(|scope| {
        scope.spawn(enter).join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
    })
}

/// Plans and applies as the daemon does until the plan is empty. Returns the number of IPv4 rules. The
/// calling thread is in the node's namespace.
fn converge(host: &mut Socket, desired: &NodeDesired, marked: &mut Marks) -> Result<usize> {
    for _ in 0..6 {
        let by_address = marked.iter().map(|(address, mark)| ((*address).into(), *mark)).collect();
        let observed = Observed { marked: by_address, ..host.observe(With::Nothing)? };
        let next = plan(desired, &observed);
        if next.ops.is_empty() && next.marks == *marked {
            ensure!(next.notes.is_empty(), "{:?}", next.notes);
            return Ok(observed.rules.iter().filter(|rule| rule.family == Family::V4).count());
        }
        let actions: Vec<Action> = next.ops.into_iter().map(|op| op.action).collect();
        apply_all(host, &actions)?;
        if next.marks != *marked {
            let gone = || format!("delete table ip {}\n", sources::TABLE);
            nft(&sources::plan(&next.marks, None).unwrap_or_else(gone))?;
            *marked = next.marks;
        }
    }
    bail!("the node does not converge in six passes")
}

/// Applies all actions. The kernel must accept each of them.
fn apply_all(kernel: &mut Socket, actions: &[Action]) -> Result<()> {
    let mut ops = Vec::new();
    for action in actions {
        // This action is a write to a file. Only the node has such actions, and the thread is in its
        // namespace.
        if let Action::SetIpv6(link, conf, value) = action {
            let file = (conf.sysctl(&link.name), &*value.to_string());
            write_sysctls(&[file]).with_context(|| action.to_string())?;
        } else {
            ops.push(Op::new(Subject::Node, action.clone()));
        }
    }
    // In batches, because the socket's buffer is limited.
    for batch in ops.chunks(100) {
        let applied = kernel.run(batch)?;
        ensure!(applied.refused.is_empty(), "the kernel refused {:?}", applied.refused);
    }
    Ok(())
}

fn nft(script: &str) -> Result<()> {
    let mut nft = Command::new("nft");
    nft.args(["-f", "-"]).stdin(Stdio::piped());
    let mut child = nft.spawn().context("start nft; install nftables")?;
    child
        .stdin
        .take()
        .context("nft's input")?
        .write_all(script.as_bytes())
        .context("write to nft")?;
    let status = child.wait().context("wait for nft")?;
    ensure!(status.success(), "nft: {status}");
    Ok(())
}

fn pod(at: usize) -> PodDesired {
    let name = PodName { namespace: "bench".to_owned(), name: format!("pod-{at}") };
    let n = u8::try_from(at / PODS_OF_ENI + 1).unwrap_or(u8::MAX);
    PodDesired {
        key: PodKey::new(registry::CNI_NETWORK, format!("c{at}"), "eth0").expect("a valid pod key"),
        veth: VethName::of("eni", &name, 0),
        address: address(n, FIRST_HOST + at % PODS_OF_ENI),
        table: table(n),
        host_end: config_model::HostEndMode::Routed,
        confirmed: true,
        adopted: false,
    }
}

fn table(n: u8) -> TableId {
    TableId(u32::from(n) + 1)
}

fn address(n: u8, host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, n, u8::try_from(host).unwrap_or(u8::MAX)).into()
}

/// Primary address of an ENI.
fn own(n: u8) -> IpAddr {
    address(n, 5)
}

/// The VPC router's address in the ENI's subnet.
fn gateway(n: u8) -> IpAddr {
    address(n, 1)
}

fn mac(kind: u8, number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    Mac([0x02, 0, 0, kind, high, low])
}

fn address_on(dev: IfIndex, address: IpAddr, length: u8) -> LinkAddr {
    let address = IpNet::new_assert(address, length);
    let peer = None;
    LinkAddr { dev, address, peer, global: true, secondary: false, noprefixroute: false }
}
