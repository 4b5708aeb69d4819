//! How the API server finds the replica that people are to ask, and knows its certificate: the holder of the Lease, since
//! nodes report to it. It leads the Service to itself, and keeps the APIService.

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use view_policy::{GROUP, VERSION};

/// How long the API server may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often the authority is compared with the one that is registered.
const LOOK: Duration = Duration::from_secs(30);
/// Who registers, as the API server names it.
const MANAGER: &str = "ferrule-controller";
/// Behind the cluster's own kinds, before nothing in particular.
const PRIORITY: u32 = 2_000;

/// What is registered, and where from.
pub(crate) struct Registered {
    pub(crate) client: Client,
    /// Of the Service and the ConfigMap.
    pub(crate) namespace: String,
    /// The Service that leads to the replicas.
    pub(crate) service: String,
    /// Its port.
    pub(crate) port: u16,
    /// The ConfigMap with the authority's certificates; none if whoever made the certificate registers its
    /// authority.
    pub(crate) authority: Option<String>,
    /// Where this replica answers, if that is an address that a Service may lead to.
    pub(crate) at: Option<SocketAddr>,
}

impl Registered {
    /// Registers while this replica leads, and again whenever the authority changes.
    pub(crate) async fn keep(self, mut leads: watch::Receiver<bool>) {
        let mut backoff = crate::api::backoff();
        let mut said = String::new();
        while leads.wait_for(|leads| *leads).await.is_ok() {
            match timeout(ANSWER, self.register()).await.context("there is no answer in time") {
                Ok(Ok(())) => {
                    said.clear();
                    backoff.reset();
                    sleep(LOOK).await;
                }
                Err(error) | Ok(Err(error)) => {
                    let error = format!("{error:#}");
                    if error != said {
                        tracing::warn!(error, "the API for people is not registered");
                        said = error;
                    }
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    async fn register(&self) -> Result<()> {
        if let Some(at) = self.at {
            let kind = GroupVersionKind::gvk("discovery.k8s.io", "v1", "EndpointSlice");
            let resource = ApiResource::from_gvk(&kind);
            let all = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
            apply(&all, "EndpointSlice", &self.slice(at)).await?;
        }
        let Some(authority) = &self.authority else { return Ok(()) };
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get(authority).await;
        let map = map.with_context(|| format!("get ConfigMap {authority}"))?;
        let pem = map.data.unwrap_or_default().remove("ca.crt");
        let pem =
            pem.with_context(|| format!("ConfigMap {}/{authority} has no ca.crt", self.namespace))?;
        let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let all = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        apply(&all, "APIService", &self.object(&format!("{VERSION}.{GROUP}"), &pem)).await
    }

    /// Where the Service leads: here.
    fn slice(&self, at: SocketAddr) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": self.service,
                "labels": {
                    "kubernetes.io/service-name": self.service,
                    "endpointslice.kubernetes.io/managed-by": MANAGER,
                },
            },
            "addressType": if at.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{ "addresses": [at.ip().to_string()], "conditions": { "ready": true } }],
            "ports": [{ "name": "https", "protocol": "TCP", "port": at.port() }],
        })
    }

    fn object(&self, name: &str, authority: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": name },
            "spec": {
                "group": GROUP, "version": VERSION,
                "groupPriorityMinimum": PRIORITY, "versionPriority": 15,
                "caBundle": BASE64_STANDARD.encode(authority),
                "service": {
                    "namespace": self.namespace, "name": self.service, "port": self.port,
                },
            },
        })
    }
}

/// Makes an object what is wanted, if it is not.
async fn apply(all: &Api<DynamicObject>, kind: &str, wanted: &Value) -> Result<()> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let there = all.get_opt(name).await.with_context(|| format!("get {kind} {name}"))?;
    if there.is_some_and(|there| same(&json!(there), wanted)) {
        return Ok(());
    }
    let params = PatchParams::apply(MANAGER).force();
    let applied = all.patch(name, &params, &Patch::Apply(wanted)).await;
    applied.with_context(|| format!("apply {kind} {name}"))?;
    tracing::info!(kind, name, "people are led here");
    Ok(())
}

/// Where everything that is wanted is there; the server adds defaults.
fn same(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| there.get(key).is_some_and(|there| same(there, wanted))),
        (Value::Array(there), Value::Array(wanted)) => {
            let pairs = there.iter().zip(wanted);
            there.len() == wanted.len()
                && pairs.into_iter().all(|(there, wanted)| same(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}
