//! Registration of the aggregated API. The lease holder serves it, as nodes report to that replica. It writes its address
//! to the EndpointSlice of the Service, and the authority to the APIService. It creates neither.

use crate::{
    fault::{Fault, answer_within},
    metrics::Metrics,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use view_policy::{GROUP, VERSION};

/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(10);
/// Interval at which both objects are written again, and the state of the APIService is read.
const LOOK: Duration = Duration::from_secs(30);
const SLICES: &str = "endpointslices.discovery.k8s.io";
const SERVICES: &str = "apiservices.apiregistration.k8s.io";
const MAPS: &str = "configmaps";

/// Content of the registration.
pub(crate) struct Registered {
    pub(crate) client: Client,
    pub(crate) metrics: Arc<Metrics>,
    /// Namespace of the Service and the ConfigMap.
    pub(crate) namespace: String,
    /// The Service of the replicas. Its EndpointSlice for IPv4 has the same name, that for IPv6 ends in `-ipv6`.
    pub(crate) service: String,
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
        let (mut last_cause, mut is_registered) = (String::new(), false);
        loop {
            if !*leads.borrow_and_update() {
                // Another replica measures the availability.
                self.metrics.view_unavailable(false);
                is_registered = false;
                if leads.wait_for(|leads| *leads).await.is_err() {
                    return;
                }
            }
            match self.register().await {
                Ok(()) => {
                    if !is_registered {
                        tracing::info!("aggregated API registered");
                    }
                    is_registered = true;
                    last_cause.clear();
                    backoff.reset();
                    if let Ok(Err(_)) = timeout(LOOK, leads.changed()).await {
                        return;
                    }
                }
                Err(Fault { cause, next_step, .. }) => {
                    is_registered = false;
                    if cause != last_cause {
                        tracing::warn!(cause, next_step, "cannot register the aggregated API");
                        last_cause = cause;
                    }
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    async fn register(&self) -> Result<(), Fault> {
        if let Some(at) = self.at {
            let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
            let name = match at {
                SocketAddr::V4(_) => self.service.clone(),
                SocketAddr::V6(_) => format!("{}-ipv6", self.service),
            };
            let object = format!("EndpointSlice {}/{name}", self.namespace);
            patch(&slices, SLICES, &object, &name, &endpoint(at)).await?;
        }
        let Some(authority) = &self.authority else { return Ok(()) };
        let pem = self.certificates(authority).await?;
        let name = format!("{VERSION}.{GROUP}");
        let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let change = json!({ "spec": { "caBundle": BASE64_STANDARD.encode(pem) } });
        let now = patch(&all, SERVICES, &format!("APIService {name}"), &name, &change).await?;
        self.metrics.view_unavailable(is_unavailable(&now.data));
        Ok(())
    }

    /// Returns the authority's certificates as PEM.
    async fn certificates(&self, authority: &str) -> Result<String, Fault> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = format!("ConfigMap {}/{authority}", self.namespace);
        let map = answer_within(ANSWER, "get", MAPS, maps.get_opt(authority)).await?;
        let map = map.ok_or_else(|| Fault::missing("get", &object))?;
        let pem = map.data.unwrap_or_default().remove("ca.crt");
        pem.ok_or_else(|| Fault::odd("get", &object, "it has no ca.crt yet"))
    }
}

/// Changes fields of an existing object. A change without effect is no write.
async fn patch<K>(
    api: &Api<K>,
    resource: &str,
    object: &str,
    name: &str,
    change: &Value,
) -> Result<K, Fault>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (params, change) = (PatchParams::default(), Patch::Merge(change));
    let asked = api.patch(name, &params, &change);
    answer_within(ANSWER, "patch", resource, asked)
        .await
        .map_err(|fault| fault.or_missing("patch", object))
}

/// Returns the part of an EndpointSlice with this replica as the only endpoint.
fn endpoint(at: SocketAddr) -> Value {
    json!({
        "endpoints": [{ "addresses": [at.ip().to_string()], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "protocol": "TCP", "port": at.port() }],
    })
}

/// True if the API server reports that it cannot reach the API. It has no report before its first attempt.
fn is_unavailable(service: &Value) -> bool {
    let conditions = service.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Available" && condition["status"] == "False")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_false_condition_is_unavailable() {
        let service = |status: &str| {
            json!({ "status": { "conditions": [
                { "type": "Other", "status": "False" }, { "type": "Available", "status": status },
            ]}})
        };
        assert!(is_unavailable(&service("False")));
        assert!(!is_unavailable(&service("True")));
        assert!(!is_unavailable(&service("Unknown")));
        assert!(!is_unavailable(&json!({})));
    }
}
