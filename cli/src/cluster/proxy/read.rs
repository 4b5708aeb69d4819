//! The objects that the plan depends on, from the API server, and the answers of agents.

use super::{args::ServicesCluster, cleaner};
use crate::{
    cluster::{
        api::{Api, Selector},
        forward::{self, PodPort},
        parallel,
    },
    progress::Progress,
};
use anyhow::Result;
use cli_migrate::services::{
    Observation, Serving, Unread,
    objects::{Objects, config_maps, metrics_port, services_with_sctp},
};
use policy_kube::KubeError;
use serde_json::Value;
use service_objects::SERVICE_LABEL;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub(super) struct Reader<'a> {
    api: &'a Api,
    cluster: &'a ServicesCluster,
    objects: Objects,
    /// True if Services, configurations and other networks were read since the last step.
    has_inputs: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(api: &'a Api, cluster: &'a ServicesCluster) -> Self {
        Self { api, cluster, objects: Objects::default(), has_inputs: false }
    }

    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Reads all objects at the next call.
    pub(super) fn forget(&mut self) {
        self.has_inputs = false;
    }

    /// Reads the objects that the steps change. After a step it also reads those that only the checks use.
    pub(super) async fn read(&mut self) -> Result<()> {
        let ServicesCluster { daemonset, kube_proxy, kube_proxy_namespace: theirs, .. } =
            self.cluster;
        let own = self.api.namespace.clone();
        let set = |namespace: &str, name: &str| {
            format!("/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")
        };
        let saved = format!("/api/v1/namespaces/{own}/configmaps/{}", cleaner::SAVED);
        let saved = self.get(&saved, "configmap").await?;
        let mut read = Objects {
            ferrule: self.get(&set(&own, daemonset), "daemonset").await?,
            kube_proxy: self.get(&set(theirs, kube_proxy), "daemonset").await?,
            cleaner: self.get(&set(&own, cleaner::NAME), "daemonset").await?,
            saved: saved.as_ref().and_then(cleaner::manifest),
            nodes: self.list("/api/v1/nodes", Selector::All, "nodes").await?,
            ..Objects::default()
        };
        for namespace in BTreeSet::from([&own, theirs]) {
            let path = format!("/api/v1/namespaces/{namespace}/pods");
            read.pods.extend(self.list(&path, Selector::All, "pods").await?);
        }
        if self.has_inputs {
            let earlier = std::mem::take(&mut self.objects);
            self.objects = Objects {
                ferrule: read.ferrule,
                kube_proxy: read.kube_proxy,
                cleaner: read.cleaner,
                saved: read.saved,
                nodes: read.nodes,
                pods: read.pods,
                ..earlier
            };
            return Ok(());
        }
        self.objects = read;
        self.read_inputs().await?;
        self.has_inputs = true;
        Ok(())
    }

    /// Reads the objects that only the checks use.
    async fn read_inputs(&mut self) -> Result<()> {
        self.objects.services = self.list("/api/v1/services", Selector::All, "services").await?;
        for name in services_with_sctp(&self.objects.services) {
            let namespace = name.namespace;
            let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
            let label = format!("{SERVICE_LABEL}={}", name.name);
            let slices = self.list(&path, Selector::Label(&label), "endpointslices").await?;
            self.objects.slices.extend(slices);
        }
        let mut unread = Vec::new();
        let sets = "/apis/apps/v1/daemonsets";
        match self.list(sets, Selector::All, "daemonsets").await {
            Ok(sets) => self.objects.daemon_sets = sets,
            Err(error) => unread.push(not_read("DaemonSets of other networks", &error)),
        }
        match self.list(TARGET_GROUPS, Selector::All, "targetgroupbindings").await {
            Ok(groups) => self.objects.target_groups = groups,
            // The cluster has no AWS Load Balancer Controller.
            Err(KubeError::NotFound { .. }) => {}
            Err(error) => unread.push(not_read("targetgroupbindings", &error)),
        }
        match self.kube_proxy_config().await {
            Ok(config) => self.objects.kube_proxy_config = config,
            Err(error) => unread.push(not_read("the configuration of kube-proxy", &error)),
        }
        match self.cilium_config().await {
            Ok(config) => self.objects.cilium = config,
            Err(error) => unread.push(not_read("configmap cilium-config", &error)),
        }
        self.objects.unread = unread;
        Ok(())
    }

    /// Returns the configuration that kube-proxy's pods mount; `None` if no mounted ConfigMap has one.
    async fn kube_proxy_config(&self) -> Result<Option<Value>, KubeError> {
        let Some(set) = &self.objects.kube_proxy else { return Ok(None) };
        let namespace = &self.cluster.kube_proxy_namespace;
        for name in config_maps(set) {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
            let Some(map) = self.get(&path, "configmap").await? else { continue };
            if let Some(config) = configuration(&map) {
                return Ok(Some(config));
            }
        }
        Ok(None)
    }

    async fn cilium_config(&self) -> Result<Option<Value>, KubeError> {
        let runs = |set: &&Value| {
            let containers = set["spec"]["template"]["spec"]["containers"].as_array();
            containers.into_iter().flatten().any(|it| it["name"] == "cilium-agent")
        };
        let Some(set) = self.objects.daemon_sets.iter().find(runs) else { return Ok(None) };
        let namespace = set["metadata"]["namespace"].as_str().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/cilium-config");
        self.get(&path, "configmap").await
    }

    /// Asks the agents of nodes for the state of their Services.
    pub(super) async fn ask(
        &self,
        seen: &Observation,
        nodes: &BTreeSet<String>,
        progress: &mut Progress,
    ) -> Result<Vec<(String, Serving)>> {
        let pods: BTreeMap<&str, &Value> = self
            .objects
            .pods
            .iter()
            .filter_map(|pod| Some((pod["metadata"]["uid"].as_str()?, pod)))
            .collect();
        let (mut calls, mut found) = (Vec::new(), Vec::new());
        for name in nodes {
            let Some(agent) = seen.nodes.get(name).and_then(|node| node.agent.as_ref()) else {
                continue;
            };
            let pod = agent.pod.clone();
            let Some(port) = pods.get(agent.uid.as_str()).and_then(|pod| metrics_port(pod)) else {
                let why = format!("the metrics of {pod} are off; set nodeAgent.metricsBindAddr");
                found.push((name.clone(), Serving::Unknown(why)));
                continue;
            };
            let (client, namespace) = (self.api.client(), self.api.namespace.clone());
            let within = Duration::from_secs(self.cluster.target.timeout);
            let name = name.clone();
            calls.push(async move {
                let at = PodPort { namespace: &namespace, pod: &pod, port };
                let page = forward::get(&client, &at, "/metrics", within).await;
                (name, serving(page, &pod))
            });
        }
        found.extend(parallel::all(calls, "calling agents", progress).await?);
        Ok(found)
    }

    /// Returns an object; `None` if it does not exist.
    async fn get(&self, path: &str, what: &str) -> Result<Option<Value>, KubeError> {
        match self.api.get(path, what).await {
            Err(KubeError::NotFound { .. }) => Ok(None),
            read => read.map(Some),
        }
    }

    async fn list(
        &self,
        path: &str,
        selector: Selector<'_>,
        what: &str,
    ) -> Result<Vec<Value>, KubeError> {
        self.api.list(path, selector, what).await
    }
}

fn serving(page: Result<Vec<u8>, String>, pod: &str) -> Serving {
    let page = match page {
        Ok(page) => page,
        Err(why) => return Serving::Unknown(format!("cannot read metrics of {pod}: {why}")),
    };
    match view_cluster::Serving::of_metrics(&String::from_utf8_lossy(&page)) {
        Some(view_cluster::Serving::Metrics { services, failing, lag }) => {
            Serving::Known { services, failing, lag }
        }
        Some(_) | None => Serving::Unknown(format!("the metrics of {pod} have no Services")),
    }
}

/// Returns the document of the kind KubeProxyConfiguration in a ConfigMap.
fn configuration(map: &Value) -> Option<Value> {
    let values = map["data"].as_object().into_iter().flat_map(|data| data.values());
    let mut documents = values
        .filter_map(Value::as_str)
        .filter_map(|text| serde_saphyr::from_str::<Value>(text).ok());
    documents.find(|document| document["kind"] == "KubeProxyConfiguration")
}

fn not_read(object: &str, error: &KubeError) -> Unread {
    Unread { object: object.to_owned(), cause: error.to_string() }
}

const TARGET_GROUPS: &str = "/apis/elbv2.k8s.aws/v1beta1/targetgroupbindings";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_configuration_of_kube_proxy_is_found_in_its_config_map() {
        let kubeconfig = "apiVersion: v1\nkind: Config\n";
        let config = "kind: KubeProxyConfiguration\nmode: nftables\nconntrack:\n  maxPerCore: 0\n";
        let map = json!({ "data": { "kubeconfig.conf": kubeconfig, "config.conf": config } });
        let found = configuration(&map).unwrap_or_default();
        assert_eq!(
            (&found["mode"], &found["conntrack"]["maxPerCore"]),
            (&"nftables".into(), &0.into())
        );
        assert_eq!(configuration(&json!({ "data": { "kubeconfig.conf": kubeconfig } })), None);
        assert_eq!(configuration(&json!({})), None);
    }

    #[test]
    fn metrics_of_an_agent_are_its_state() {
        let page = "ferrule_agent_held{kind=\"service\"} 7\nferrule_agent_failing_services 1\n\
                    ferrule_agent_backend_lag 2\n";
        let known = serving(Ok(page.as_bytes().to_vec()), "ferrule-a");
        assert_eq!(known, Serving::Known { services: 7, failing: 1, lag: 2 });
        for page in [Ok(b"up 1\n".to_vec()), Err("no answer within 10 s".to_owned())] {
            let unknown = serving(page, "ferrule-a");
            assert!(
                matches!(&unknown, Serving::Unknown(why) if why.contains("ferrule-a")),
                "{unknown:?}"
            );
        }
    }
}
