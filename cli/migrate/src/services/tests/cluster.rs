//! A model of a cluster: the objects of the API server, and controllers and kubelets that act in between the steps.

use crate::services::{
    Agent, Cleaner, FerruleSet, Goal, KubeProxySet, LABEL, Mode, Node, Observation, Plan, ProxyPod,
    Request, Serving, Step, Wait, manifest, nodes_to_ask, plan,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FakeNode {
    pub(super) labels: BTreeMap<String, String>,
    /// The setting of Ferrule's pod.
    pub(super) serves: bool,
    /// True if the agent has its Services in the kernel.
    pub(super) in_force: bool,
    /// True while a pod of kube-proxy exists.
    pub(super) has_kube_proxy: bool,
    /// True once kube-proxy has written its rules.
    pub(super) is_proxy_ready: bool,
    /// True while kube-proxy's pod terminates.
    pub(super) proxy_leaves: bool,
    pub(super) has_rules: bool,
    /// True if a connection uses the rules.
    pub(super) has_flows: bool,
    pub(super) has_cleaner: bool,
    /// True once a Service has answered the cleaner's pod.
    pub(super) has_reached: bool,
    /// False from the start of Ferrule's pod until it is ready.
    pub(super) is_agent_ready: bool,
    /// True between the deletion of Ferrule's pod and the next one.
    pub(super) lacks_pod: bool,
    /// The number of pods of Ferrule that the node has had.
    pub(super) pods: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cluster {
    pub(super) serves: bool,
    pub(super) replaces_pods: bool,
    pub(super) kube_proxy: Option<Value>,
    pub(super) saved: Option<Value>,
    pub(super) has_cleaner: bool,
    pub(super) nodes: BTreeMap<String, FakeNode>,
    /// The manifest that an operator applies if no other one exists.
    pub(super) original: Value,
    /// The version of kube-proxy's DaemonSet.
    version: u32,
}

pub(super) fn request(goal: Goal, remove: bool) -> Request {
    Request { goal, remove, nodes: BTreeSet::new() }
}

impl Cluster {
    /// A cluster whose nodes are served by kube-proxy.
    pub(super) fn with_kube_proxy(original: &Value, nodes: usize) -> Self {
        let node = FakeNode {
            has_kube_proxy: true,
            is_proxy_ready: true,
            has_rules: true,
            is_agent_ready: true,
            ..FakeNode::default()
        };
        let named = |number: usize| {
            let foreign = BTreeMap::from([("zone".to_owned(), format!("z{number}"))]);
            (format!("node{number}"), FakeNode { labels: foreign, ..node.clone() })
        };
        let mut cluster = Self {
            serves: false,
            replaces_pods: false,
            kube_proxy: None,
            saved: None,
            has_cleaner: false,
            nodes: (0..nodes).map(named).collect(),
            original: original.clone(),
            version: 0,
        };
        cluster.put(Some(original.clone()));
        cluster
    }

    /// Stores kube-proxy's DaemonSet as the API server does.
    fn put(&mut self, set: Option<Value>) {
        self.version += 1;
        let version = self.version.to_string();
        self.kube_proxy = set.map(|mut set| {
            set["metadata"]["resourceVersion"] = json!(version);
            set
        });
    }

    pub(super) fn observe(&self, request: &Request) -> Observation {
        let mut seen = self.unasked();
        for name in nodes_to_ask(&seen, request, false) {
            let node = &self.nodes[&name];
            let (services, lag) = (3, u64::from(!node.in_force));
            let agent = seen.nodes.get_mut(&name).unwrap().agent.as_mut().unwrap();
            agent.serving = Serving::Known { services, failing: 0, lag };
        }
        seen
    }

    fn unasked(&self) -> Observation {
        let saved = self.kube_proxy.as_ref().map(manifest::saved);
        Observation {
            ferrule: Some(FerruleSet {
                name: "kube-system/ferrule".to_owned(),
                serves: self.serves,
                has_ebpf: true,
                endpoint: Some("https://api.example".to_owned()),
                health: None,
                replaces_pods: self.replaces_pods,
                desired: u64::try_from(self.nodes.len()).unwrap(),
            }),
            kube_proxy: self.kube_proxy.as_ref().map(|set| KubeProxySet {
                name: "kube-system/kube-proxy".to_owned(),
                uid: "1".to_owned(),
                mode: Some(Mode::Iptables),
                is_kept_off: manifest::is_kept_off(set),
                has_changes: manifest::release(set) != *set,
                ..KubeProxySet::default()
            }),
            is_saved: self.saved.is_some(),
            is_saved_current: saved.is_some() && saved == self.saved,
            has_cleaner: self.has_cleaner,
            nodes: self.nodes.iter().map(|(name, node)| (name.clone(), view(name, node))).collect(),
            ..Observation::default()
        }
    }

    pub(super) fn plan(&self, request: &Request) -> Plan {
        plan(&self.observe(request), request)
    }

    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Await(wait) => self.pass_time(wait),
            Step::SaveKubeProxy => self.saved = self.kube_proxy.as_ref().map(manifest::saved),
            Step::KeepOff => self.patch(manifest::keep_off),
            Step::CreateCleaner => self.has_cleaner = true,
            Step::ReplacePod { node, uid, .. } => {
                let lacking = self.nodes.values().filter(|node| node.lacks_pod).count();
                assert_eq!(lacking, 0, "one node after the other");
                let node = self.nodes.get_mut(node).unwrap();
                assert_eq!(*uid, node.pods.to_string());
                node.lacks_pod = true;
            }
            Step::Switch { node } => {
                self.label(node).insert(LABEL.to_owned(), "ebpf".to_owned());
            }
            Step::DeleteKubeProxy { uid } => {
                assert_eq!(uid, "1");
                self.put(None);
            }
            Step::RemoveCleaner => self.has_cleaner = false,
            Step::RestoreKubeProxy => {
                let saved = self.saved.clone().unwrap();
                self.put(Some(manifest::keep_off(&saved)));
            }
            Step::Return { node } => drop(self.label(node).remove(LABEL)),
            Step::Release => self.patch(manifest::release),
            Step::Forget => self.saved = None,
        }
        self.settle();
    }

    fn label(&mut self, node: &str) -> &mut BTreeMap<String, String> {
        &mut self.nodes.get_mut(node).unwrap().labels
    }

    /// Applies a merge patch, as the API server does.
    fn patch(&mut self, change: fn(&Value) -> Value) {
        let set = self.kube_proxy.clone().unwrap();
        let patch = manifest::patch(&set, &change(&set));
        assert_eq!(patch["metadata"]["resourceVersion"], set["metadata"]["resourceVersion"]);
        let mut patched = set;
        merge(&mut patched, &patch);
        self.put(Some(patched));
    }

    /// Lets the cluster do the awaited thing.
    fn pass_time(&mut self, wait: &Wait) {
        match wait {
            Wait::PodReplaced { node } => {
                let serves = self.serves;
                replace(self.nodes.get_mut(node).unwrap(), serves);
            }
            Wait::PodsExist { missing } => {
                let serves = self.serves;
                let mut replaced = 0;
                for node in self.nodes.values_mut().filter(|node| node.lacks_pod) {
                    replace(node, serves);
                    replaced += 1;
                }
                assert_eq!(replaced, *missing);
            }
            Wait::InForce { node, .. } => {
                let node = self.nodes.get_mut(node).unwrap();
                (node.in_force, node.is_agent_ready) = (node.serves, true);
            }
            Wait::RulesGone { nodes } => {
                for name in nodes {
                    self.nodes.get_mut(name).unwrap().has_flows = false;
                }
            }
            Wait::KubeProxyExists => self.put(Some(self.original.clone())),
            Wait::SettingOff => self.serves = false,
            Wait::KubeProxyGone { node } => {
                let node = self.nodes.get_mut(node).unwrap();
                assert!(node.proxy_leaves, "no step lets kube-proxy leave");
                (node.has_kube_proxy, node.proxy_leaves) = (false, false);
            }
            Wait::Reached { node } => {
                let node = self.nodes.get_mut(node).unwrap();
                assert!(node.has_cleaner && !node.has_kube_proxy, "kube-proxy would answer");
                node.has_reached = true;
            }
            Wait::KubeProxyServes { node } => {
                let node = self.nodes.get_mut(node).unwrap();
                assert!(node.has_kube_proxy, "no step lets kube-proxy return");
                (node.is_proxy_ready, node.proxy_leaves) = (true, false);
            }
            Wait::AgentOff { node } => {
                let node = self.nodes.get_mut(node).unwrap();
                assert!(!node.serves && !node.lacks_pod, "no step stops the programs");
                node.is_agent_ready = true;
            }
        }
    }

    /// Lets controllers and kubelets act.
    pub(super) fn settle(&mut self) {
        for node in self.nodes.values_mut() {
            let is_labeled = node.labels.get(LABEL).is_some_and(|value| value == "ebpf");
            let allowed = self
                .kube_proxy
                .as_ref()
                .is_some_and(|set| !(is_labeled && manifest::is_kept_off(set)));
            if allowed && !node.has_kube_proxy {
                (node.has_kube_proxy, node.is_proxy_ready) = (true, false);
            }
            // A pod that terminates serves no longer, and a next one starts after it.
            if node.has_kube_proxy && !allowed {
                (node.proxy_leaves, node.is_proxy_ready) = (true, false);
            }
            node.has_rules |= node.is_proxy_ready;
            node.has_cleaner = self.has_cleaner && is_labeled;
            node.has_reached &= node.has_cleaner;
            if node.has_reached && !node.has_kube_proxy && !node.has_flows {
                node.has_rules = false;
            }
        }
    }
}

/// The next pod of Ferrule keeps the programs of the earlier one in the kernel if the setting is the same.
pub(super) fn replace(node: &mut FakeNode, serves: bool) {
    node.in_force &= serves;
    node.serves = serves;
    node.is_agent_ready = false;
    node.lacks_pod = false;
    node.pods += 1;
}

fn view(name: &str, node: &FakeNode) -> Node {
    let state = match (node.has_reached, node.has_rules) {
        (false, _) => Cleaner::Starting,
        (true, true) => Cleaner::Waiting,
        (true, false) => Cleaner::Clean,
    };
    Node {
        kernel: "6.12.30".to_owned(),
        is_switched: node.labels.contains_key(LABEL),
        agent: (!node.lacks_pod).then(|| Agent {
            pod: format!("ferrule-{name}"),
            uid: node.pods.to_string(),
            serves: node.serves,
            is_ready: node.is_agent_ready,
            leaves: false,
            serving: Serving::NotAsked,
        }),
        kube_proxy: node
            .has_kube_proxy
            .then_some(ProxyPod { is_ready: node.is_proxy_ready, leaves: node.proxy_leaves }),
        cleaner: node.has_cleaner.then_some(state),
    }
}

/// Applies a JSON merge patch.
pub(super) fn merge(to: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *to = patch.clone();
        return;
    };
    if !to.is_object() {
        *to = json!({});
    }
    let map = to.as_object_mut().unwrap();
    for (name, value) in fields {
        if value.is_null() {
            map.remove(name);
        } else {
            merge(map.entry(name).or_insert(Value::Null), value);
        }
    }
}
