//! Generators of random worlds and packets. They use few names, so that policies, pods and packets often
//! match.

mod events;
mod objects;
mod packets;
mod parts;
mod policies;
mod show;
mod unknown;

pub use events::{Event, events, service_events};
pub use packets::{Sketch, sketch};
pub use unknown::with_unknown_part;

use objects::{group, groups, namespace, node, pod, service, tier};
use policies::{antrea, cluster, network};
use policy_objects::{
    AntreaAppliedTo, ClusterTier, Dialect, Flavor, Kind, Meta, Named, Object, Read, Selector,
    Subject, Tier,
};
use proptest::{collection::vec, prelude::*};
use std::{collections::BTreeMap, net::IpAddr};

/// A world: unique objects, and DNS results.
#[derive(Clone, PartialEq)]
pub struct Scenario {
    pub objects: Vec<Object>,
    /// Addresses of DNS names.
    pub names: Vec<(IpAddr, String)>,
}

/// Kind, namespace and name of an object.
pub type Id = (Kind, String, String);

/// Any world.
pub fn world() -> impl Strategy<Value = Scenario> {
    let around = (
        vec(namespace(), 2..=4),
        vec(node(), 1..=2),
        vec(pod(), 4..=8),
        vec(service(), 1..=3),
        vec(tier(), 0..=3),
        groups(),
    );
    let about = vec(policy(), 0..=8);
    (around, about, parts::names(), focus()).prop_map(
        |((namespaces, nodes, pods, services, tiers, groups), mut policies, names, focus)| {
            focus.apply(&mut policies);
            let all = [namespaces, nodes, pods, services, tiers, groups, policies].concat();
            let objects = all.into_iter().map(|object| (id(&object), object));
            Scenario { objects: objects.collect::<BTreeMap<_, _>>().into_values().collect(), names }
        },
    )
}

/// A world with Antrea policies only, for all pods, in two tiers after NetworkPolicies.
pub fn baselines() -> impl Strategy<Value = Scenario> {
    (world(), vec(antrea(), 3..=6)).prop_map(|(mut scenario, policies)| {
        scenario.objects.retain(|object| {
            let antrea = matches!(object, Object::AntreaPolicy(_) | Object::Tier(_));
            !antrea && !matches!(object, Object::NetworkPolicy(_) | Object::ClusterPolicy(_))
        });
        let meta = Meta { name: "late".to_owned(), ..Meta::default() };
        scenario.objects.push(Object::Tier(Tier { meta, priority: Read::Known(254) }));
        for (number, mut policy) in policies.into_iter().enumerate() {
            policy.meta.name = format!("k{number}");
            ["baseline", "late"][number % 2].clone_into(&mut policy.tier);
            let pods = Some(Selector::default());
            let selects = AntreaAppliedTo::Pods { namespaces: None, pods };
            policy.applied_to = vec![Subject { selects, doubt: None }];
            scenario.objects.push(Object::AntreaPolicy(policy));
        }
        scenario
    })
}

/// A world with Antrea policies only, for all pods, whose egress rules have `toServices`.
pub fn with_services() -> impl Strategy<Value = Scenario> {
    (world(), vec(antrea(), 2..=4)).prop_map(|(mut scenario, policies)| {
        scenario.objects.retain(|object| {
            !matches!(object, Object::NetworkPolicy(_) | Object::ClusterPolicy(_))
                && !matches!(object, Object::AntreaPolicy(_))
        });
        for (number, mut policy) in policies.into_iter().enumerate() {
            policy.meta.name = format!("k{number}");
            let pods = Some(Selector::default());
            let selects = AntreaAppliedTo::Pods { namespaces: None, pods };
            policy.applied_to = vec![Subject { selects, doubt: None }];
            for (at, entry) in policy.egress.iter_mut().enumerate() {
                let Read::Known(rule) = &mut entry.rule else { continue };
                let namespace = ["x", "y"][(number + at) % 2].to_owned();
                rule.services = vec![Named { namespace, name: "s".to_owned() }];
                (rule.peers, rule.ports) = (Vec::new(), Vec::new());
            }
            scenario.objects.push(Object::AntreaPolicy(policy));
        }
        scenario
    })
}

/// The tiers of a world's policies. If all policies are in few tiers, their order decides more often.
#[derive(Clone, Copy, Debug)]
enum Focus {
    Anywhere,
    /// In the tiers around that of Admin ClusterNetworkPolicies.
    Before,
    /// In the tiers after NetworkPolicies, which are evaluated if no NetworkPolicy isolates the pod.
    Baselines,
}

fn focus() -> impl Strategy<Value = Focus> {
    prop_oneof![6 => Just(Focus::Anywhere), 1 => Just(Focus::Before), 1 => Just(Focus::Baselines)]
}

impl Focus {
    fn apply(self, policies: &mut Vec<Object>) {
        let (antrea, cluster) = match self {
            Self::Anywhere => return,
            Self::Before => (["platform", "custom"], ClusterTier::Admin),
            Self::Baselines => (["baseline", "late"], ClusterTier::Baseline),
        };
        policies.retain(|policy| !matches!(policy, Object::NetworkPolicy(_)));
        for policy in policies {
            if let Object::AntreaPolicy(policy) = policy {
                antrea[policy.tier.len() % 2].clone_into(&mut policy.tier);
            } else if let Object::ClusterPolicy(policy) = policy {
                policy.tier = cluster;
            }
        }
    }
}

/// Any object.
pub fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        1 => namespace(),
        1 => node(),
        3 => pod(),
        1 => service(),
        1 => tier(),
        1 => group(),
        4 => policy(),
    ]
}

/// A policy of any kind.
pub fn policy() -> impl Strategy<Value = Object> {
    prop_oneof![
        6 => network().prop_map(Object::NetworkPolicy),
        4 => cluster().prop_map(Object::ClusterPolicy),
        6 => antrea().prop_map(Object::AntreaPolicy),
    ]
}

pub fn id(object: &Object) -> Id {
    let meta = object.meta();
    let either = |cluster, namespaced| if meta.namespace.is_empty() { cluster } else { namespaced };
    let kind = match object {
        Object::Pod(_) => Kind::Pod,
        Object::Namespace(_) => Kind::Namespace,
        Object::Node(_) => Kind::Node,
        Object::Service(_) => Kind::Service,
        Object::NetworkPolicy(policy) => match policy.flavor {
            Flavor::Kubernetes => Kind::NetworkPolicy,
            Flavor::Aws => Kind::AwsApplicationNetworkPolicy,
        },
        Object::ClusterPolicy(policy) => match policy.dialect {
            Dialect::Upstream => Kind::ClusterNetworkPolicy,
            Dialect::Aws => Kind::AwsClusterNetworkPolicy,
        },
        Object::Tier(_) => Kind::AntreaTier,
        Object::AntreaPolicy(_) => {
            either(Kind::AntreaClusterNetworkPolicy, Kind::AntreaNetworkPolicy)
        }
        Object::Group(_) => either(Kind::AntreaClusterGroup, Kind::AntreaGroup),
    };
    (kind, meta.namespace.clone(), meta.name.clone())
}
