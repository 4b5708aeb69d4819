//! The APIService, by which the API server finds the replicas and knows their certificate.

use crate::backoff::Backoff;
use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use policy_view::{GROUP, VERSION};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

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
    /// The ConfigMap with the authority's certificates.
    pub(crate) authority: String,
}

impl Registered {
    /// Registers while this replica leads, and again whenever the authority changes.
    pub(crate) async fn keep(self, mut leads: watch::Receiver<bool>) {
        let mut backoff = Backoff::default();
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
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get(&self.authority).await;
        let map = map.with_context(|| format!("get ConfigMap {}", self.authority))?;
        let authority = map.data.unwrap_or_default().remove("ca.crt");
        let authority = authority.with_context(|| {
            format!("ConfigMap {}/{} has no ca.crt", self.namespace, self.authority)
        })?;
        let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let all: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let name = format!("{VERSION}.{GROUP}");
        let wanted = self.object(&name, &authority);
        let there = all.get_opt(&name).await.with_context(|| format!("get APIService {name}"))?;
        if there.is_some_and(|there| same(&there.data["spec"], &wanted["spec"])) {
            return Ok(());
        }
        let params = PatchParams::apply(MANAGER).force();
        let applied = all.patch(&name, &params, &Patch::Apply(&wanted)).await;
        applied.with_context(|| format!("apply APIService {name}"))?;
        tracing::info!(name, "the API for people is registered");
        Ok(())
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

/// Where everything that is wanted is there; the server adds defaults.
fn same(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| there.get(key).is_some_and(|there| same(there, wanted))),
        (there, wanted) => there == wanted,
    }
}
