//! An API server with the daemon's RBAC for the labs of these tests.

use anyhow::{Context as _, Result, ensure};
use config_crds::{NAMESPACE, SERVICE_ACCOUNT};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};
use tests_cluster::{Cluster, ClusterSpec, Identity};
use tests_lab::{Lab, wait_for};
use tokio::runtime::Runtime;

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with a blocking client for tests.
pub(crate) struct World {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    /// The kubeconfig of the daemons, with the rights of the manifest only.
    kubeconfig: PathBuf,
    /// Dropped last: the next test starts after this one has stopped its cluster.
    _turn: Turn,
}

/// The worlds of this program. A test that needs every processor runs without another one.
static TURNS: RwLock<()> = RwLock::new(());

#[expect(dead_code, reason = "held for its lock")]
enum Turn {
    Shared(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        Self::of(&ClusterSpec::default())
    }

    /// A world beside which no other world of this program runs.
    pub(crate) fn alone() -> Result<Self> {
        let turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        Self::start(&ClusterSpec::default(), Turn::Alone(turn))
    }

    pub(crate) fn of(wanted: &ClusterSpec) -> Result<Self> {
        let turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        Self::start(wanted, Turn::Shared(turn))
    }

    fn start(wanted: &ClusterSpec, turn: Turn) -> Result<Self> {
        let cluster = Cluster::start(wanted)?;
        let daemon = Identity::service_account(NAMESPACE, SERVICE_ACCOUNT);
        let kubeconfig = cluster.kubeconfig_of("daemon", &daemon)?;
        let runtime = Runtime::new().context("cannot start tokio")?;
        let client = runtime.block_on(cluster.client())?;
        let world = Self { runtime, client, cluster, kubeconfig, _turn: turn };
        let crds = [config_crds::eni_config_crd(), config_crds::cni_node_crd()];
        for object in crds.into_iter().chain(config_crds::rbac()) {
            world.apply(&object)?;
        }
        // Pods need the default service account, and no controller runs to create it.
        world.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"},
        }))?;
        Ok(world)
    }

    /// Starts a lab whose nodes use this cluster.
    pub(crate) fn lab(&self, bin: &Path, name: &str, up: &[&str]) -> Result<Lab> {
        let server = format!("127.0.0.1:{}", self.cluster.port());
        let kubeconfig = self.kubeconfig.to_str().context("the path is not UTF-8")?;
        let cluster = ["--api-server", &server, "--kubeconfig", kubeconfig];
        Lab::up(bin, name, &[up, &cluster].concat())
    }

    /// Applies an object of any kind. Retries until the API server serves its kind.
    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        let what = format!("{} {} to be applied", object["kind"], object["metadata"]["name"]);
        wait_for(&what, PATIENCE, || self.try_apply(object).map(|()| true))
    }

    /// Applies an object without retries.
    pub(crate) fn try_apply(&self, object: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let how = PatchParams::apply("tests-lab").force();
        self.runtime.block_on(api.patch(&object.name_any(), &how, &Patch::Apply(&object)))?;
        Ok(())
    }

    /// Returns an ENIConfig with this `spec`.
    pub(crate) fn eni_config(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "crd.k8s.amazonaws.com/v1alpha1", "kind": "ENIConfig",
            "metadata": {"name": name}, "spec": spec,
        })
    }

    pub(crate) fn make_node(&self, name: &str, more: &Value) -> Result<()> {
        let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        if let (Some(node), Some(more)) = (node.as_object_mut(), more.as_object()) {
            for (key, value) in more {
                if let (Some(held), Some(value)) =
                    (node.get_mut(key).and_then(Value::as_object_mut), value.as_object())
                {
                    held.extend(value.clone());
                } else {
                    node.insert(key.clone(), value.clone());
                }
            }
        }
        let node: Node = serde_json::from_value(node)?;
        let api: Api<Node> = Api::all(self.client.clone());
        self.runtime.block_on(api.create(&PostParams::default(), &node))?;
        Ok(())
    }

    /// Changes a node's object by a merge patch.
    pub(crate) fn patch_node(&self, name: &str, patch: &Value) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch);
        self.runtime.block_on(api.patch(name, &PatchParams::default(), &patch))?;
        Ok(())
    }

    /// Changes the status of a node's object, as its kubelet does.
    pub(crate) fn patch_node_status(&self, name: &str, patch: &Value) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch);
        self.runtime.block_on(api.patch_status(name, &PatchParams::default(), &patch))?;
        Ok(())
    }

    pub(crate) fn node(&self, name: &str) -> Result<Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(self.runtime.block_on(api.get(name))?)
    }

    /// Creates a pod that is bound to the node.
    pub(crate) fn make_pod(&self, node: &str, name: &str) -> Result<()> {
        self.make_pod_with(node, name, &json!({}))
    }

    /// Creates a pod that is bound to the node, with these resources.
    pub(crate) fn make_pod_with(&self, node: &str, name: &str, resources: &Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node,
                "automountServiceAccountToken": false,
                "containers": [
                    {"name": "c", "image": "none.invalid/none", "resources": resources},
                ],
            },
        }))?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        self.runtime.block_on(api.create(&PostParams::default(), &pod))?;
        Ok(())
    }

    pub(crate) fn annotation(&self, pod: &str, key: &str) -> Result<Option<String>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        Ok(self.runtime.block_on(api.get(pod))?.annotations().get(key).cloned())
    }

    /// Returns the notes of events about this object with this reason.
    pub(crate) fn notes(&self, about: &str, reason: &str) -> Result<Vec<String>> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = self.runtime.block_on(api.list(&Default::default()))?;
        let fits = |event: &Event| {
            let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            object == Some(about) && event.reason.as_deref() == Some(reason)
        };
        Ok(events.items.into_iter().filter(fits).filter_map(|event| event.note).collect())
    }

    /// Returns status, reason and message of the node's condition `IPPoolHealthy`; `None` if it has none.
    pub(crate) fn condition(&self, node: &str) -> Result<Option<(String, String, String)>> {
        let status = self.node(node)?.status.and_then(|status| status.conditions);
        let found = status.unwrap_or_default().into_iter().find(|c| c.type_ == "IPPoolHealthy");
        Ok(found.map(|c| (c.status, c.reason.unwrap_or_default(), c.message.unwrap_or_default())))
    }

    /// Waits until the node's condition has this status and all of these words in its reason or message.
    pub(crate) fn wait_for_condition(
        &self,
        node: &str,
        wanted: &str,
        words: &[&str],
    ) -> Result<()> {
        wait_for(&format!("IPPoolHealthy={wanted} of {node} with {words:?}"), PATIENCE, || {
            let (status, reason, message) = self.condition(node)?.context("no condition")?;
            let text = format!("{reason}: {message}");
            let so = status == wanted && words.iter().all(|word| text.contains(word));
            ensure!(so, "{status}, {text}");
            Ok(true)
        })
    }

    /// Waits until an event about this object with this reason has all of the words in its note.
    pub(crate) fn wait_for_event(&self, about: &str, reason: &str, words: &[&str]) -> Result<()> {
        wait_for(&format!("an event {reason} about {about} with {words:?}"), PATIENCE, || {
            let notes = self.notes(about, reason)?;
            let has_note = notes.iter().any(|note| words.iter().all(|word| note.contains(word)));
            ensure!(has_note, "{notes:?}");
            Ok(true)
        })
    }

    /// Returns the holder of the Lease for collecting leaked ENIs of this node group.
    pub(crate) fn collector(&self, node_group: &str) -> Result<Option<String>> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let name = format!("ferrule-leaked-eni-collector-{node_group}");
        let lease = self.runtime.block_on(api.get_opt(&name))?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity))
    }
}
