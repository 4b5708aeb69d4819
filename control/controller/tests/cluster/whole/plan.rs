//! Writes to the cluster, in phases. They are planned in advance, so that the bounds of nodes' content are known too.

use crate::world::{antrea_policy, cluster_policy, network_policy, pod};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const NODES: usize = 50;
pub(crate) const PODS: usize = 2_000;
pub(crate) const POLICIES: usize = 500;
const ALL: usize = PODS + POLICIES;
const APPS: usize = 40;
const TIERS: usize = 4;
const GROUPS: usize = 10;

/// Change of one object.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Make(Value),
    MakeAndDelete(Value),
    Delete(Value),
    /// A pod moves to another group.
    Relabel(Value),
}

/// Concurrent steps, which arrive in any order.
pub(crate) struct Phase {
    pub(crate) steps: Vec<Step>,
    /// Objects before the phase.
    pub(crate) before: World,
    /// Objects after the phase.
    pub(crate) after: World,
}

/// Objects by kind, namespace and name.
pub(crate) type World = BTreeMap<String, Value>;

impl Phase {
    /// Returns the world of the lower bound: the objects that no step touches.
    pub(crate) fn least(&self) -> World {
        let touched = self.touched();
        let mut stays = self.before.clone();
        stays.retain(|key, _| !touched.contains(key));
        stays
    }

    /// Returns the worlds of the upper bound: a node holds at most the content of one of them. A selector of this plan
    /// selects by the labels of one pod. So a pod of a group is present in any world with both. A policy depends on one
    /// tier or group at most. So there is a world without each tier or group that comes or goes.
    pub(crate) fn most(&self) -> Vec<World> {
        if self.relabels() {
            return vec![
                self.with(&self.before, &self.after),
                self.with(&self.after, &self.before),
            ];
        }
        let mut all = self.before.clone();
        for step in &self.steps {
            let (Step::Make(object) | Step::MakeAndDelete(object)) = step else { continue };
            all.insert(key(object), object.clone());
        }
        let touched = self.touched();
        let mut without = all.clone();
        without.retain(|key, object| !(touched.contains(key) && is_named(object)));
        vec![all, without]
    }

    /// Returns a world for pods that change their labels. Each gets a second pod without an address and with the labels of
    /// the other world, so that the node has all policies of both. Content of the second pod is not expected.
    fn with(&self, world: &World, other: &World) -> World {
        let mut with = world.clone();
        for key in self.touched() {
            let mut beside = other[&key].clone();
            beside["metadata"]["name"] = json!(format!("beside-{key}"));
            beside["status"] = json!({ "phase": "Running" });
            with.insert(format!("beside {key}"), beside);
        }
        with
    }

    fn touched(&self) -> BTreeSet<String> {
        let object = |step: &Step| match step {
            Step::Make(object)
            | Step::MakeAndDelete(object)
            | Step::Delete(object)
            | Step::Relabel(object) => key(object),
        };
        self.steps.iter().map(object).collect()
    }

    fn relabels(&self) -> bool {
        self.steps.iter().all(|step| matches!(step, Step::Relabel(_)))
    }
}

/// The three phases: create half of all objects; create the other half and delete some of the first; relabel pods.
pub(crate) fn phases() -> Vec<Phase> {
    let mut now = World::new();
    let first = making(0..ALL / 2);
    let first = phase(&mut now, first);
    let mut second = making(ALL / 2..ALL);
    let old = now.values().enumerate().filter(|(number, _)| number % 13 == 0);
    for (at, (_, object)) in old.enumerate() {
        second.insert((at * 8).min(second.len()), Step::Delete(object.clone()));
    }
    let second = phase(&mut now, second);
    let pods = now.values().filter(|object| object["kind"] == "Pod");
    let relabel = |(number, object): (usize, &Value)| {
        let mut object = object.clone();
        object["metadata"]["labels"]["app"] = json!(app(number * 7));
        Step::Relabel(object)
    };
    let third = pods.enumerate().filter(|(number, _)| number % 10 == 3).map(relabel).collect();
    let third = phase(&mut now, third);
    vec![first, second, third]
}

fn phase(now: &mut World, steps: Vec<Step>) -> Phase {
    let before = now.clone();
    for step in &steps {
        match step {
            Step::Make(object) | Step::Relabel(object) => {
                now.insert(key(object), object.clone());
            }
            Step::Delete(object) => drop(now.remove(&key(object))),
            Step::MakeAndDelete(_) => {}
        }
    }
    Phase { steps, before, after: now.clone() }
}

fn making(numbers: std::ops::Range<usize>) -> Vec<Step> {
    numbers.flat_map(|number| [named(number), Some(numbered(number))]).flatten().collect()
}

/// Every fifth object is a policy; some of each are deleted again at once.
fn numbered(number: usize) -> Step {
    let ratio = ALL / POLICIES;
    let (object, every) = if number.is_multiple_of(ratio) {
        (policy(number, number / ratio), 9)
    } else {
        (placed(number), 11)
    };
    if number.is_multiple_of(every) { Step::MakeAndDelete(object) } else { Step::Make(object) }
}

/// Sometimes a tier or a group, which policies name before and after its creation.
fn named(number: usize) -> Option<Step> {
    let every = ALL / (TIERS + 2 * GROUPS);
    if !number.is_multiple_of(every) {
        return None;
    }
    let which = number / every;
    let of = |kind: &str, name: String, spec: Value| {
        let mut object = json!({
            "apiVersion": "crd.antrea.io/v1beta1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        if kind == "Group" {
            object["metadata"]["namespace"] = json!("default");
        }
        Step::Make(object)
    };
    let pods = json!({ "podSelector": { "matchLabels": { "app": app(which) } } });
    let (tiers, groups) = (2 * GROUPS..2 * GROUPS + TIERS, GROUPS..2 * GROUPS);
    if tiers.contains(&which) {
        let which = which - tiers.start;
        return Some(of("Tier", format!("tier-{which}"), json!({ "priority": 100 + which })));
    }
    match which {
        ..GROUPS => Some(of("ClusterGroup", format!("group-{which}"), pods)),
        which if groups.contains(&which) => {
            Some(of("Group", format!("group-{}", which - GROUPS), pods))
        }
        _ => None,
    }
}

/// Spreads the pods of each label over the nodes.
fn placed(number: usize) -> Value {
    let turn = number - number / (ALL / POLICIES);
    let (node, app) = (node(turn % NODES), app(turn / NODES + turn));
    let mut made = pod("default", &format!("pod-{number}"), &node, &app);
    let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
    made["status"] = json!({
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
    });
    made
}

/// Returns policies of each kind in turn.
fn policy(number: usize, turn: usize) -> Value {
    let (name, app, other) = (format!("policy-{number}"), app(turn), app(turn + turn / APPS + 1));
    let labels = |app: &str| json!({ "matchLabels": { "app": app } });
    let about = |mut policy: Value| {
        let pods = json!({ "namespaceSelector": {}, "podSelector": labels(&app) });
        policy["spec"]["subject"] = json!({ "pods": pods });
        policy["spec"]["priority"] = json!(number % 1_000);
        policy
    };
    let antrea = |from: Value| {
        let mut policy = antrea_policy(&name, &app);
        policy["spec"]["ingress"] = json!([{ "action": "Drop", "from": [from] }]);
        policy
    };
    match turn % 7 {
        0 => network_policy(&name, &app, &other),
        1 => about(cluster_policy(&name)),
        2 => {
            let mut policy = about(cluster_policy(&name));
            policy["apiVersion"] = json!("networking.k8s.aws/v1alpha1");
            policy["spec"]["egress"] = json!([{
                "action": "Accept",
                "to": [{ "pods": { "namespaceSelector": {}, "podSelector": labels(&other) } }],
            }]);
            policy
        }
        3 => json!({
            "apiVersion": "networking.k8s.aws/v1alpha1", "kind": "ApplicationNetworkPolicy",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "podSelector": labels(&app), "policyTypes": ["Egress"],
                "egress": [{ "to": [{ "podSelector": labels(&other) }] }],
            },
        }),
        4 => {
            let mut policy = antrea(json!({ "podSelector": labels(&other) }));
            policy["spec"]["tier"] = json!(format!("tier-{}", turn / 7 % TIERS));
            policy
        }
        5 => {
            let mut policy = antrea(json!({ "group": format!("group-{}", turn / 7 % GROUPS) }));
            policy["kind"] = json!("NetworkPolicy");
            policy["metadata"]["namespace"] = json!("default");
            policy
        }
        _ => antrea(json!({ "group": format!("group-{}", turn / 7 % GROUPS) })),
    }
}

fn app(number: usize) -> String {
    format!("app-{}", number % APPS)
}

pub(crate) fn node(number: usize) -> String {
    format!("n{number}")
}

/// Returns the tiers and groups that policies name.
fn is_named(object: &Value) -> bool {
    ["Tier", "Group", "ClusterGroup"].iter().any(|kind| object["kind"] == *kind)
}

pub(crate) fn key(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (namespace, name) =
        (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
    format!("{version} {kind} {namespace}/{name}")
}
