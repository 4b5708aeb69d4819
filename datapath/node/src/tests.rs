//! Tests of the core: events in any order, and the promises of each part.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

mod identity;
mod links;
mod lives;
mod mirrors;
mod own;
mod replicas;
mod reports;
mod store;

use control_wire::{
    ObjectId, encode,
    model::{Isolation, Pod, Policy, Position},
    proto::{Change, Part, change},
};
use policy_core::{Family, PolicyKey, Priority, Stage, index::GroupId};
use policy_objects::Kind;

fn uid(pod: u8) -> String {
    format!("u-{pod}")
}

/// Pods of one name differ by their UIDs: of four pods two have each name.
fn name(pod: u8) -> String {
    format!("web-{}", pod % 2)
}

fn entry(pod: u8) -> Change {
    let pod = Pod { uid: uid(pod), namespace: "shop".into(), name: name(pod), ..Pod::default() };
    (&pod).into()
}

fn group(policy: u8) -> GroupId {
    GroupId([policy; 16])
}

/// A policy about these pods, with its group.
fn policy(of: u8, pods: &[u8]) -> Vec<Change> {
    let place = Position {
        stage: Stage::NetworkPolicies,
        number: 0,
        family: Family::NetworkPolicy,
        priority: Priority::new(0.0),
    };
    let applied = vec![group(of)];
    let isolation = Isolation { applied, doubt: None, ingress: true, egress: false };
    let key = PolicyKey {
        kind: Kind::NetworkPolicy,
        namespace: "shop".to_owned(),
        name: format!("p-{of}"),
    };
    let policy = Policy {
        uid: format!("policy-{of}"),
        key,
        generation: 1,
        place,
        isolation: Some(isolation),
        rules: Vec::new(),
    };
    let members = pods.iter().copied().map(uid).collect();
    vec![(&policy).into(), encode::applied_group(group(of), &members)]
}

fn removed(object: &ObjectId) -> Change {
    Change { of: Some(change::Of::Removed(object.to_proto())) }
}

fn part(generation: u64, changes: Vec<Change>) -> Part {
    Part { generation, changes, last: true }
}
