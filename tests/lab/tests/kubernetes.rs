//! Nodes that are members of a cluster: a real API server, the production daemon with the rights of
//! its manifest, and what each tells the other.

#[path = "kubernetes/branches.rs"]
mod branches;
#[path = "kubernetes/in_pod.rs"]
mod in_pod;

use anyhow::{Context as _, Result, ensure};
use config_crds::{NAMESPACE, SERVICE_ACCOUNT};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{path::PathBuf, time::Duration};
use tests_cluster::{Cluster, Identity, Wanted};
use tests_lab::{Lab, programs, wait_for};
use tokio::runtime::Runtime;

const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster and a way to speak to it from tests that wait for command lines.
struct World {
    runtime: Runtime,
    client: Client,
    cluster: Cluster,
    /// The daemons', with the rights of the manifest and no more.
    kubeconfig: PathBuf,
}

impl World {
    fn new() -> Result<Self> {
        Self::of(&Wanted::default())
    }

    fn of(wanted: &Wanted) -> Result<Self> {
        let cluster = Cluster::start(wanted)?;
        let daemon = Identity::service_account(NAMESPACE, SERVICE_ACCOUNT);
        let kubeconfig = cluster.kubeconfig_of("daemon", &daemon)?;
        let runtime = Runtime::new().context("make a runtime")?;
        let client = runtime.block_on(cluster.client())?;
        let world = Self { runtime, client, cluster, kubeconfig };
        let crds = [config_crds::eni_config_crd(), config_crds::cni_node_crd()];
        for object in crds.into_iter().chain(config_crds::rbac()) {
            world.apply(&object)?;
        }
        // Nobody runs who would make the default one, and pods need it.
        world.apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"},
        }))?;
        Ok(world)
    }

    /// What `ferrule-lab up` needs to bring nodes into this cluster.
    fn args(&self) -> [String; 4] {
        let server = format!("127.0.0.1:{}", self.cluster.port());
        let kubeconfig = self.kubeconfig.display().to_string();
        ["--api-server".into(), server, "--kubeconfig".into(), kubeconfig]
    }

    /// Makes or changes an object of any kind; its kind may have been made a moment ago.
    fn apply(&self, object: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let api: Api<DynamicObject> = match object.metadata.namespace.as_deref() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object.name_any();
        wait_for(&format!("{kind} {name} to be taken"), PATIENCE, || {
            let how = PatchParams::apply("tests-lab").force();
            self.runtime.block_on(api.patch(&name, &how, &Patch::Apply(&object)))?;
            Ok(true)
        })
    }

    fn make_node(&self, name: &str, more: &Value) -> Result<()> {
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

    fn node(&self, name: &str) -> Result<Node> {
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(self.runtime.block_on(api.get(name))?)
    }

    /// A pod that is bound to the node.
    fn make_pod(&self, node: &str, name: &str) -> Result<()> {
        self.make_pod_with(node, name, &json!({}))
    }

    fn make_pod_with(&self, node: &str, name: &str, resources: &Value) -> Result<()> {
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

    fn annotation(&self, pod: &str, key: &str) -> Result<Option<String>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        Ok(self.runtime.block_on(api.get(pod))?.annotations().get(key).cloned())
    }

    /// The notes of events about this object with this reason.
    fn notes(&self, about: &str, reason: &str) -> Result<Vec<String>> {
        let api: Api<Event> = Api::all(self.client.clone());
        let events = self.runtime.block_on(api.list(&Default::default()))?;
        let fits = |event: &Event| {
            let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            object == Some(about) && event.reason.as_deref() == Some(reason)
        };
        Ok(events.items.into_iter().filter(fits).filter_map(|event| event.note).collect())
    }

    fn condition(&self, node: &str) -> Result<Option<(String, String)>> {
        let status = self.node(node)?.status.and_then(|status| status.conditions);
        let found = status.unwrap_or_default().into_iter().find(|c| c.type_ == "IPPoolHealthy");
        Ok(found.map(|c| (c.status, c.reason.unwrap_or_default())))
    }
}

#[test]
fn a_node_is_untainted_when_its_pool_serves_and_its_pods_are_told_why_not() -> Result<()> {
    let name = "a_node_is_untainted_when_its_pool_serves_and_its_pods_are_told_why_not";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let taint = json!({"key": "ferrule.io/not-ready", "effect": "NoSchedule"});
    let other = json!({"key": "example.com/kept", "effect": "NoSchedule"});
    world.make_node("node1", &json!({"spec": {"taints": [taint, other]}}))?;
    let args = world.args();
    let up: Vec<&str> = ["--nodes", "1", "--subnet", "10.0.0.0/28", "--subnet", "10.0.1.0/28"]
        .into_iter()
        .chain(["--env", "FERRULE_STARTUP_TAINT=ferrule.io/not-ready"])
        .chain(["--env", "ANNOTATE_POD_IP=true", "--env", "FERRULE_ADD_WAIT=8"])
        .chain(["--env", "WARM_IP_TARGET=1", "--env", "IP_COOLDOWN_PERIOD=5"])
        .chain(args.iter().map(String::as_str))
        .collect();
    let lab = Lab::up(&bin, "t-kube", &up)?;
    wait_for("the startup taint to go, and no other", PATIENCE, || {
        let taints = world.node("node1")?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
        ensure!(keys.contains(&"example.com/kept"), "{keys:?}");
        Ok(!keys.contains(&"ferrule.io/not-ready"))
    })?;
    wait_for("the pool's condition", PATIENCE, || {
        Ok(world.condition("node1")?.is_some_and(|(status, _)| status == "True"))
    })?;

    world.make_pod("node1", "told")?;
    lab.run(&["pod", "add", "node1", "--pod", "told"])?;
    let pods = lab.pods("node1")?;
    let address = pods[0]["address"].as_str().context("a pod without address")?.to_owned();
    wait_for("the pod's annotation", PATIENCE, || {
        Ok(world.annotation("told", "vpc.amazonaws.com/pod-ips")? == Some(address.clone()))
    })?;

    // Eleven addresses, one of them the node's own: what comes later is told on the pod.
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "9"])?;
    world.make_pod("node1", "late")?;
    let late = lab.output(&["pod", "add", "node1", "--pod", "late"])?;
    ensure!(!late.status.success(), "a full subnet served one more pod");
    wait_for("the event of the pod that got none", PATIENCE, || {
        let notes = world.notes("late", "FailedAddressAssignment")?;
        ensure!(notes.iter().any(|note| note.contains("subnet-")), "{notes:?}");
        Ok(true)
    })?;
    wait_for("the condition to say so", PATIENCE, || {
        Ok(world.condition("node1")?.is_some_and(|(status, _)| status == "False"))
    })?;
    lab.run(&["pod", "delete", "more-0", "more-1"])?;
    wait_for("the pod to be served", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "late"]).map(|_| true)
    })?;
    wait_for("the condition to be good again", PATIENCE, || {
        Ok(world.condition("node1")?.is_some_and(|(status, _)| status == "True"))
    })?;
    lab.down()
}

#[test]
fn custom_networking_waits_for_its_eniconfig_and_then_serves_from_its_subnet() -> Result<()> {
    let name = "custom_networking_waits_for_its_eniconfig_and_then_serves_from_its_subnet";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let label = json!({"metadata": {"labels": {"k8s.amazonaws.com/eniConfig": "zone-a"}}});
    world.make_node("node1", &label)?;
    let args = world.args();
    let up: Vec<&str> = ["--nodes", "1", "--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"]
        .into_iter()
        .chain(["--subnet", "10.0.64.0/24,zone=a"])
        .chain(["--env", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true"])
        .chain(["--env", "FERRULE_ADD_WAIT=8"])
        .chain(args.iter().map(String::as_str))
        .collect();
    let lab = Lab::up(&bin, "t-custom", &up)?;
    let early = lab.output(&["pod", "add", "node1", "--pod", "early"])?;
    ensure!(!early.status.success(), "a pod was served without an ENIConfig");
    let said = String::from_utf8_lossy(&early.stdout).into_owned()
        + &String::from_utf8_lossy(&early.stderr);
    ensure!(said.contains("ENIConfig") && said.contains("zone-a"), "the plugin said: {said}");

    let config = |subnet: &str| {
        json!({
            "apiVersion": "crd.k8s.amazonaws.com/v1alpha1", "kind": "ENIConfig",
            "metadata": {"name": "zone-a"}, "spec": {"subnet": subnet},
        })
    };
    world.apply(&config("subnet-00000000000000bad"))?;
    wait_for("the log to name the subnet that nobody knows", PATIENCE, || {
        let logs = lab.run(&["logs", "node1", "--lines", "5000"])?;
        Ok(logs.contains("subnet-00000000000000bad"))
    })?;
    let subnets = lab.json(&["subnet", "list"])?;
    let subnets = subnets.as_array().context("no list of subnets")?;
    let wanted = subnets.iter().find(|subnet| subnet["cidr"] == "10.0.64.0/24");
    let id = wanted.and_then(|subnet| subnet["id"].as_str()).context("no such subnet")?;
    world.apply(&config(id))?;
    wait_for("a pod to be served", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "served"]).map(|_| true)
    })?;
    lab.run(&["pod", "add", "node1", "--count", "5"])?;
    for pod in lab.pods("node1")? {
        let address = pod["address"].as_str().context("a pod without address")?;
        ensure!(address.starts_with("10.0.64."), "{address} is not of the ENIConfig's subnet");
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
