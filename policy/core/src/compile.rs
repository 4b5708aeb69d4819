//! Compiles a policy object into the common form, independently of other objects.
//!
//! A part that is not understood fails closed here. A rule that would allow part of it matches nothing. A rule
//! that would deny or pass, or whose action is not understood, denies all of its direction. A subject that is not
//! understood, even in one item of several, covers more pods than intended. Its Allow rules then match nothing,
//! while isolation and denials apply to all of it. A Pass denies all, because it could skip the rest of its family.

mod antrea;
mod cluster_policy;
mod network_policy;

use crate::{Action, Direction, Log, Peers, Pods, Policy, PolicyKey, Rule, Standing, Traffic};
use policy_objects::{Kind, Meta, Object, Unknown};

/// The policy that an object is; `None` for one that is no policy.
pub fn compile(object: &Object) -> Option<Policy> {
    match object {
        Object::NetworkPolicy(policy) => Some(network_policy::compile(policy)),
        Object::ClusterPolicy(policy) => Some(cluster_policy::compile(policy)),
        Object::AntreaPolicy(policy) => Some(antrea::compile(policy)),
        Object::Pod(_)
        | Object::Namespace(_)
        | Object::Node(_)
        | Object::Service(_)
        | Object::Tier(_)
        | Object::Group(_) => None,
    }
}

/// Subjects of a policy or of a rule.
#[derive(Clone, Debug, Default)]
struct Subjects {
    pods: Vec<Pods>,
    /// Reason why they are more pods than intended.
    doubt: Option<String>,
    /// Reason why a rule's packets cannot be distinguished from others of these pods: it denies all or allows nothing.
    unfit: Option<String>,
}

struct Head {
    direction: Direction,
    index: usize,
    name: Option<String>,
}

/// Content of a rule that is understood.
struct Body {
    action: Action,
    peers: Peers,
    traffic: Traffic,
    log: Option<Log>,
}

/// A rule that is understood.
fn known(head: Head, subjects: &Subjects, body: Body) -> Rule {
    let Body { action, peers, traffic, log } = body;
    let Subjects { pods: subject, doubt, unfit } = subjects.clone();
    match (action, doubt.as_ref().or(unfit.as_ref()), &unfit) {
        (Action::Allow, Some(why), _) => return matches_nothing(head, subjects, why),
        (Action::Pass, Some(why), _) | (_, _, Some(why)) => {
            return denies_all(head, subjects, why);
        }
        (Action::Allow | Action::Pass, None, None) | (Action::Drop | Action::Reject, _, None) => {}
    }
    let Head { direction, index, name } = head;
    let standing = Standing::Understood;
    Rule { direction, index, name, action, subject, doubt, peers, traffic, log, standing }
}

/// A rule that is not understood; `allows` is what an action is called that allows.
fn unknown(head: Head, subjects: &Subjects, unknown: &Unknown, allows: &str) -> Rule {
    match unknown.action.as_deref() == Some(allows) {
        true => matches_nothing(head, subjects, &unknown.why),
        false => denies_all(head, subjects, &unknown.why),
    }
}

fn denies_all(head: Head, subjects: &Subjects, why: &str) -> Rule {
    let Head { direction, index, name } = head;
    Rule {
        direction,
        index,
        name,
        action: Action::Drop,
        subject: subjects.pods.clone(),
        doubt: subjects.doubt.clone(),
        peers: Peers::Any,
        traffic: Traffic::Any,
        log: None,
        standing: Standing::DeniesAll { why: why.to_owned() },
    }
}

fn matches_nothing(head: Head, subjects: &Subjects, why: &str) -> Rule {
    let Head { direction, index, name } = head;
    Rule {
        direction,
        index,
        name,
        action: Action::Allow,
        subject: subjects.pods.clone(),
        doubt: None,
        peers: Peers::Of(Vec::new()),
        traffic: Traffic::Of(Vec::new()),
        log: None,
        standing: Standing::MatchesNothing { why: why.to_owned() },
    }
}

fn key(kind: Kind, meta: &Meta) -> PolicyKey {
    PolicyKey { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
}
