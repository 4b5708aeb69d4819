//! A packet in people's words.

use crate::{Origin, Packet, Segment, State, World};
use policy_objects::{Named, Pod, Protocol, Service, ServicePort, ServiceTarget};
use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// A pod as `namespace/name`, or an address.
    pub from: &'a str,
    /// A pod as `namespace/name`, or an address; with `:port` where the protocol has ports, a number or
    /// the name that the pod's container gives it. An IPv6 address with a port is in brackets.
    pub to: &'a str,
    /// `tcp`, `udp`, `sctp`, `icmp[:type[:code]]`, or a protocol by its number.
    pub protocol: &'a str,
    /// The Service that is asked for, as `namespace/name`.
    pub service: Option<&'a str>,
}

/// Reasons why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// Neither a pod nor an address.
    #[error("{0:?} is neither a pod as namespace/name nor an address")]
    End(String),
    #[error("there is no pod {0}: name one that is in the files, or give an address")]
    NoPod(String),
    /// The end cannot send or receive packets.
    #[error("pod {0} has no address in status.podIPs, or has ended: give one that runs")]
    NoAddress(String),
    /// The address is another's now.
    #[error(
        "{address} of {pod} is that of the newer pod {owner} too: name that, or delete the one that is gone"
    )]
    OthersAddress {
        /// The pod that was named.
        pod: String,
        address: IpAddr,
        owner: String,
    },
    /// No common family.
    #[error("{from} and {to} have no address of one family")]
    NoFamily { from: String, to: String },
    /// The question needs a port.
    #[error("{} lacks a port: write it as {}:80", .0, bracketed(.0))]
    NoPort(String),
    /// A number that no port has.
    #[error("{0} is no port: 0 to 65535")]
    PortRange(String),
    /// Not one of the pod's ports.
    #[error("{pod} has no port of the name {port:?} and of {protocol}")]
    NoSuchPort {
        /// The pod, or the address.
        pod: String,
        port: String,
        protocol: &'static str,
    },
    /// ICMP has no ports.
    #[error("{0} has a port, and the protocol has none")]
    PortTooMany(String),
    #[error("{0:?} is no protocol: tcp, udp, sctp, icmp[:type[:code]], or a number")]
    Protocol(String),
    #[error("there is no Service {0} in the files")]
    NoService(String),
    /// The address belongs to a Service: a packet to it arrives at one of its pods.
    #[error(
        "{address} is the address of Service {service}: name a pod behind it, and the Service with --via-service"
    )]
    ServiceAddress { address: IpAddr, service: String },
    /// The Service has no address of this family.
    #[error("Service {0} has no address of this family, so no packet is sent to it")]
    NoServiceAddress(String),
    #[error("{pod} is none of the pods that Service {service} selects")]
    NotBehind { pod: String, service: String },
    #[error("Service {service} does not lead to port {port} of the pod, but to {ports}")]
    OtherPorts {
        service: String,
        /// The pod's port that was named.
        port: String,
        ports: String,
    },
}

/// An IPv6 address with a port is in brackets.
fn bracketed(word: &str) -> String {
    match word.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{word}]"),
        Err(_) => word.to_owned(),
    }
}

/// An end: what it is called, its addresses, and its pod.
struct End<'w> {
    word: String,
    addresses: Vec<IpAddr>,
    pod: Option<&'w Pod>,
}

/// The packet that is asked for: the first of its flow.
pub fn packet(world: &World, question: &Question<'_>) -> Result<Packet, Unclear> {
    let what = protocol(question.protocol)?;
    let from = end(world, question.from)?;
    let (to, port) = match what {
        What::Ports(_) => destination(world, question.to)?,
        What::Icmp(..) | What::Other(_) => (end_without_port(world, question.to)?, None),
    };
    let (source, destination) = addresses(&from, &to)?;
    has_it(world, &from, source)?;
    has_it(world, &to, destination)?;
    let has = |of: &&Service| of.cluster_ips.known().is_some_and(|ips| ips.contains(&destination));
    if let Some(of) = world.services().find(has) {
        return Err(Unclear::ServiceAddress { address: destination, service: word_of(of) });
    }
    let service = question.service.map(|name| service(world, name)).transpose()?;
    let segment = match what {
        What::Ports(protocol) => {
            let port = port_of(&to, port, protocol, service)?;
            Segment::Ports { protocol, source: SOURCE_PORT, destination: port }
        }
        What::Icmp(kind, code) => {
            let echo = if destination.is_ipv4() { 8 } else { 128 };
            Segment::Icmp { kind: kind.unwrap_or(echo), code }
        }
        What::Other(number) => Segment::Other(number),
    };
    let asked_for = service.map(|service| behind(service, &to, destination)).transpose()?;
    Ok(Packet {
        origin: origin(world, &from, source),
        source,
        destination,
        service: asked_for,
        segment,
        state: State::New,
    })
}

#[derive(Clone, Copy)]
enum What {
    Ports(Protocol),
    Icmp(Option<u8>, u8),
    Other(u8),
}

fn protocol(word: &str) -> Result<What, Unclear> {
    let unclear = || Unclear::Protocol(word.to_owned());
    let lower = word.to_ascii_lowercase();
    let mut parts = lower.split(':');
    let name = parts.next().unwrap_or_default();
    let mut number = || parts.next().map(|part| part.parse::<u8>().map_err(|_| unclear()));
    let what = match name {
        "tcp" => What::Ports(Protocol::Tcp),
        "udp" => What::Ports(Protocol::Udp),
        "sctp" => What::Ports(Protocol::Sctp),
        "icmp" => What::Icmp(number().transpose()?, number().transpose()?.unwrap_or(0)),
        other => match other.parse().map_err(|_| unclear())? {
            1 | 58 => What::Icmp(number().transpose()?, number().transpose()?.unwrap_or(0)),
            6 => What::Ports(Protocol::Tcp),
            17 => What::Ports(Protocol::Udp),
            132 => What::Ports(Protocol::Sctp),
            number => What::Other(number),
        },
    };
    if parts.next().is_some() { Err(unclear()) } else { Ok(what) }
}

/// An end with a port after its last colon.
fn destination<'w>(world: &'w World, word: &str) -> Result<(End<'w>, Option<String>), Unclear> {
    if let Ok(socket) = word.parse::<SocketAddr>() {
        let end = address(world, socket.ip());
        return Ok((end, Some(socket.port().to_string())));
    }
    if word.parse::<IpAddr>().is_ok() {
        return Ok((end(world, word)?, None));
    }
    match word.rsplit_once(':') {
        Some((head, port)) if !port.is_empty() => Ok((end(world, head)?, Some(port.to_owned()))),
        _ => Ok((end(world, word)?, None)),
    }
}

fn end_without_port<'w>(world: &'w World, word: &str) -> Result<End<'w>, Unclear> {
    let has_port = word.parse::<SocketAddr>().is_ok()
        || (word.parse::<IpAddr>().is_err() && word.contains(':'));
    if has_port { Err(Unclear::PortTooMany(word.to_owned())) } else { end(world, word) }
}

fn end<'w>(world: &'w World, word: &str) -> Result<End<'w>, Unclear> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Ok(address(world, ip));
    }
    let (namespace, name) = word.split_once('/').ok_or_else(|| Unclear::End(word.to_owned()))?;
    let name = Named { namespace: namespace.to_owned(), name: name.to_owned() };
    let pod = world.pod(&name).ok_or_else(|| Unclear::NoPod(word.to_owned()))?;
    let live = pod.phase == policy_objects::Phase::Live && !pod.addresses.is_empty();
    if !live {
        return Err(Unclear::NoAddress(word.to_owned()));
    }
    Ok(End { word: word.to_owned(), addresses: pod.addresses.clone(), pod: Some(pod) })
}

fn address(world: &World, ip: IpAddr) -> End<'_> {
    End { word: ip.to_string(), addresses: vec![ip], pod: world.owner(ip) }
}

/// The first pair of one family.
fn addresses(from: &End<'_>, to: &End<'_>) -> Result<(IpAddr, IpAddr), Unclear> {
    let pair = |source: &IpAddr| {
        let same = |address: &&IpAddr| address.is_ipv4() == source.is_ipv4();
        Some((*source, *to.addresses.iter().find(same)?))
    };
    from.addresses
        .iter()
        .find_map(pair)
        .ok_or_else(|| Unclear::NoFamily { from: from.word.clone(), to: to.word.clone() })
}

/// Packets are of pods by their addresses.
fn has_it(world: &World, end: &End<'_>, address: IpAddr) -> Result<(), Unclear> {
    let (Some(pod), Some(owner)) = (end.pod, world.owner(address)) else { return Ok(()) };
    if pod.host_network || named(pod) == named(owner) {
        return Ok(());
    }
    let owner = format!("{}/{}", owner.meta.namespace, owner.meta.name);
    Err(Unclear::OthersAddress { pod: end.word.clone(), address, owner })
}

/// Sender of the packet: a pod, a node, or an address outside the cluster.
fn origin(world: &World, from: &End<'_>, source: IpAddr) -> Origin {
    if let Some(pod) = from.pod {
        return Origin::Pod(named(pod));
    }
    let node = world.nodes().find(|node| node.addresses.contains(&source));
    node.map_or(Origin::Forwarded, |node| Origin::Node(node.meta.name.clone()))
}

fn port_of(
    to: &End<'_>,
    port: Option<String>,
    protocol: Protocol,
    service: Option<&Service>,
) -> Result<u16, Unclear> {
    let targets = service.map(|service| targets(service, to.pod, protocol));
    let Some(word) = port else {
        return match targets.as_deref() {
            Some([(_, port)]) => Ok(*port),
            Some(_) | None => Err(Unclear::NoPort(to.word.clone())),
        };
    };
    let named = |pod: &Pod| {
        let mine =
            |port: &&policy_objects::ContainerPort| port.name == word && port.protocol == protocol;
        pod.ports.iter().find(mine).map(|port| port.port)
    };
    if word.parse::<i64>().is_ok_and(|number| u16::try_from(number).is_err()) {
        return Err(Unclear::PortRange(word));
    }
    let number = word.parse().ok().or_else(|| to.pod.and_then(named)).ok_or_else(|| {
        Unclear::NoSuchPort {
            pod: to.word.clone(),
            port: word.clone(),
            protocol: crate::text::protocol(protocol),
        }
    })?;
    match (service, targets) {
        (Some(service), Some(targets)) if targets.iter().all(|(_, port)| *port != number) => {
            let ports = targets.iter().map(|(of, port)| format!("{port} from its {}", of.port));
            Err(Unclear::OtherPorts {
                service: word_of(service),
                port: word,
                ports: crate::text::joined(ports, ", "),
            })
        }
        _ => Ok(number),
    }
}

/// A Service's ports of a protocol, and where they lead at a pod.
fn targets<'s>(
    service: &'s Service,
    pod: Option<&Pod>,
    protocol: Protocol,
) -> Vec<(&'s ServicePort, u16)> {
    let target = |port: &'s ServicePort| {
        let number = match &port.target {
            None => port.port,
            Some(ServiceTarget::Number(number)) => *number,
            Some(ServiceTarget::Name(name)) => {
                let named = |of: &&policy_objects::ContainerPort| {
                    of.name == *name && of.protocol == protocol
                };
                pod?.ports.iter().find(named)?.port
            }
        };
        Some((port, number))
    };
    service.ports.iter().filter(|port| port.protocol == protocol).filter_map(target).collect()
}

fn service<'w>(world: &'w World, word: &str) -> Result<&'w Service, Unclear> {
    let missing = || Unclear::NoService(word.to_owned());
    let (namespace, name) = word.split_once('/').ok_or_else(missing)?;
    let name = Named { namespace: namespace.to_owned(), name: name.to_owned() };
    world.service(&name).ok_or_else(missing)
}

/// The Service's address in the same family as the pod's address, if the pod is behind it.
fn behind(service: &Service, to: &End<'_>, destination: IpAddr) -> Result<IpAddr, Unclear> {
    let selected = |pod: &Pod| {
        service.selector.known().and_then(Option::as_ref).is_none_or(|selector| {
            service.meta.namespace == pod.meta.namespace && selector.matches(&pod.meta.labels)
        })
    };
    if !to.pod.is_none_or(selected) {
        return Err(Unclear::NotBehind { pod: to.word.clone(), service: word_of(service) });
    }
    let same = |address: &&IpAddr| address.is_ipv4() == destination.is_ipv4();
    let address = service.cluster_ips.known().into_iter().flatten().find(same);
    address.copied().ok_or_else(|| Unclear::NoServiceAddress(word_of(service)))
}

fn word_of(service: &Service) -> String {
    format!("{}/{}", service.meta.namespace, service.meta.name)
}

/// A pod's name.
pub(super) fn named(pod: &Pod) -> Named {
    Named { namespace: pod.meta.namespace.clone(), name: pod.meta.name.clone() }
}

/// A port that senders take.
pub(super) const SOURCE_PORT: u16 = 40000;
