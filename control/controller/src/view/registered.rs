//! Registration of the aggregated API. The lease holder serves it, as nodes report to that replica. It writes the
//! EndpointSlice of the Service, and the APIService with the authority.

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

/// Timeout of a registration.
const ANSWER: Duration = Duration::from_secs(10);
/// Interval at which the registered authority is compared.
const LOOK: Duration = Duration::from_secs(30);
/// Field manager.
const MANAGER: &str = "ferrule-controller";
/// Group priority, below that of built-in groups.
const PRIORITY: u32 = 2_000;

/// Content of the registration.
pub(crate) struct Registered {
    pub(crate) client: Client,
    /// Namespace of the Service and the ConfigMap.
    pub(crate) namespace: String,
    /// The Service of the replicas.
    pub(crate) service: String,
    /// The port of the Service.
    pub(crate) port: u16,
    /// The ConfigMap with the authority's certificates. `None` if the certificate comes from files: then the operator
    /// registers the authority.
    pub(crate) authority: Option<String>,
    /// This replica's address; `None` if a Service cannot have it.
    pub(crate) at: Option<SocketAddr>,
}

impl Registered {
    /// Registers while this replica leads, and again whenever the authority changes.
    pub(crate) async fn keep(self, mut leads: watch::Receiver<bool>) {
        let mut backoff = crate::api::backoff();
        let mut last_error = String::new();
        while leads.wait_for(|leads| *leads).await.is_ok() {
            match timeout(ANSWER, self.register()).await.context("no answer in time") {
                Ok(Ok(())) => {
                    last_error.clear();
                    backoff.reset();
                    sleep(LOOK).await;
                }
                Err(error) | Ok(Err(error)) => {
                    let error = format!("{error:#}");
                    if error != last_error {
                        tracing::warn!(error, "cannot register the aggregated API");
                        last_error = error;
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
        let map = map.with_context(|| format!("cannot get ConfigMap {authority}"))?;
        let pem = map.data.unwrap_or_default().remove("ca.crt");
        let pem =
            pem.with_context(|| format!("ConfigMap {}/{authority} has no ca.crt", self.namespace))?;
        let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let all = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        apply(&all, "APIService", &self.object(&format!("{VERSION}.{GROUP}"), &pem)).await
    }

    /// Returns the EndpointSlice with this replica as the only endpoint.
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

/// Applies an object if the existing one differs.
async fn apply(all: &Api<DynamicObject>, kind: &str, desired: &Value) -> Result<()> {
    let name = desired["metadata"]["name"].as_str().unwrap_or_default();
    let there = all.get_opt(name).await.with_context(|| format!("cannot get {kind} {name}"))?;
    if there.is_some_and(|there| same(&json!(there), desired)) {
        return Ok(());
    }
    let params = PatchParams::apply(MANAGER).force();
    let applied = all.patch(name, &params, &Patch::Apply(desired)).await;
    applied.with_context(|| format!("cannot apply {kind} {name}"))?;
    tracing::info!(kind, name, "aggregated API registered");
    Ok(())
}

/// True if the existing object contains all desired fields. The server adds defaults.
fn same(there: &Value, desired: &Value) -> bool {
    match (there, desired) {
        (Value::Object(there), Value::Object(desired)) => desired
            .iter()
            .all(|(key, desired)| there.get(key).is_some_and(|there| same(there, desired))),
        (Value::Array(there), Value::Array(desired)) => {
            let pairs = there.iter().zip(desired);
            there.len() == desired.len()
                && pairs.into_iter().all(|(there, desired)| same(there, desired))
        }
        (there, desired) => there == desired,
    }
}
