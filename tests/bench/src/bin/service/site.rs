//! A node with a client in a pod, a server in another pod, and a client outside.

use crate::cluster::FIRST_BACKEND;
use anyhow::{Context as _, Result, ensure};
use config_model::Mark;
use ipnet::Ipv4Net;
use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
};
use routing_plan::nat::{
    NatDesired, Ports, Tables,
    nftables::{self, Part},
    source_check,
};
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use tests_bench::{namespace::Namespace, world};

/// A node in namespaces. It lives as long as this value.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) node: Namespace,
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
    pub(crate) outside: Namespace,
    /// The server's node, if it is another one than the client's.
    pub(crate) other: Option<Namespace>,
    /// Listeners of the server's ports, in their order.
    pub(crate) listeners: Vec<TcpListener>,
}

/// The place of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Pod,
    Node,
    Outside,
}

impl Site {
    /// A node without programs and kube-proxy, as the daemon configures it. Its server listens at this number of ports.
    pub(crate) fn new(ports: u16) -> Result<Self> {
        let node = Namespace::new()?;
        node.add_links(PODS)?;
        node.set("net/ipv4/ip_forward", "1")?;
        let [server, client, outside] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        node.ip(&format!(
            "link set lo up\naddr add {NODE}/24 dev wire\naddr add {GATEWAY}/32 dev lo scope host\n\
             link set pod0 netns {}\nlink set pod1 netns {}\nlink set beyond netns {}\n",
            server.path(),
            client.path(),
            outside.path()
        ))?;
        for (pod, of) in [(0, &server), (1, &client)] {
            connect_pod(of, pod)?;
        }
        outside.ip(&format!(
            "link set lo up\nlink set beyond up\naddr add {OUTSIDE}/24 dev beyond\n\
             route add default via {NODE}\n"
        ))?;
        configure(&node, 0..PODS, [NODE, OUTSIDE])?;
        let listeners = listen(&server, ports)?;
        Ok(Self { node, client, server, outside, other: None, listeners })
    }

    /// Two nodes on one link. The client is a pod of the first one, and the server of the other one.
    pub(crate) fn across() -> Result<Self> {
        let [node, other] = [Namespace::new()?, Namespace::new()?];
        let [server, client, outside] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        node.add_wire()?;
        node.ip(&format!("link set beyond netns {}\n", other.path()))?;
        other.ip("link set beyond name wire\nlink set wire up\n")?;
        for (node, [own, next], pod, of) in
            [(&node, [NODE, OUTSIDE], 1, &client), (&other, [OUTSIDE, NODE], 0, &server)]
        {
            node.set("net/ipv4/ip_forward", "1")?;
            node.add_pods(pod..pod + 1)?;
            node.ip(&format!(
                "link set lo up\naddr add {own}/24 dev wire\nroute add default via {next}\n\
                 addr add {GATEWAY}/32 dev lo scope host\nlink set pod{pod} netns {}\n",
                of.path()
            ))?;
            connect_pod(of, pod)?;
            configure(node, pod..pod + 1, [own, next])?;
        }
        let listeners = listen(&server, 1)?;
        Ok(Self { node, client, server, outside, other: Some(other), listeners })
    }

    /// Makes the node one with the routing rules of this number of pods. The rules of the client and the server are the
    /// last ones.
    pub(crate) fn add_rules(&self, pods: u32) -> Result<()> {
        self.node.ip(&rules("del", 0..PODS)?)?;
        self.node.ip(&rules("add", (0..pods).rev())?)
    }

    /// Adds the rules by which the daemon checks the source addresses of pods. The programs have a check of their own.
    pub(crate) fn check_sources(&self) -> Result<()> {
        for node in [&self.node].into_iter().chain(&self.other) {
            node.run(|| load(&source_check::plan(Some(VETH_PREFIX), None).unwrap_or_default()))?;
        }
        Ok(())
    }

    /// The namespace of a client.
    pub(crate) fn of(&self, place: Place) -> &Namespace {
        match place {
            Place::Pod => &self.client,
            Place::Node => &self.node,
            Place::Outside => &self.outside,
        }
    }

    /// Answers one request of each connection.
    pub(crate) fn answer(&self, is_done: &AtomicBool) -> Result<()> {
        let arrivals = self.arrivals()?;
        let mut bytes = [0; 64];
        while !is_done.load(Ordering::Relaxed) {
            let Some(listener) = arrivals.next(LOOK)? else { continue };
            let (mut server, _) = listener.accept().context("accept a connection")?;
            // A client that looks whether the server is reached sends no request.
            if server.read_exact(&mut bytes).is_ok() {
                server.write_all(&bytes).context("send an answer")?;
            }
        }
        Ok(())
    }

    /// Opens a connection, and returns the number of the listener that it reaches. The calling thread is in the client.
    pub(crate) fn reach(&self, arrivals: &Arrivals<'_>, to: SocketAddr) -> Result<usize> {
        let mut client = TcpStream::connect_timeout(&to, PATIENCE).context("connect")?;
        let number = CONNECTIONS.fetch_add(1, Ordering::Relaxed).to_ne_bytes();
        client.write_all(&number).context("send a number")?;
        loop {
            let at = arrivals.next(PATIENCE)?.context("a connection does not arrive")?;
            let (mut server, _) = at.accept().context("accept a connection")?;
            server.set_read_timeout(Some(PATIENCE)).context("set a time-out")?;
            // Earlier connections may wait to be accepted. The kernel may have given the client another port.
            let mut found = [0; 8];
            if server.read_exact(&mut found).is_ok() && found == number {
                let number = self.listeners.iter().position(|of| std::ptr::eq(of, at));
                return number.context("another listener");
            }
        }
    }

    /// Waits for connections at all ports of the server.
    pub(crate) fn arrivals(&self) -> Result<Arrivals<'_>> {
        let epoll = Epoll::new(EpollCreateFlags::empty()).context("create an epoll instance")?;
        for (number, listener) in (0..).zip(&self.listeners) {
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            epoll.add(listener, event).context("wait for connections")?;
        }
        Ok(Arrivals { epoll, listeners: &self.listeners })
    }
}

/// Gives a pod its address and routes.
fn connect_pod(of: &Namespace, pod: u32) -> Result<()> {
    of.ip(&format!(
        "link set lo up\nlink set pod{pod} up\naddr add {}/32 dev pod{pod}\n\
         route add {GATEWAY} dev pod{pod}\nroute add default via {GATEWAY}\n",
        world::pod_address(pod)
    ))
}

/// Listens at this number of ports of the server.
fn listen(server: &Namespace, ports: u16) -> Result<Vec<TcpListener>> {
    server.run(|| {
        let ports = (0..ports).map(|port| FIRST_BACKEND + port);
        let listen = |port| TcpListener::bind((world::pod_address(0), port));
        ports.map(listen).collect::<Result<_, _>>().context("listen in the pod")
    })
}

/// Connections that the server has not accepted yet.
pub(crate) struct Arrivals<'a> {
    epoll: Epoll,
    listeners: &'a [TcpListener],
}

impl<'a> Arrivals<'a> {
    /// The listener of a connection. `None` if there is none for this time.
    pub(crate) fn next(&self, time: Duration) -> Result<Option<&'a TcpListener>> {
        let mut events = [EpollEvent::empty()];
        let time = u16::try_from(time.as_millis()).unwrap_or(u16::MAX);
        match self.epoll.wait(&mut events, time) {
            Ok(0) | Err(Errno::EINTR) => Ok(None),
            Ok(_) => Ok(self.listeners.get(usize::try_from(events[0].data())?)),
            Err(error) => Err(error).context("wait for a connection"),
        }
    }
}

/// Opens a connection, sends a request, and closes it after the answer.
pub(crate) fn request(to: SocketAddr) -> Result<()> {
    let mut client = TcpStream::connect_timeout(&to, PATIENCE).context("connect")?;
    exchange(&mut client)
}

/// A request and its answer.
pub(crate) fn exchange(client: &mut TcpStream) -> Result<()> {
    let mut bytes = [0; 64];
    client.write_all(&bytes).context("send a request")?;
    client.read_exact(&mut bytes).context("an answer was lost")
}

/// Adds the rules that the daemon adds, with nftables, to a node whose pods have addresses of a secondary ENI.
fn configure(node: &Namespace, pods: Range<u32>, [own, gateway]: [Ipv4Addr; 2]) -> Result<()> {
    node.ip(&format!(
        "rule add pref 1024 fwmark {MARK} lookup main\nroute add default via {gateway} table {TABLE}\n{}",
        rules("add", pods)?
    ))?;
    let desired = NatDesired {
        primary_link: "wire".to_owned(),
        primary_address: own,
        vpc: BTreeSet::from([Ipv4Net::new(Ipv4Addr::new(10, 0, 0, 0), 8)?]),
        excluded: BTreeSet::new(),
        snat: Some(Ports::Random),
        node_ports: true,
        mark: MARK,
        veth_prefix: VETH_PREFIX.to_owned(),
    };
    let nat = nftables::plan(Some((&desired, Part::Whole)), &Tables::default());
    node.run(|| load(&nat.unwrap_or_default()))
}

/// Commands of `ip` that add or delete the routing rules of pods.
fn rules(verb: &str, pods: impl IntoIterator<Item = u32>) -> Result<String> {
    let mut batch = String::new();
    for pod in pods {
        let address = world::pod_address(pod);
        writeln!(batch, "rule {verb} pref 512 to {address} lookup main")?;
        writeln!(batch, "rule {verb} pref 1536 from {address} lookup {TABLE}")?;
    }
    Ok(batch)
}

/// Adds rules of nftables to the present namespace.
fn load(rules: &str) -> Result<()> {
    let mut nft = Command::new("nft");
    let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn().context("start nft")?;
    nft.stdin.take().context("no pipe")?.write_all(rules.as_bytes())?;
    ensure!(nft.wait()?.success(), "nft refuses the rules of a node");
    Ok(())
}

/// Counts the connections of [`Site::reach`].
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
/// The server and the client.
pub(crate) const PODS: u32 = 2;
/// The node's address for clients outside.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The table of a secondary ENI.
const TABLE: u32 = 2;
/// Of the host links of pods.
const VETH_PREFIX: &str = "eni";
/// The mark of packets that leave by the primary ENI.
const MARK: Mark = Mark { value: 0x80, mask: 0x80 };
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// After this time a packet is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
pub(crate) const LOOK: Duration = Duration::from_millis(100);
