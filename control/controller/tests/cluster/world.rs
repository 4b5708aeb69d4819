//! An API server with the objects that the tests need: nodes, agents' pods and their tokens.

use crate::between::Between;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tests_cluster::{Cluster, ClusterSpec, Identity};
use tests_eventually::eventually_async;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Namespace of the agents and the controllers.
pub(crate) const SYSTEM: &str = "kube-system";
/// Service account of the agents.
pub(crate) const AGENT: &str = "ferrule-agent";
/// Maximum wait for an expected event, also on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Message of an API server without a kind.
const LATER: [u16; 4] = [404, 405, 429, 503];

/// Number of concurrent API servers: each test has its own.
const SERVERS: u32 = 2;
static ROOM: Semaphore = Semaphore::const_new(SERVERS as usize);

pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) client: Client,
    /// Client with exactly the rights of the generated manifest for the controller.
    pub(crate) kubeconfig: PathBuf,
    _room: SemaphorePermit<'static>,
}

impl World {
    pub(crate) async fn new() -> Arc<Self> {
        Arc::new(Self::alone().await)
    }

    pub(crate) async fn alone() -> Self {
        Self::in_room(1).await
    }

    /// Returns a world beside which no other test of this program has an API server.
    pub(crate) async fn without_others() -> Self {
        Self::in_room(SERVERS).await
    }

    async fn in_room(servers: u32) -> Self {
        let room = ROOM.acquire_many(servers).await.unwrap();
        let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
        let client = cluster.client().await.unwrap();
        let kubeconfig = cluster.kubeconfig_of("controller", &controller()).unwrap();
        let world = Self { cluster, client, kubeconfig, _room: room };
        for object in manifest("rbac-controller") {
            world.make(object).await;
        }
        // No controller creates the default service accounts, and pods need one.
        for (namespace, name) in [(SYSTEM, AGENT), (SYSTEM, "other"), ("default", "default")] {
            let metadata = json!({"name": name, "namespace": namespace});
            world
                .make(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
                .await;
        }
        world
    }

    /// Returns the controller's kubeconfig for an API server behind another address.
    pub(crate) fn kubeconfig_by(&self, between: &Between) -> PathBuf {
        let name = format!("by-{}", between.at.port());
        self.cluster.kubeconfig_at(&name, &controller(), &between.url()).unwrap()
    }

    /// Creates an object.
    pub(crate) async fn make(&self, object: Value) -> DynamicObject {
        let api = self.api(&object);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let what = || format!("{:?} {:?}", object.types, object.metadata.name);
        // System namespaces appear a moment after the API server, and kinds after their definitions.
        eventually_async(&what(), PATIENCE, || async {
            match api.create(&PostParams::default(), &object).await {
                Ok(made) => Some(made),
                Err(kube::Error::Api(status)) if LATER.contains(&status.code) => None,
                Err(error) => panic!("{}: {error}", what()),
            }
        })
        .await
    }

    /// Writes an object's status in place of the kubelet or a controller.
    pub(crate) async fn status(&self, object: &Value, status: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(object).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Changes fields of an object.
    pub(crate) async fn patch(&self, object: &Value, change: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(change);
        self.api(object).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes an object without a grace period.
    pub(crate) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api(object).delete(name, &now).await.unwrap();
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        api(&self.client, object)
    }

    /// Installs CustomResourceDefinitions and waits until their objects can be created.
    pub(crate) async fn define(&self, group: &str) {
        for definition in definitions(group) {
            self.make(definition.clone()).await;
            let names = &definition["spec"]["names"];
            let version = definition["spec"]["versions"][0]["name"].as_str().unwrap();
            let kind = GroupVersionKind::gvk(group, version, names["kind"].as_str().unwrap());
            let resource = ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            eventually_async("a kind is served", PATIENCE, || async {
                api.list(&ListParams::default()).await.ok()
            })
            .await;
        }
    }

    /// Creates a node with an agent's pod, and returns that pod.
    pub(crate) async fn node(&self, name: &str) -> Pod {
        self.make(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})).await;
        self.agent(&format!("agent-{name}"), name, AGENT).await
    }

    /// Creates a pod with this account in the agents' namespace. An empty node leaves it unbound.
    pub(crate) async fn agent(&self, name: &str, node: &str, account: &str) -> Pod {
        let mut pod = pod(SYSTEM, name, node, "agent");
        pod["spec"]["serviceAccountName"] = json!(account);
        pod["spec"]["hostNetwork"] = json!(true);
        let made = self.make(pod).await;
        serde_json::from_value(serde_json::to_value(made).unwrap()).unwrap()
    }

    /// Returns a token that is bound to a pod of the agents' namespace.
    pub(crate) async fn token(&self, pod: &Pod, audience: &str) -> String {
        let spec = pod.spec.as_ref().unwrap();
        let account = spec.service_account_name.clone().unwrap();
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        self.token_of(&account, audience, Some(bound)).await
    }

    pub(crate) async fn token_of(
        &self,
        account: &str,
        audience: &str,
        bound: Option<BoundObjectReference>,
    ) -> String {
        let spec = TokenRequestSpec {
            audiences: Some(vec![audience.to_owned()]),
            bound_object_ref: bound,
            expiration_seconds: Some(3_600),
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), SYSTEM);
        let made = accounts.create_token_request(account, &PostParams::default(), &request).await;
        made.unwrap().status.unwrap().token.unwrap()
    }

    /// Returns an object if it exists.
    pub(crate) async fn get(&self, object: &Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let found = self.api(object).get_opt(name).await.ok()??;
        serde_json::to_value(found).ok()
    }

    /// Returns the published certificates of the authority once they exist.
    pub(crate) async fn bundle(&self) -> String {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), SYSTEM);
        eventually_async("the authority is published", PATIENCE, || async {
            let map = maps.get_opt("ferrule-controller-ca").await.ok()??;
            map.data?.remove("ca.crt")
        })
        .await
    }
}

/// Returns the objects of a manifest without the chart.
pub(crate) fn manifest(name: &str) -> Vec<Value> {
    let path = format!("{}/../../config/manifests/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn controller() -> Identity {
    Identity::user(&format!("system:serviceaccount:{SYSTEM}:{}", config_crds::CONTROLLER_ACCOUNT))
}

/// Returns the CustomResourceDefinitions of a policy group.
pub(crate) fn definitions(group: &str) -> Vec<Value> {
    let of = |definition: &Value| definition["spec"]["group"] == group;
    config_crds::policy_crds().into_iter().filter(of).collect()
}

/// Returns a pod with a label. An empty node leaves it unbound.
pub(crate) fn pod(namespace: &str, name: &str, node: &str, app: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// Returns a NetworkPolicy of `default` for the pods with one label, with the pods of another label as peers.
pub(crate) fn network_policy(name: &str, app: &str, from: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "podSelector": {"matchLabels": {"app": app}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": from}}}]}],
        },
    })
}

/// Returns an Antrea policy for all pods with a label.
pub(crate) fn antrea_policy(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": name},
        "spec": {
            "priority": 5,
            "appliedTo": [{"podSelector": {"matchLabels": {"app": app}}}],
            "ingress": [{"action": "Drop", "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}],
        },
    })
}

/// Returns a ClusterNetworkPolicy for all pods.
pub(crate) fn cluster_policy(name: &str) -> Value {
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": name},
        "spec": {
            "tier": "Admin", "priority": 7, "subject": {"pods": {
                "namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}},
            }},
            "egress": [{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}]}],
        },
    })
}

/// Returns the URL path of an object.
pub(crate) fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}
