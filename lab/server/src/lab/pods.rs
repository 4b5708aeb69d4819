//! Pods: a namespace on a node, and what the plugin made in it.

use super::{Lab, LabError, blocking, call::Call, names};
use crate::control::{PodSpec, PodView};
use ipnet::IpNet;
use lab_fabric::Node;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::Read as _,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// All pods of a lab, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Pods {
    known: Mutex<BTreeMap<(String, String), PodEntry>>,
}

#[derive(Clone, Debug)]
pub(super) struct PodEntry {
    pub(super) node: String,
    pub(super) container_id: String,
    /// The namespace's name under the node's `/run/netns`.
    pub(super) netns: String,
    /// False when the node went down since: the namespace is gone.
    pub(super) has_namespace: bool,
    pub(super) annotations: BTreeMap<String, String>,
    /// A request is at work on it.
    pub(super) busy: bool,
    /// The plugin's answer; `None` before that.
    pub(super) result: Option<Value>,
    pub(super) add_us: u64,
}

impl PodEntry {
    /// Addresses from the plugin: one for each family and interface.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let ips = self.result.as_ref().and_then(|result| result["ips"].as_array());
        let text = ips.into_iter().flatten().filter_map(|ip| ip["address"].as_str());
        text.filter_map(|text| Some(text.parse::<IpNet>().ok()?.addr())).collect()
    }

    fn netns_path(&self) -> String {
        if self.has_namespace { format!("/run/netns/{}", self.netns) } else { String::new() }
    }
}

impl Pods {
    pub(super) fn all(&self) -> BTreeMap<(String, String), PodEntry> {
        self.lock().clone()
    }

    pub(super) fn forget_node(&self, node: &str) {
        self.lock().retain(|_, pod| pod.node != node);
    }

    pub(super) fn lose_namespaces(&self, node: &str) {
        for pod in self.lock().values_mut().filter(|pod| pod.node == node) {
            pod.has_namespace = false;
        }
    }

    /// Takes a pod for one request.
    fn take(&self, key: &(String, String)) -> Result<PodEntry, LabError> {
        let mut known = self.lock();
        let name = || format!("{}/{}", key.0, key.1);
        let pod = known.get_mut(key).ok_or_else(|| LabError::NoPod(name()))?;
        if std::mem::replace(&mut pod.busy, true) {
            return Err(LabError::PodBusy(name()));
        }
        Ok(pod.clone())
    }

    fn put_back(&self, key: &(String, String)) {
        if let Some(pod) = self.lock().get_mut(key) {
            pod.busy = false;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), PodEntry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lab {
    /// Makes a namespace and runs ADD; after a failed ADD, DEL, as runtimes do.
    pub(crate) async fn add_pod(&self, spec: PodSpec) -> Result<PodView, LabError> {
        names::check("namespace", &spec.namespace, 63)?;
        names::check("pod", &spec.name, 63)?;
        let node = self.running(&spec.node)?;
        let key = (spec.namespace, spec.name);
        let pod = self.reserve(&key, &spec.node, spec.annotations)?;
        let outcome = self.set_up(&node, &key, &pod).await;
        let mut known = self.pods.lock();
        match outcome {
            Ok((result, add_us)) => {
                if let Some(pod) = known.get_mut(&key) {
                    (pod.result, pod.add_us, pod.busy) = (Some(result), add_us, false);
                }
            }
            Err(err) => {
                known.remove(&key);
                return Err(err);
            }
        }
        drop(known);
        self.pod(&key)
    }

    fn reserve(
        &self,
        key: &(String, String),
        node: &str,
        annotations: BTreeMap<String, String>,
    ) -> Result<PodEntry, LabError> {
        let container_id = container_id()?;
        let pod = PodEntry {
            node: node.to_owned(),
            netns: format!("cni-{}", &container_id[..32]),
            container_id,
            has_namespace: true,
            annotations,
            busy: true,
            result: None,
            add_us: 0,
        };
        let mut known = self.pods.lock();
        if known.contains_key(key) {
            return Err(LabError::PodExists(format!("{}/{}", key.0, key.1)));
        }
        known.insert(key.clone(), pod.clone());
        Ok(pod)
    }

    async fn set_up(
        &self,
        node: &Node,
        key: &(String, String),
        pod: &PodEntry,
    ) -> Result<(Value, u64), LabError> {
        let (maker, netns) = (node.clone(), pod.netns.clone());
        blocking(move || maker.add_pod(&netns)).await?;
        let path = pod.netns_path();
        let call = call(node, key, pod, &path);
        let begun = Instant::now();
        match call.add().await {
            Ok(result) => {
                Ok((result, u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX)))
            }
            Err(err) => {
                if let Err(err) = call.del().await {
                    tracing::warn!(err = err.chain(), "DEL after a failed ADD");
                }
                self.remove_namespace(node, pod).await?;
                Err(err)
            }
        }
    }

    /// Runs DEL and removes the namespace; the pod is forgotten when both worked.
    pub(crate) async fn delete_pod(&self, key: &(String, String)) -> Result<(), LabError> {
        let pod = self.pods.take(key)?;
        let outcome = self.tear_down(key, &pod).await;
        self.pods.put_back(key);
        outcome?;
        self.pods.lock().remove(key);
        Ok(())
    }

    async fn tear_down(&self, key: &(String, String), pod: &PodEntry) -> Result<(), LabError> {
        let node = self.running(&pod.node)?;
        call(&node, key, pod, &pod.netns_path()).del().await?;
        self.remove_namespace(&node, pod).await
    }

    /// Runs CHECK.
    pub(crate) async fn check_pod(&self, key: &(String, String)) -> Result<(), LabError> {
        let pod = self.pods.take(key)?;
        let outcome = match self.running(&pod.node) {
            Ok(node) => call(&node, key, &pod, &pod.netns_path()).check().await,
            Err(err) => Err(err),
        };
        self.pods.put_back(key);
        outcome
    }

    async fn remove_namespace(&self, node: &Node, pod: &PodEntry) -> Result<(), LabError> {
        if pod.has_namespace {
            let (node, netns) = (node.clone(), pod.netns.clone());
            blocking(move || node.remove_pod(&netns)).await?;
        }
        Ok(())
    }

    pub(super) fn running(&self, name: &str) -> Result<Node, LabError> {
        self.entry(name)?;
        if let Ok(node) = self.fabric.node(name)
            && node.is_up()
        {
            return Ok(node);
        }
        let state = self.state(name).map_or("gone", lab_cloud::InstanceState::as_str).to_owned();
        Err(LabError::NodeNotUp { node: name.to_owned(), state })
    }
}

fn call<'a>(
    node: &'a Node,
    key: &'a (String, String),
    pod: &'a PodEntry,
    netns: &'a str,
) -> Call<'a> {
    Call {
        node,
        container_id: &pod.container_id,
        netns,
        namespace: &key.0,
        name: &key.1,
        annotations: &pod.annotations,
    }
}

/// 64 hex digits, as containerd makes them.
fn container_id() -> Result<String, LabError> {
    let path = "/dev/urandom";
    let mut bytes = [0_u8; 32];
    let mut random = File::open(path).map_err(LabError::file("open", path))?;
    random.read_exact(&mut bytes).map_err(LabError::file("read", path))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
