//! One API server for all tests of the moment, and in it a node and a namespace for each.

use crate::forwarder::Forwarder;
use config_crds::{NAMESPACE, SERVICE_ACCOUNT};
use config_model::PodName;
use ipamd_kube::{ClusterFact, Concern, ConcernState, Handle, Options, Report, start};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use tests_cluster::{Cluster, ClusterSpec, Identity};
use tests_eventually::eventually_async;
use tokio::{sync::mpsc, time::timeout};

/// Shared as long as somebody has it; the last one ends it.
static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());

/// A node and a namespace of one test.
pub(crate) struct World {
    /// Everyone's, or this test's own if it stops the API server.
    pub(crate) cluster: Shared,
    /// A client with all permissions.
    pub(crate) client: Client,
    /// The node's and the namespace's name.
    pub(crate) name: String,
    /// Of the daemon, with the rights that the generated manifest gives.
    pub(crate) kubeconfig: PathBuf,
}

pub(crate) enum Shared {
    Everyones(Arc<Cluster>),
    Own(Box<Cluster>),
}

impl Shared {
    pub(crate) fn get(&self) -> &Cluster {
        match self {
            Self::Everyones(cluster) => cluster,
            Self::Own(cluster) => cluster,
        }
    }
}

impl World {
    pub(crate) async fn new(name: &str) -> Self {
        let cluster = {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let cluster = Arc::new(Cluster::start(&ClusterSpec::default()).unwrap());
                *shared = Arc::downgrade(&cluster);
                cluster
            })
        };
        Self::within(Shared::Everyones(cluster), name).await
    }

    /// With an API server of its own.
    pub(crate) async fn alone(name: &str) -> Self {
        let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
        Self::within(Shared::Own(Box::new(cluster)), name).await
    }

    async fn within(cluster: Shared, name: &str) -> Self {
        let client = cluster.get().client().await.unwrap();
        let user = format!("system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}");
        let file = format!("daemon-of-{name}");
        let kubeconfig = cluster.get().kubeconfig_of(&file, &Identity::user(&user)).unwrap();
        let world = Self { cluster, client, name: name.to_owned(), kubeconfig };
        world.install().await;
        let named =
            |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        world.make(named("Node")).await;
        world.patch_node_status(json!({"capacity": {"pods": "17"}})).await;
        world.make(named("Namespace")).await;
        // No controller creates the default service account, which pods need.
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        });
        world.make(account).await;
        world
    }

    /// Installs the manifests.
    async fn install(&self) {
        let crds = [config_crds::eni_config_crd(), config_crds::cni_node_crd()];
        for object in crds.into_iter().chain(config_crds::rbac()) {
            apply(&self.client, object).await;
        }
        for group in ["crd.k8s.amazonaws.com/v1alpha1", "vpcresources.k8s.aws/v1alpha1"] {
            eventually_async(&format!("{group} is served"), PATIENCE, || async {
                self.client.list_api_group_resources(group).await.ok()
            })
            .await;
        }
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::of_node(self.name.clone());
        options.kubeconfig = Some(self.kubeconfig.clone());
        options.namespace = Some(NAMESPACE.to_owned());
        options.pods = true;
        options
    }

    pub(crate) async fn forwarder(&self, open: bool) -> Forwarder {
        Forwarder::to(self.cluster.get().port(), open).await
    }

    /// Makes an object of any kind.
    pub(crate) async fn make(&self, object: Value) {
        apply(&self.client, object).await;
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn pod_name(&self, name: &str) -> PodName {
        PodName { namespace: self.name.clone(), name: name.to_owned() }
    }

    /// A pod that is bound to the node.
    pub(crate) async fn pod(&self, name: &str, more: Value) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.name,
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "none.invalid/none"}],
            },
        });
        merge(&mut pod, &more);
        let pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        let now = kube::api::DeleteParams::default().grace_period(0);
        self.pods().delete(name, &now).await.unwrap();
    }

    pub(crate) async fn patch_pod_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn patch_pod(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn patch_node(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        self.nodes().patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn patch_node_status(&self, status: Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        self.nodes().patch_status(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// An adapter that runs.
pub(crate) struct Adapter {
    pub(crate) handle: Handle,
    pub(crate) facts: mpsc::Receiver<ClusterFact>,
    pub(crate) reports: mpsc::Receiver<Report>,
}

impl Adapter {
    pub(crate) fn start(options: Options) -> Self {
        let (sender, reports) = mpsc::channel(256);
        let (handle, facts) = start(options, sender);
        Self { handle, facts, reports }
    }

    /// Returns the next fact for which `wanted` returns a value.
    pub(crate) async fn fact<T>(
        &mut self,
        what: &str,
        wanted: impl Fn(&ClusterFact) -> Option<T>,
    ) -> T {
        let mut others = Vec::new();
        let found = async {
            while let Some(fact) = self.facts.recv().await {
                match wanted(&fact) {
                    Some(found) => return Some(found),
                    None => others.push(fact),
                }
            }
            None
        };
        match timeout(PATIENCE, found).await {
            Ok(Some(found)) => found,
            Ok(None) => panic!("{what}: the facts have ended after {others:?}"),
            Err(_) => panic!(
                "{what}: not reported, but {others:?}; {:?}",
                self.handle.concern_states().borrow().clone()
            ),
        }
    }

    /// Waits until these pods are coming, and no others.
    pub(crate) async fn coming(&mut self, names: &[&str]) {
        let what = format!("{names:?} are coming");
        self.fact(&what, |fact| {
            let ClusterFact::Coming(pods) = fact else { return None };
            let now: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
            (now == names).then_some(())
        })
        .await;
    }

    /// The next report for which `wanted` holds.
    pub(crate) async fn report(&mut self, what: &str, wanted: impl Fn(&Report) -> bool) -> Report {
        let mut others = Vec::new();
        let found = async {
            while let Some(report) = self.reports.recv().await {
                if wanted(&report) {
                    return Some(report);
                }
                others.push(report);
            }
            None
        };
        match timeout(PATIENCE, found).await {
            Ok(Some(found)) => found,
            Ok(None) | Err(_) => panic!("{what}: not reported, but {others:?}"),
        }
    }

    pub(crate) async fn stands(&self, concern: Concern, wanted: impl Fn(&ConcernState) -> bool) {
        let mut concern_states = self.handle.concern_states();
        let good = concern_states.wait_for(|all| all.get(&concern).is_some_and(&wanted));
        let stands = timeout(PATIENCE, good).await.map(|good| drop(good.unwrap()));
        assert!(
            stands.is_ok(),
            "{concern} stands otherwise: {:?}",
            self.handle.concern_states().borrow().clone()
        );
    }

    pub(crate) async fn is_good(&self, concern: Concern) {
        self.stands(concern, |state| *state == ConcernState::Good).await;
    }

    pub(crate) async fn is_failing(&self, concern: Concern) {
        self.stands(concern, |state| matches!(state, ConcernState::Failing(_))).await;
    }
}

/// Makes an object of any kind, or brings it up to date.
pub(crate) async fn apply(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = match types.api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), types.api_version.clone()),
    };
    let gvk = GroupVersionKind { group, version, kind: types.kind };
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("test").force();
    api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.unwrap();
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Longer than anything here takes; only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);
