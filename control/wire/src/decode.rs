//! Decoding of messages into the model that a node holds.
//!
//! A newer controller may send a rule with parts that are unknown here. Such a rule fails closed, like a rule that the
//! controller does not understand: Allow matches nothing, everything else denies all of its direction. A part that
//! has no place in the model is a [`DecodeError`], which rejects the generation.

use crate::{
    Features,
    model::{
        AddressGroup, Isolation, Member, NamespacePeers, PeerSet, Peers, Pod, Policy, Position,
        Rule,
    },
    proto,
};
use policy_core::{
    Action, Direction, Family, Log, NameMatch, PolicyKey, Priority, Stage, Standing, Traffic,
    Transport,
    index::{GroupId, Holds, MemberKey},
};
use policy_objects::{
    Block, ContainerPort, DomainName, FqdnPattern, Kind, PortRange, Protocol, TargetPort,
};
use std::net::IpAddr;
use thiserror::Error;

/// Description of a message that violates the protocol.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct DecodeError(pub String);

pub(crate) type Read<T> = Result<T, DecodeError>;

fn unreadable<T>(what: impl Into<String>) -> Read<T> {
    Err(DecodeError(what.into()))
}

fn there<T>(value: Option<T>, what: &str) -> Read<T> {
    value.ok_or_else(|| DecodeError(format!("{what} is missing")))
}

pub(crate) fn group(id: &[u8]) -> Read<GroupId> {
    let id = id.try_into();
    id.map(GroupId).map_err(|_| DecodeError("the id of a group is not 16 bytes long".to_owned()))
}

fn groups(ids: &[Vec<u8>]) -> Read<Vec<GroupId>> {
    ids.iter().map(|id| group(id)).collect()
}

pub(crate) fn policy(sent: &proto::Policy) -> Read<Policy> {
    let of =
        |what: DecodeError| DecodeError(format!("policy {} ({}): {what}", sent.name, sent.uid));
    if sent.uid.is_empty() {
        return unreadable(format!("policy {} has no UID", sent.name));
    }
    let kind = Kind::ALL.into_iter().find(|kind| kind.text() == sent.kind);
    let kind =
        kind.ok_or_else(|| of(DecodeError(format!("kind {} is not known here", sent.kind))))?;
    let isolation = |isolation: &proto::Isolation| -> Read<Isolation> {
        Ok(Isolation {
            applied: groups(&isolation.applied)?,
            doubt: isolation.doubt.clone(),
            ingress: isolation.ingress,
            egress: isolation.egress,
        })
    };
    Ok(Policy {
        uid: sent.uid.clone(),
        key: PolicyKey { kind, namespace: sent.namespace.clone(), name: sent.name.clone() },
        generation: sent.generation,
        place: place(&there(sent.place, "its place").map_err(of)?).map_err(of)?,
        isolation: sent.isolation.as_ref().map(isolation).transpose().map_err(of)?,
        rules: sent.rules.iter().map(rule).collect::<Read<_>>().map_err(of)?,
    })
}

fn place(sent: &proto::Place) -> Read<Position> {
    let stage = match sent.stage() {
        proto::Stage::Before => Stage::Before,
        proto::Stage::NetworkPolicies => Stage::NetworkPolicies,
        proto::Stage::Baseline => Stage::Baseline,
        proto::Stage::Unspecified => {
            return unreadable(format!("stage {} is not known here", sent.stage));
        }
    };
    let family = match sent.family() {
        proto::Family::Cluster => Family::Cluster,
        proto::Family::Antrea => Family::Antrea,
        proto::Family::NetworkPolicy => Family::NetworkPolicy,
        proto::Family::Unspecified => {
            return unreadable(format!("family {} is not known here", sent.family));
        }
    };
    let Ok(number) = u8::try_from(sent.number) else {
        return unreadable(format!("tier number {} is above 255", sent.number));
    };
    Ok(Position { stage, number, family, priority: Priority::new(sent.priority) })
}

fn rule(sent: &proto::Rule) -> Read<Rule> {
    let direction = match sent.direction() {
        proto::Direction::Ingress => Direction::Ingress,
        proto::Direction::Egress => Direction::Egress,
        proto::Direction::Unspecified => {
            return unreadable(format!("direction {} is not known here", sent.direction));
        }
    };
    let mut rule = Rule {
        direction,
        index: sent.index as usize,
        name: sent.name.clone(),
        action: Action::Drop,
        applied: groups(&sent.applied)?,
        doubt: sent.doubt.clone(),
        peers: Peers::Any,
        traffic: Traffic::Any,
        log: sent.log.clone().map(|label| Log { label }),
        standing: Standing::Understood,
        names: sent.names.as_deref().map(group).transpose()?,
        requires: sent.requires.clone(),
    };
    let action = match sent.action() {
        proto::Action::Allow => Action::Allow,
        proto::Action::Drop => Action::Drop,
        proto::Action::Reject => Action::Reject,
        proto::Action::Pass => Action::Pass,
        proto::Action::Unspecified => {
            let why = format!("action {} is not known here", sent.action);
            rule.standing = Standing::DeniesAll { why };
            return Ok(rule);
        }
    };
    if let Some(feature) = rule.lacks(&Features::supported()) {
        return Ok(Rule { action, ..rule }.failed_closed(feature));
    }
    match (rest(sent), action) {
        (Ok((peers, traffic, standing)), _) => {
            (rule.action, rule.peers, rule.traffic, rule.standing) =
                (action, peers, traffic, standing);
        }
        (Err(DecodeError(why)), Action::Allow) => {
            (rule.action, rule.standing) = (Action::Allow, Standing::MatchesNothing { why });
        }
        (Err(DecodeError(why)), Action::Drop | Action::Reject | Action::Pass) => {
            rule.standing = Standing::DeniesAll { why };
        }
    }
    Ok(rule)
}

fn rest(sent: &proto::Rule) -> Read<(Peers, Traffic, Standing)> {
    let peers = sent.peers.as_ref().map_or(Ok(Peers::Any), |sent| peers(sent).map(Peers::Of));
    let traffic = sent.traffic.as_ref().map_or(Ok(Traffic::Any), |sent| {
        sent.transports.iter().map(transport).collect::<Read<_>>().map(Traffic::Of)
    });
    use proto::standing::Of;
    let standing = match sent.standing.as_ref().and_then(|standing| standing.of.clone()) {
        None => Standing::Understood,
        Some(Of::MatchesNothing(why)) => Standing::MatchesNothing { why },
        Some(Of::DeniesAll(why)) => Standing::DeniesAll { why },
    };
    Ok((peers?, traffic?, standing))
}

fn peers(sent: &proto::Peers) -> Read<PeerSet> {
    let name = |name: &proto::Name| {
        use proto::name::Of;
        Ok(match there(name.of.as_ref(), "what kind of name a peer is")? {
            Of::Exact(name) => NameMatch::Domain(DomainName::Exact(name.clone())),
            Of::Below(name) => NameMatch::Domain(DomainName::Below(name.clone())),
            Of::Pattern(name) => NameMatch::Pattern(FqdnPattern(name.clone())),
        })
    };
    let alike = |alike: &proto::Alike| {
        Ok(NamespacePeers { applied: groups(&alike.applied)?, address: group(&alike.address)? })
    };
    Ok(PeerSet {
        groups: groups(&sent.groups)?,
        blocks: sent.blocks.iter().map(block).collect::<Read<_>>()?,
        names: sent.names.iter().map(name).collect::<Read<_>>()?,
        services: groups(&sent.services)?,
        alike: sent.alike.iter().map(alike).collect::<Read<_>>()?,
    })
}

pub(crate) fn port_number(number: u32) -> Read<u16> {
    u16::try_from(number).map_err(|_| DecodeError(format!("port {number} is above 65535")))
}

fn range(sent: &proto::Range) -> Read<PortRange> {
    let (first, last) = (port_number(sent.first)?, port_number(sent.last)?);
    if first > last {
        return unreadable(format!("ports {first} to {last} are upside down"));
    }
    Ok(PortRange { first, last })
}

fn protocol(sent: i32) -> Read<Protocol> {
    match proto::Protocol::try_from(sent) {
        Ok(proto::Protocol::Tcp) => Ok(Protocol::Tcp),
        Ok(proto::Protocol::Udp) => Ok(Protocol::Udp),
        Ok(proto::Protocol::Sctp) => Ok(Protocol::Sctp),
        Ok(proto::Protocol::Unspecified) | Err(_) => {
            unreadable(format!("protocol {sent} is not known here"))
        }
    }
}

fn transport(sent: &proto::Transport) -> Read<Transport> {
    use proto::{ports::Port, transport::Of};
    let byte = |number: Option<u32>| {
        let byte = number.map(u8::try_from).transpose();
        byte.map_err(|_| DecodeError("an ICMP type or code is above 255".to_owned()))
    };
    Ok(match there(sent.of.as_ref(), "what of a packet a rule matches")? {
        Of::Ports(ports) => Transport::Ports {
            protocol: protocol(ports.protocol)?,
            port: match &ports.port {
                None => None,
                Some(Port::Numbers(numbers)) => Some(TargetPort::Numbers(range(numbers)?)),
                Some(Port::Name(name)) => Some(TargetPort::Named(name.clone())),
            },
            source: ports.source.as_ref().map(range).transpose()?,
        },
        Of::Named(name) => Transport::Named(name.clone()),
        Of::Icmp(icmp) => Transport::Icmp { kind: byte(icmp.kind)?, code: byte(icmp.code)? },
    })
}

pub(crate) fn address(sent: &[u8]) -> Read<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(sent) {
        return Ok(v4.into());
    }
    let v6 = <[u8; 16]>::try_from(sent);
    v6.map(Into::into).map_err(|_| DecodeError("an address is not 4 or 16 bytes long".to_owned()))
}

pub(crate) fn addresses(sent: &[Vec<u8>]) -> Read<Vec<IpAddr>> {
    sent.iter().map(|sent| address(sent)).collect()
}

pub(crate) fn cidr(sent: &proto::Cidr) -> Read<ipnet::IpNet> {
    let address = address(&sent.address)?;
    let length = u8::try_from(sent.length).ok();
    let net = length.and_then(|length| ipnet::IpNet::new(address, length).ok());
    net.ok_or_else(|| DecodeError(format!("{address}/{} is no range", sent.length)))
}

fn block(sent: &proto::Block) -> Read<Block> {
    let range = cidr(&there(sent.cidr.clone(), "the range of a block")?)?;
    Ok(Block { cidr: range, except: sent.except.iter().map(cidr).collect::<Read<_>>()? })
}

fn ports(sent: &[proto::NamedPort]) -> Read<Vec<ContainerPort>> {
    let port = |port: &proto::NamedPort| {
        let (name, number) = (port.name.clone(), port_number(port.port)?);
        Ok(ContainerPort { name, protocol: protocol(port.protocol)?, port: number })
    };
    sent.iter().map(port).collect()
}

pub(crate) fn pod(sent: &proto::Pod) -> Read<Pod> {
    if sent.uid.is_empty() {
        return unreadable(format!("pod {}/{} has no UID", sent.namespace, sent.name));
    }
    Ok(Pod {
        uid: sent.uid.clone(),
        namespace: sent.namespace.clone(),
        name: sent.name.clone(),
        addresses: addresses(&sent.addresses)?,
        ports: ports(&sent.ports)?,
        runtime_uid: sent.runtime_uid.clone(),
    })
}

pub(crate) fn key(sent: &proto::MemberKey) -> MemberKey {
    let proto::MemberKey { namespace, name, uid } = sent.clone();
    MemberKey { namespace, name, uid }
}

pub(crate) fn member(sent: &proto::Member) -> Read<(MemberKey, Member)> {
    let key = key(&there(sent.key.clone(), "which member of a group")?);
    Ok((key, Member { addresses: addresses(&sent.addresses)?, ports: ports(&sent.ports)? }))
}

pub(crate) fn holds(sent: &proto::Holds) -> Read<Holds> {
    Ok(Holds {
        blocks: sent.blocks.iter().map(block).collect::<Read<_>>()?,
        vips: addresses(&sent.vips)?,
        unusable: sent.unusable.clone(),
    })
}

pub(crate) fn address_group(sent: &proto::AddressGroup) -> Read<(GroupId, AddressGroup)> {
    let holds = holds(&there(sent.holds.clone(), "what a group holds")?)?;
    let members = sent.members.iter().map(member).collect::<Read<_>>()?;
    Ok((group(&sent.id)?, AddressGroup { members, holds: holds.into() }))
}
