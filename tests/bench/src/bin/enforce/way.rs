//! The way between a pod and a host beyond its node, with sockets at both ends.

use crate::world;
use anyhow::{Context as _, Result};
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use std::{
    fmt::Write as _,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::Duration,
};
use tests_bench::namespace::Namespace;

/// A pod, its node, and a host beyond it.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) beyond: Namespace,
    pub(crate) pod: Namespace,
    pub(crate) client: UdpSocket,
    pub(crate) server: UdpSocket,
    listener: TcpListener,
    _node: Namespace,
}

impl Way {
    /// A node of its own, with the links of this number of pods.
    pub(crate) fn new(pods: u32) -> Result<Self> {
        let node = Namespace::new()?;
        node.add_links(pods)?;
        Self::over(node)
    }

    /// Moves the far ends of the first pod's link and of the link to other nodes.
    pub(crate) fn over(node: Namespace) -> Result<Self> {
        let (pod, beyond) = (Namespace::new()?, Namespace::new()?);
        node.set("net/ipv4/ip_forward", "1")?;
        node.ip(&format!(
            "link set beyond netns {}\nlink set pod0 netns {}\naddr add {GATEWAY}/32 dev wire\n\
             route add {PEER} dev wire\nroute add {DENIED} dev wire\n",
            beyond.path(),
            pod.path()
        ))?;
        for (of, link, addresses) in
            [(&pod, "pod0", vec![world::pod_address(0)]), (&beyond, "beyond", vec![PEER, DENIED])]
        {
            let mut batch = format!("link set lo up\nlink set {link} up\n");
            for address in addresses {
                writeln!(batch, "addr add {address}/32 dev {link}")?;
            }
            writeln!(batch, "route add {GATEWAY} dev {link}\nroute add default via {GATEWAY}")?;
            of.ip(&batch)?;
        }
        let client = beyond.run(|| socket(PEER))?;
        let server = pod.run(|| socket(world::pod_address(0)))?;
        let listener = pod.run(|| {
            TcpListener::bind((world::pod_address(0), PORT)).context("listen in the pod")
        })?;
        Ok(Self { beyond, pod, client, server, listener, _node: node })
    }

    /// A datagram to the pod and one back.
    pub(crate) fn round_trip(&self) -> Result<()> {
        self.client.send_to(b"ferrule", POD).context("send to the pod")?;
        self.client.recv(&mut [0; 16]).map(drop).context("a datagram was lost")
    }

    /// In the pod: sends each datagram back, until an empty one.
    pub(crate) fn echo(&self) -> Result<()> {
        let mut bytes = [0; 16];
        loop {
            let (length, from) = match self.server.recv_from(&mut bytes) {
                Ok((0, _)) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                received => received.context("receive in the pod")?,
            };
            self.server.send_to(&bytes[..length], from).context("send from the pod")?;
        }
    }

    pub(crate) fn end_echo(&self) -> Result<()> {
        self.client.send_to(&[], POD).map(drop).context("send to the pod")
    }

    /// Opens a connection to the pod, sends a request, and closes it after the answer.
    pub(crate) fn request(&self) -> Result<()> {
        let mut bytes = [0; 64];
        let mut client = TcpStream::connect_timeout(&POD, PATIENCE).context("connect")?;
        client.write_all(&bytes).context("send a request")?;
        client.read_exact(&mut bytes).context("an answer was lost")
    }

    /// In the pod: answers one request of each connection, until a connection has none.
    pub(crate) fn answer(&self) -> Result<()> {
        let mut bytes = [0; 64];
        loop {
            let (mut server, _) = self.listener.accept().context("accept a connection")?;
            if server.read_exact(&mut bytes).is_err() {
                return Ok(());
            }
            server.write_all(&bytes).context("send an answer")?;
        }
    }

    pub(crate) fn end_answer(&self) -> Result<()> {
        TcpStream::connect_timeout(&POD, PATIENCE).map(drop).context("connect to the pod")
    }

    /// Opens a connection to the pod. The calling thread is in the namespace beyond the node.
    pub(crate) fn connect(&self) -> Result<Connection> {
        let client = TcpStream::connect_timeout(&POD, PATIENCE).context("connect to the pod")?;
        let (server, _) = self.listener.accept().context("accept a connection")?;
        for end in [&client, &server] {
            end.set_nodelay(true).context("disable the delay")?;
            end.set_read_timeout(Some(PATIENCE)).context("set a time-out")?;
        }
        Ok(Connection { client, server })
    }
}

/// Both ends of a connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

impl Connection {
    /// A request and its answer.
    pub(crate) fn request(&mut self) -> Result<()> {
        let mut bytes = [0; 64];
        self.client.write_all(&bytes).context("send a request")?;
        self.server.read_exact(&mut bytes).context("a request was lost")?;
        self.server.write_all(&bytes).context("send an answer")?;
        self.client.read_exact(&mut bytes).context("an answer was lost")
    }
}

/// A socket that holds many datagrams.
pub(crate) fn socket(address: Ipv4Addr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, PORT)).context("open a socket")?;
    socket.set_read_timeout(Some(PATIENCE)).context("set a time-out")?;
    setsockopt(&socket, RcvBufForce, &(64 << 20)).context("set the buffer of a socket")?;
    Ok(socket)
}

pub(crate) const PORT: u16 = 7007;
/// The first pod.
pub(crate) const POD: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1)), PORT);
/// The first peer, which policies allow.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// An address that no policy allows.
pub(crate) const DENIED: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// After this time a packet is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
