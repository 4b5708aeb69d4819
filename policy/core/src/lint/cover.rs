//! Decides if one part of a rule covers another, for all possible pods and labels.
//!
//! The answer is no if it is unknown.

use crate::{Peer, Peers, Pods, Scope, Traffic, Transport};
use policy_objects::{Block, Cidr, Operator, PortRange, Requirement, Selector, TargetPort};

pub(super) fn subjects(wide: &[Pods], narrow: &[Pods]) -> bool {
    all(wide, narrow, pods)
}

pub(super) fn peers(wide: &Peers, narrow: &Peers) -> bool {
    match (wide, narrow) {
        (Peers::Any, _) => true,
        (Peers::Of(wide), Peers::Any) => is_unrestricted(wide),
        (Peers::Of(wide), Peers::Of(narrow)) => is_unrestricted(wide) || all(wide, narrow, peer),
    }
}

pub(super) fn traffic(wide: &Traffic, narrow: &Traffic) -> bool {
    match (wide, narrow) {
        (Traffic::Any, _) => true,
        (Traffic::Of(_), Traffic::Any) => false,
        (Traffic::Of(wide), Traffic::Of(narrow)) => all(wide, narrow, transport),
    }
}

/// Each of the narrow within one of the wide.
fn all<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    narrow.iter().all(|narrow| wide.iter().any(|wide| covers(wide, narrow)))
}

fn is_unrestricted(peers: &[Peer]) -> bool {
    let whole = |four: bool| {
        peers.iter().any(|peer| {
            matches!(peer, Peer::Block(Block { cidr, except })
                if cidr.prefix_len() == 0 && except.is_empty() && cidr.addr().is_ipv4() == four)
        })
    };
    whole(true) && whole(false)
}

fn peer(wide: &Peer, narrow: &Peer) -> bool {
    match (wide, narrow) {
        (Peer::Pods(wide), Peer::Pods(narrow)) => pods(wide, narrow),
        (Peer::Block(wide), Peer::Block(narrow)) => block(wide, narrow),
        (Peer::Nodes(wide), Peer::Nodes(narrow)) => selector(wide, narrow),
        (Peer::Name(wide), Peer::Name(narrow)) => wide == narrow,
        (Peer::Service(wide), Peer::Service(narrow)) => wide == narrow,
        (Peer::Pods(_) | Peer::Block(_) | Peer::Nodes(_) | Peer::Name(_) | Peer::Service(_), _) => {
            false
        }
    }
}

fn pods(wide: &Pods, narrow: &Pods) -> bool {
    match (wide, narrow) {
        (
            Pods::Labeled { scope: around, pods: wide },
            Pods::Labeled { scope: within, pods: narrow },
        ) => scope(around, within) && selector(wide, narrow),
        (Pods::Labeled { scope: around, pods }, Pods::ServiceAccount(account)) => {
            let within = Scope::Namespace(account.namespace.clone());
            scope(around, &within) && pods.requirements.is_empty()
        }
        (Pods::Labeled { .. }, Pods::Group(_) | Pods::Service(_))
        | (Pods::Group(_) | Pods::Service(_) | Pods::ServiceAccount(_), _) => wide == narrow,
    }
}

/// True if no pod can be in both lists.
pub(super) fn apart(these: &[Pods], those: &[Pods]) -> bool {
    these.iter().all(|one| those.iter().all(|other| are_apart(one, other)))
}

fn are_apart(one: &Pods, other: &Pods) -> bool {
    let (homes, others) = (home(one), home(other));
    if homes.zip(others).is_some_and(|(one, other)| excludes(&one, &other)) {
        return true;
    }
    match (one, other) {
        (Pods::Labeled { pods: one, .. }, Pods::Labeled { pods: other, .. }) => {
            excludes(one, other)
        }
        (Pods::ServiceAccount(one), Pods::ServiceAccount(other)) => one != other,
        (Pods::Labeled { .. } | Pods::Group(_) | Pods::Service(_) | Pods::ServiceAccount(_), _) => {
            false
        }
    }
}

/// The namespaces of a subject, where they are known.
fn home(pods: &Pods) -> Option<Selector> {
    match pods {
        Pods::Labeled { scope, .. } => namespaces(scope),
        Pods::Group(name) if name.namespace.is_empty() => None,
        Pods::Group(name) | Pods::Service(name) | Pods::ServiceAccount(name) => {
            namespaces(&Scope::Namespace(name.namespace.clone()))
        }
    }
}

/// True if one selector requires a label or value that the other forbids.
fn excludes(one: &Selector, other: &Selector) -> bool {
    let clash = |mine: &Requirement| {
        other.requirements.iter().any(|theirs| {
            let either = |one: &Operator, other: &Operator| match (one, other) {
                (Operator::In(one), Operator::In(other)) => one.is_disjoint(other),
                (Operator::In(some), Operator::NotIn(none)) => some.is_subset(none),
                (Operator::In(_) | Operator::Exists, Operator::DoesNotExist) => true,
                (
                    Operator::In(_)
                    | Operator::NotIn(_)
                    | Operator::Exists
                    | Operator::DoesNotExist,
                    _,
                ) => false,
            };
            mine.key == theirs.key
                && (either(&mine.operator, &theirs.operator)
                    || either(&theirs.operator, &mine.operator))
        })
    };
    one.requirements.iter().any(clash)
}

fn scope(wide: &Scope, narrow: &Scope) -> bool {
    match (namespaces(wide), namespaces(narrow)) {
        (Some(wide), _) if wide.requirements.is_empty() => true,
        (Some(wide), Some(narrow)) => selector(&wide, &narrow),
        (None, _) | (_, None) => wide == narrow,
    }
}

/// A scope as a selector of namespaces, where it does not depend on the subject.
fn namespaces(scope: &Scope) -> Option<Selector> {
    match scope {
        Scope::Namespace(name) => {
            let key = "kubernetes.io/metadata.name".to_owned();
            let operator = Operator::In([name.clone()].into());
            Some(Selector { requirements: [Requirement { key, operator }].into() })
        }
        Scope::Namespaces(selector) => Some(selector.clone()),
        Scope::SameNamespace | Scope::SameLabels(_) => None,
    }
}

/// True if each requirement of the wide selector follows from a requirement of the narrow one.
fn selector(wide: &Selector, narrow: &Selector) -> bool {
    let follows = |wanted: &Requirement| {
        narrow
            .requirements
            .iter()
            .any(|given| given.key == wanted.key && implies(&given.operator, &wanted.operator))
    };
    wide.requirements.iter().all(follows)
}

fn implies(given: &Operator, wanted: &Operator) -> bool {
    match (given, wanted) {
        (Operator::In(given), Operator::In(wanted)) => given.is_subset(wanted),
        (Operator::In(given), Operator::NotIn(wanted)) => given.is_disjoint(wanted),
        (Operator::NotIn(given), Operator::NotIn(wanted)) => wanted.is_subset(given),
        (Operator::In(_) | Operator::Exists, Operator::Exists)
        | (Operator::DoesNotExist, Operator::DoesNotExist | Operator::NotIn(_)) => true,
        (Operator::In(_), Operator::DoesNotExist)
        | (Operator::NotIn(_), Operator::In(_) | Operator::Exists | Operator::DoesNotExist)
        | (Operator::Exists, Operator::In(_) | Operator::NotIn(_) | Operator::DoesNotExist)
        | (Operator::DoesNotExist, Operator::In(_) | Operator::Exists) => false,
    }
}

fn block(wide: &Block, narrow: &Block) -> bool {
    let apart = |one: &Cidr, other: &Cidr| !one.contains(other) && !other.contains(one);
    let harmless = |hole: &Cidr| {
        apart(hole, &narrow.cidr) || narrow.except.iter().any(|other| other.contains(hole))
    };
    wide.cidr.contains(&narrow.cidr) && wide.except.iter().all(harmless)
}

fn transport(wide: &Transport, narrow: &Transport) -> bool {
    match (wide, narrow) {
        (
            Transport::Ports { protocol: wide, port: around, source: from },
            Transport::Ports { protocol: narrow, port: within, source: of },
        ) => wide == narrow && target(around, within) && may(from, of, range),
        (Transport::Icmp { kind: wide, code: any }, Transport::Icmp { kind: narrow, code }) => {
            may(wide, narrow, u8::eq) && may(any, code, u8::eq)
        }
        (Transport::Named(wide), Transport::Named(narrow)) => wide == narrow,
        (Transport::Ports { .. } | Transport::Icmp { .. } | Transport::Named(_), _) => false,
    }
}

fn target(wide: &Option<TargetPort>, narrow: &Option<TargetPort>) -> bool {
    may(wide, narrow, |wide, narrow| match (wide, narrow) {
        (TargetPort::Numbers(wide), TargetPort::Numbers(narrow)) => range(wide, narrow),
        (TargetPort::Named(wide), TargetPort::Named(narrow)) => wide == narrow,
        (TargetPort::Numbers(_) | TargetPort::Named(_), _) => false,
    })
}

fn range(wide: &PortRange, narrow: &PortRange) -> bool {
    wide.first <= narrow.first && narrow.last <= wide.last
}

fn may<T>(wide: &Option<T>, narrow: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
    match (wide, narrow) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => covers(wide, narrow),
    }
}
