//! Parts of rules in words.

use crate::{
    Direction, NameMatch, Peer, Peers, Pods, Priority, Rule, Scope, Standing, Traffic, Transport,
    world::group_title,
};
use policy_objects::{
    Block, DomainName, FqdnPattern, Named, Operator, PortRange, Protocol, Requirement, Selector,
    TargetPort,
};
use std::fmt;

pub(crate) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

pub(crate) fn selector(selector: &Selector) -> String {
    joined(selector.requirements.iter().map(requirement), ",")
}

pub(crate) fn named(name: &Named) -> String {
    format!("{}/{}", name.namespace, name.name)
}

pub(crate) fn joined(items: impl IntoIterator<Item = String>, between: &str) -> String {
    items.into_iter().collect::<Vec<_>>().join(between)
}

fn requirement(requirement: &Requirement) -> String {
    let key = &requirement.key;
    let list = |values: &std::collections::BTreeSet<String>| joined(values.iter().cloned(), ", ");
    match &requirement.operator {
        Operator::In(values) if values.len() == 1 => format!("{key}={}", list(values)),
        Operator::In(values) => format!("{key} in ({})", list(values)),
        Operator::NotIn(values) => format!("{key} notin ({})", list(values)),
        Operator::Exists => key.clone(),
        Operator::DoesNotExist => format!("!{key}"),
    }
}

fn range(range: PortRange) -> String {
    match range.first == range.last {
        true => range.first.to_string(),
        false => format!("{}-{}", range.first, range.last),
    }
}

pub(crate) fn block(block: &Block) -> String {
    match block.except.as_slice() {
        [] => block.cidr.to_string(),
        [one] => format!("{} except {one}", block.cidr),
        [one, rest @ ..] => format!("{} except {one} and {} more", block.cidr, rest.len()),
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            // Most of its digits carry no information.
            huge if huge.abs() >= 1e15 => write!(f, "{huge:e}"),
            value => write!(f, "{value}"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, index, action, peers, traffic, .. } = self;
        write!(f, "{direction}[{index}]")?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " {name:?}"))?;
        let way = match direction {
            Direction::Ingress => "from",
            Direction::Egress => "to",
        };
        match &self.standing {
            Standing::Understood => write!(f, " {action} {way} {peers}: {traffic}")?,
            Standing::MatchesNothing { why } => {
                write!(f, " not understood, so it allows nothing: {why}")?;
            }
            Standing::DeniesAll { why } => write!(f, " not understood, so it denies all: {why}")?,
        }
        match (&self.doubt, &self.standing) {
            (None, _) => Ok(()),
            (Some(doubt), Standing::DeniesAll { why }) if doubt == why => Ok(()),
            (Some(doubt), _) => write!(f, " (maybe of more pods than were meant: {doubt})"),
        }
    }
}

impl fmt::Display for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Labeled { scope, pods } if pods.requirements.is_empty() => {
                write!(f, "all pods of {scope}")
            }
            Self::Labeled { scope, pods } => write!(f, "pods {} of {scope}", selector(pods)),
            Self::Group(name) => f.write_str(&group_title(name)),
            Self::Service(name) => write!(f, "pods behind Service {}", named(name)),
            Self::ServiceAccount(account) => write!(f, "service account {}", named(account)),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Namespaces(any) if any.requirements.is_empty() => f.write_str("all namespaces"),
            Self::Namespaces(some) => write!(f, "namespaces {}", selector(some)),
            Self::SameNamespace => f.write_str("the same namespace"),
            Self::SameLabels(keys) => write!(f, "namespaces of the same {}", keys.join(", ")),
        }
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("everybody"),
            Self::Of(peers) if peers.is_empty() => f.write_str("nobody"),
            Self::Of(peers) => f.write_str(&joined(peers.iter().map(Peer::to_string), " or ")),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(pods) => pods.fmt(f),
            Self::Block(range) => f.write_str(&block(range)),
            Self::Nodes(any) if any.requirements.is_empty() => f.write_str("all nodes"),
            Self::Nodes(some) => write!(f, "nodes {}", selector(some)),
            Self::Name(name) => name.fmt(f),
            Self::Service(name) => write!(f, "Service {}", named(name)),
        }
    }
}

impl fmt::Display for NameMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domain(DomainName::Exact(name)) => f.write_str(name),
            Self::Domain(DomainName::Below(name)) => write!(f, "*.{name}"),
            Self::Pattern(FqdnPattern(pattern)) => f.write_str(pattern),
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("anything"),
            Self::Of(some) if some.is_empty() => f.write_str("nothing"),
            Self::Of(some) => f.write_str(&joined(some.iter().map(Transport::to_string), " or ")),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports { protocol: which, port, source } => {
                f.write_str(protocol(*which))?;
                match port {
                    Some(TargetPort::Numbers(numbers)) => write!(f, " {}", range(*numbers))?,
                    Some(TargetPort::Named(name)) => write!(f, " port {name}")?,
                    None => {}
                }
                source.map_or(Ok(()), |source| write!(f, " from port {}", range(source)))
            }
            Self::Named(name) => write!(f, "port {name}"),
            Self::Icmp { kind, code } => {
                f.write_str("ICMP")?;
                kind.map_or(Ok(()), |kind| write!(f, " type {kind}"))?;
                code.map_or(Ok(()), |code| write!(f, " code {code}"))
            }
        }
    }
}
