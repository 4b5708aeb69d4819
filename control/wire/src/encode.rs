//! Encoding of the model into messages. Each object has one encoding.

use crate::{
    model::{
        AddressGroup, AppliedGroup, Isolation, Member, NamespacePeers, PeerSet, Peers, Pod, Policy,
        Position, Rule,
    },
    proto,
};
use policy_core::{
    Action, Direction, Family, Log, NameMatch, Stage, Standing, Traffic, Transport,
    index::{GroupId, Holds, MemberKey},
};
use policy_objects::{Block, ContainerPort, DomainName, PortRange, Protocol, TargetPort};
use proto::change;
use std::net::IpAddr;

impl From<change::Of> for proto::Change {
    fn from(of: change::Of) -> Self {
        Self { of: Some(of) }
    }
}

impl From<&Policy> for proto::Change {
    fn from(policy: &Policy) -> Self {
        change::Of::Policy(proto::Policy {
            uid: policy.uid.clone(),
            kind: policy.key.kind.text().to_owned(),
            namespace: policy.key.namespace.clone(),
            name: policy.key.name.clone(),
            generation: policy.generation,
            place: Some(place(policy.place)),
            isolation: policy.isolation.as_ref().map(isolation),
            rules: policy.rules.iter().map(rule).collect(),
        })
        .into()
    }
}

impl From<&Pod> for proto::Change {
    fn from(pod: &Pod) -> Self {
        change::Of::Pod(proto::Pod {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            addresses: pod.addresses.iter().map(address).collect(),
            ports: pod.ports.iter().map(named_port).collect(),
            runtime_uid: pod.runtime_uid.clone(),
        })
        .into()
    }
}

/// An address group, whole.
pub fn address_group(id: GroupId, group: &AddressGroup) -> proto::Change {
    let members = group.members.iter().map(|(key, its)| member(key, its)).collect();
    let holds = holds(&group.holds);
    let group = proto::AddressGroup { id: id.0.to_vec(), members, holds: Some(holds) };
    change::Of::AddressGroup(group).into()
}

/// An applied-to group, whole, as far as a node has it.
pub fn applied_group(id: GroupId, group: &AppliedGroup) -> proto::Change {
    let members = group.iter().cloned().collect();
    change::Of::AppliedGroup(proto::AppliedGroup { id: id.0.to_vec(), members }).into()
}

/// A member of an address group.
pub fn member(key: &MemberKey, member: &Member) -> proto::Member {
    proto::Member {
        key: Some(member_key(key)),
        addresses: member.addresses.iter().map(address).collect(),
        ports: member.ports.iter().map(named_port).collect(),
    }
}

/// Encodes the key of a member.
pub fn member_key(key: &MemberKey) -> proto::MemberKey {
    let MemberKey { namespace, name, uid } = key.clone();
    proto::MemberKey { namespace, name, uid }
}

/// Encodes the content of a group besides its members.
pub fn holds(holds: &Holds) -> proto::Holds {
    proto::Holds {
        blocks: holds.blocks.iter().map(block).collect(),
        vips: holds.vips.iter().map(address).collect(),
        unusable: holds.unusable.clone(),
    }
}

/// The addresses of the node, its zone, and whether it is about to be deleted.
pub fn node(addresses: &[IpAddr], zone: Option<&str>, leaving: bool) -> proto::Change {
    let addresses = addresses.iter().map(address).collect();
    let zone = zone.unwrap_or_default().to_owned();
    change::Of::Node(proto::Node { addresses, zone, leaving }).into()
}

pub(crate) fn address(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub(crate) fn cidr(net: &ipnet::IpNet) -> proto::Cidr {
    proto::Cidr { address: address(&net.addr()), length: net.prefix_len().into() }
}

fn block(block: &Block) -> proto::Block {
    proto::Block { cidr: Some(cidr(&block.cidr)), except: block.except.iter().map(cidr).collect() }
}

fn protocol(protocol: Protocol) -> i32 {
    match protocol {
        Protocol::Tcp => proto::Protocol::Tcp,
        Protocol::Udp => proto::Protocol::Udp,
        Protocol::Sctp => proto::Protocol::Sctp,
    }
    .into()
}

fn named_port(port: &ContainerPort) -> proto::NamedPort {
    let (name, number) = (port.name.clone(), port.port.into());
    proto::NamedPort { name, protocol: protocol(port.protocol), port: number }
}

fn place(place: Position) -> proto::Place {
    let stage = match place.stage {
        Stage::Before => proto::Stage::Before,
        Stage::NetworkPolicies => proto::Stage::NetworkPolicies,
        Stage::Baseline => proto::Stage::Baseline,
    };
    let family = match place.family {
        Family::Cluster => proto::Family::Cluster,
        Family::Antrea => proto::Family::Antrea,
        Family::NetworkPolicy => proto::Family::NetworkPolicy,
    };
    let (number, priority) = (place.number.into(), place.priority.value());
    proto::Place { stage: stage.into(), number, family: family.into(), priority }
}

fn groups(ids: &[GroupId]) -> Vec<Vec<u8>> {
    ids.iter().map(|id| id.0.to_vec()).collect()
}

fn isolation(isolation: &Isolation) -> proto::Isolation {
    proto::Isolation {
        applied: groups(&isolation.applied),
        doubt: isolation.doubt.clone(),
        ingress: isolation.ingress,
        egress: isolation.egress,
    }
}

fn rule(rule: &Rule) -> proto::Rule {
    let direction = match rule.direction {
        Direction::Ingress => proto::Direction::Ingress,
        Direction::Egress => proto::Direction::Egress,
    };
    let action = match rule.action {
        Action::Allow => proto::Action::Allow,
        Action::Drop => proto::Action::Drop,
        Action::Reject => proto::Action::Reject,
        Action::Pass => proto::Action::Pass,
    };
    proto::Rule {
        direction: direction.into(),
        index: u32::try_from(rule.index).unwrap_or(u32::MAX),
        name: rule.name.clone(),
        action: action.into(),
        applied: groups(&rule.applied),
        doubt: rule.doubt.clone(),
        peers: match &rule.peers {
            Peers::Any => None,
            Peers::Of(far) => Some(peers(far)),
        },
        traffic: match &rule.traffic {
            Traffic::Any => None,
            Traffic::Of(transports) => {
                Some(proto::Traffic { transports: transports.iter().map(transport).collect() })
            }
        },
        log: rule.log.as_ref().map(|Log { label }| label.clone()),
        standing: Some(standing(&rule.standing)),
        names: rule.names.map(|id| id.0.to_vec()),
        requires: rule.requires.clone(),
    }
}

fn peers(far: &PeerSet) -> proto::Peers {
    let alike = |NamespacePeers { applied, address }: &NamespacePeers| proto::Alike {
        applied: groups(applied),
        address: address.0.to_vec(),
    };
    let name = |name: &NameMatch| {
        let of = match name {
            NameMatch::Domain(DomainName::Exact(name)) => proto::name::Of::Exact(name.clone()),
            NameMatch::Domain(DomainName::Below(name)) => proto::name::Of::Below(name.clone()),
            NameMatch::Pattern(pattern) => proto::name::Of::Pattern(pattern.0.clone()),
        };
        proto::Name { of: Some(of) }
    };
    proto::Peers {
        groups: groups(&far.groups),
        blocks: far.blocks.iter().map(block).collect(),
        names: far.names.iter().map(name).collect(),
        services: groups(&far.services),
        alike: far.alike.iter().map(alike).collect(),
    }
}

fn range(range: PortRange) -> proto::Range {
    proto::Range { first: range.first.into(), last: range.last.into() }
}

fn transport(transport: &Transport) -> proto::Transport {
    use proto::{ports, transport::Of};
    let of = match transport {
        Transport::Ports { protocol: its, port, source } => Of::Ports(proto::Ports {
            protocol: protocol(*its),
            port: port.as_ref().map(|port| match port {
                TargetPort::Numbers(numbers) => ports::Port::Numbers(range(*numbers)),
                TargetPort::Named(name) => ports::Port::Name(name.clone()),
            }),
            source: source.map(range),
        }),
        Transport::Named(name) => Of::Named(name.clone()),
        Transport::Icmp { kind, code } => {
            Of::Icmp(proto::Icmp { kind: kind.map(u32::from), code: code.map(u32::from) })
        }
    };
    proto::Transport { of: Some(of) }
}

fn standing(standing: &Standing) -> proto::Standing {
    use proto::standing::Of;
    let of = match standing {
        Standing::Understood => None,
        Standing::MatchesNothing { why } => Some(Of::MatchesNothing(why.clone())),
        Standing::DeniesAll { why } => Some(Of::DeniesAll(why.clone())),
    };
    proto::Standing { of }
}
