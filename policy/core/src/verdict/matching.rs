//! Matches rules with packets.

use super::{PeerMiss, WhyNot, end::End};
use crate::{
    Action, NameMatch, Peer, Peers, Pods, Policy, Rule, Segment, Standing, Traffic, Transport, text,
};
use policy_objects::{Block, Named, PortRange, Protocol, TargetPort};
use std::net::IpAddr;

pub(super) enum Matched {
    Rule,
    /// The rule is not understood, and denies all.
    DeniesAll {
        why: String,
    },
}

pub(super) fn matches(end: &End<'_>, policy: &Policy, rule: &Rule) -> Result<Matched, WhyNot> {
    if !end.scene.world.is_subject(end.pod, policy, &rule.subject) {
        return Err(WhyNot::Subject);
    }
    match &rule.standing {
        Standing::Understood => {}
        Standing::MatchesNothing { why } => {
            return Err(WhyNot::NotUnderstood { cause: why.clone() });
        }
        Standing::DeniesAll { why } => return Ok(Matched::DeniesAll { why: why.clone() }),
    }
    let world = end.scene.world;
    match (rule.action, world.subject_doubt(&rule.subject), world.peer_doubt(&rule.peers)) {
        (Action::Allow, Some(cause), _) | (Action::Allow, None, Some(cause)) => {
            return Err(WhyNot::NotUnderstood { cause });
        }
        (Action::Pass, Some(why), _) | (_, _, Some(why)) => return Ok(Matched::DeniesAll { why }),
        (Action::Allow | Action::Pass, None, None) | (Action::Drop | Action::Reject, _, None) => {}
    }
    is_peer(end, &rule.peers)?;
    is_traffic(end, &rule.traffic)?;
    Ok(Matched::Rule)
}

fn is_peer(end: &End<'_>, peers: &Peers) -> Result<(), WhyNot> {
    let Peers::Of(peers) = peers else { return Ok(()) };
    let mut misses = Vec::new();
    for peer in peers {
        match is_one(end, peer) {
            Ok(()) => return Ok(()),
            Err(why) if end.scene.explains => {
                misses.push(PeerMiss { peer: peer.to_string(), why });
            }
            Err(_) => {}
        }
    }
    Err(WhyNot::Peer { peers: misses })
}

fn is_one(end: &End<'_>, peer: &Peer) -> Result<(), String> {
    let (world, other) = (end.scene.world, end.other());
    match peer {
        Peer::Pods(Pods::Group(name)) => is_member(end, name),
        Peer::Pods(pods) => match world.owner(other) {
            None => Err(format!("{other} is no pod's address")),
            Some(pod) if world.is_meant(pod, pods, end.pod) => Ok(()),
            Some(pod) => Err(format!("{other} is pod {}/{}", pod.meta.namespace, pod.meta.name)),
        },
        Peer::Block(block) => is_within(other, block),
        Peer::Nodes(selector) => {
            let chosen = |node: &&policy_objects::Node| selector.matches(&node.meta.labels);
            let mut nodes = world.nodes().filter(chosen);
            let has = |address: &IpAddr| address.to_canonical() == other;
            let found = nodes.any(|node| node.addresses.iter().any(has));
            found.then_some(()).ok_or_else(|| format!("{other} is no such node's address"))
        }
        Peer::Name(wanted) => {
            let found = world.names(other).any(|name| is_named(name, wanted));
            found.then_some(()).ok_or_else(|| format!("no record resolves to {other}"))
        }
        Peer::Service(name) => is_service(end, name),
    }
}

fn is_member(end: &End<'_>, name: &Named) -> Result<(), String> {
    let (world, other) = (end.scene.world, end.other());
    let members = world.members(name)?;
    let pod = world.owner(other).is_some_and(|pod| world.is_member(pod, name));
    let block = || members.blocks.iter().any(|block| is_within(other, block).is_ok());
    let mut nodes = members.nodes.iter().cloned().map(Peer::Nodes);
    match pod || block() || nodes.any(|nodes| is_one(end, &nodes).is_ok()) {
        true => Ok(()),
        false => Err(format!("{other} is not in it")),
    }
}

fn is_within(address: IpAddr, block: &Block) -> Result<(), String> {
    if !block.cidr.contains(&address) {
        return Err(format!("{address} is not in it"));
    }
    match block.except.iter().find(|hole| hole.contains(&address)) {
        Some(hole) => Err(format!("{address} is in {hole}, which is excepted")),
        None => Ok(()),
    }
}

fn is_named(name: &str, wanted: &NameMatch) -> bool {
    match wanted {
        NameMatch::Domain(domain) => domain.matches(name),
        NameMatch::Pattern(pattern) => pattern.matches(name),
    }
}

/// Succeeds if the packet was sent to an address of the Service; addresses of its pods do not count.
fn is_service(end: &End<'_>, name: &Named) -> Result<(), String> {
    let Some(service) = end.scene.world.service(name) else {
        return Err("it does not exist".to_owned());
    };
    match end.scene.packet.service {
        None => Err("no Service was asked for".to_owned()),
        Some(asked) => {
            let has = |address: &IpAddr| address.to_canonical() == asked;
            let found = service.cluster_ips.known().into_iter().flatten().any(has);
            found
                .then_some(())
                .ok_or_else(|| format!("{asked} was asked for, which is not its own"))
        }
    }
}

fn is_traffic(end: &End<'_>, traffic: &Traffic) -> Result<(), WhyNot> {
    let Traffic::Of(transports) = traffic else { return Ok(()) };
    let segment = end.scene.packet.segment;
    if transports.iter().any(|transport| is_transport(end, transport, segment)) {
        return Ok(());
    }
    let similar = transports.iter().filter(|transport| is_of_protocol(end, transport, segment));
    let wanted: Vec<String> = similar.map(|transport| wanted(end, transport)).collect();
    match wanted.is_empty() {
        true => Err(WhyNot::Protocol {
            wanted: transports.iter().map(|transport| self::wanted(end, transport)).collect(),
        }),
        false => Err(WhyNot::Port { wanted }),
    }
}

fn is_transport(end: &End<'_>, transport: &Transport, segment: Segment) -> bool {
    match (transport, segment) {
        (
            Transport::Ports { protocol, port, source },
            Segment::Ports { protocol: theirs, source: from, destination: to },
        ) => {
            *protocol == theirs
                && source.is_none_or(|range| is_in(from, range))
                && port.as_ref().is_none_or(|port| match port {
                    TargetPort::Numbers(range) => is_in(to, *range),
                    TargetPort::Named(name) => {
                        port_of(end, name, Some(*protocol)) == Some((*protocol, to))
                    }
                })
        }
        (Transport::Named(name), Segment::Ports { protocol, destination, .. }) => {
            port_of(end, name, None) == Some((protocol, destination))
        }
        (Transport::Icmp { kind, code }, Segment::Icmp { kind: theirs, code: of }) => {
            kind.is_none_or(|kind| kind == theirs) && code.is_none_or(|code| code == of)
        }
        (Transport::Ports { .. } | Transport::Named(_), Segment::Icmp { .. })
        | (Transport::Icmp { .. }, Segment::Ports { .. })
        | (_, Segment::Other(_)) => false,
    }
}

fn is_of_protocol(end: &End<'_>, transport: &Transport, segment: Segment) -> bool {
    match (transport, segment) {
        (Transport::Ports { protocol, .. }, Segment::Ports { protocol: theirs, .. }) => {
            *protocol == theirs
        }
        (Transport::Named(name), Segment::Ports { protocol, .. }) => {
            port_of(end, name, None).is_none_or(|(theirs, _)| theirs == protocol)
        }
        (Transport::Icmp { .. }, Segment::Icmp { .. }) => true,
        (Transport::Ports { .. } | Transport::Named(_), Segment::Icmp { .. })
        | (Transport::Icmp { .. }, Segment::Ports { .. })
        | (_, Segment::Other(_)) => false,
    }
}

fn is_in(port: u16, range: PortRange) -> bool {
    (range.first..=range.last).contains(&port)
}

/// The destination pod's port of a name: the first that has it, and the protocol if one is requested.
/// `None` if the end is not a pod.
fn port_of(end: &End<'_>, name: &str, protocol: Option<Protocol>) -> Option<(Protocol, u16)> {
    let ports = end.scene.receiver?.ports.iter();
    let mut named = ports.filter(|port| port.name == name);
    let found = named.find(|port| protocol.is_none_or(|protocol| port.protocol == protocol))?;
    Some((found.protocol, found.port))
}

fn wanted(end: &End<'_>, transport: &Transport) -> String {
    let (name, asked) = match transport {
        Transport::Ports { port: Some(TargetPort::Named(name)), protocol, .. } => {
            (name, Some(*protocol))
        }
        Transport::Named(name) => (name, None),
        Transport::Ports { .. } | Transport::Icmp { .. } => return transport.to_string(),
    };
    match (port_of(end, name, asked), end.scene.receiver) {
        (Some((protocol, port)), _) => {
            format!("{transport}, here {} {port}", text::protocol(protocol))
        }
        (None, Some(pod)) => {
            format!("{transport}, which pod {}/{} has not", pod.meta.namespace, pod.meta.name)
        }
        (None, None) => format!("{transport}, which only pods have"),
    }
}
