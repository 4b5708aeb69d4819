//! One policy's status, in the cluster.

use crate::{
    fault::{Fault, Sort},
    kinds,
    log_limiter::LogLimiter,
    metrics::Metrics,
};
use control_status::{
    Outcome, Realization, Write,
    render::{OURS, object, status},
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions},
    core::GroupVersionKind,
};
use policy_core::PolicyKey;
use policy_objects::Kind;
use serde_json::Value;
use std::{future::Future, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// How long a request may take.
const ANSWER: Duration = Duration::from_secs(4);
/// How often the objects of the one before are looked for, if they cannot be listed.
const LOOKS: usize = 5;
/// As many of them are listed at once.
const PAGE: u32 = 500;

/// Writes statuses.
pub(super) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
    said: LogLimiter,
}

impl Writer {
    pub(super) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics, said: LogLimiter::default() }
    }

    /// The UIDs of the NetworkPolicies of which there is an object of ours; nothing if they cannot be listed, for
    /// one because their kind is absent.
    pub(super) async fn ours(&self) -> Option<Vec<String>> {
        let mut backoff = crate::api::backoff();
        for _ in 0..LOOKS {
            match self.listed().await {
                Ok(uids) => return Some(uids),
                Err(fault) if fault.sort == Sort::NotFound => return None,
                Err(fault) => self.say(&fault),
            }
            sleep(backoff.pause()).await;
        }
        None
    }

    async fn listed(&self) -> Result<Vec<String>, Fault> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ours());
        let mut params = ListParams::default().limit(PAGE);
        let mut uids = Vec::new();
        loop {
            let page = ask("list", &ours().plural, api.list(&params)).await?;
            let owners = page.items.iter().flat_map(|object| object.owner_references());
            uids.extend(owners.map(|owner| owner.uid.clone()));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(uids),
            }
        }
    }

    /// Writes what is due of a policy.
    pub(super) async fn write(&self, write: &Write) -> Outcome {
        let written = match (write.key.kind, &write.says) {
            (Kind::NetworkPolicy, Some(says)) => self.put(&write.key, &write.uid, says).await,
            (Kind::NetworkPolicy, None) => self.remove(&write.key).await,
            (_, Some(says)) => self.status(&write.key, &write.uid, says).await,
            (_, None) => Ok(Outcome::Stands),
        };
        let outcome = written.unwrap_or_else(|fault| match fault.sort {
            Sort::NotFound => Outcome::Nowhere,
            Sort::Conflict => Outcome::Refused,
            Sort::Unreachable | Sort::Forbidden | Sort::Expired | Sort::Other => {
                self.say(&fault);
                Outcome::Refused
            }
        });
        self.metrics.wrote(match outcome {
            Outcome::Stands => "written",
            Outcome::Refused => "refused",
            Outcome::Nowhere => "nowhere",
        });
        outcome
    }

    /// Of a kind that has a status: what others say in it stays.
    async fn status(
        &self,
        key: &PolicyKey,
        uid: &str,
        says: &Realization,
    ) -> Result<Outcome, Fault> {
        let resource = of(key.kind);
        let api = self.api(&resource, key);
        let Some(mut object) = ask("get", &resource.plural, api.get_opt(&key.name)).await? else {
            return Ok(Outcome::Nowhere);
        };
        if object.uid().as_deref() != Some(uid) {
            // Another of its name: that has its own.
            return Ok(Outcome::Nowhere);
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(is) = status(key.kind, says, &object.data["status"], &now) else {
            return Ok(Outcome::Stands);
        };
        object.data["status"] = is;
        let params = PostParams::default();
        let write = api.replace_status(&key.name, &params, &object);
        ask("update", &format!("{}/status", resource.plural), write).await?;
        Ok(Outcome::Stands)
    }

    /// Our object of a NetworkPolicy.
    async fn put(&self, key: &PolicyKey, uid: &str, says: &Realization) -> Result<Outcome, Fault> {
        let (resource, params) = (ours(), PostParams::default());
        let api = self.api(&resource, key);
        let wanted = object(key, uid, says);
        let mut wanted: DynamicObject = serde_json::from_value(wanted)
            .map_err(|error| Fault::odd("write", &resource.plural, &error.to_string()))?;
        let found = ask("get", &resource.plural, api.get_opt(&key.name)).await?;
        match found {
            Some(found) if is_same(&found, &wanted) => {}
            Some(found) => {
                wanted.metadata.resource_version = found.metadata.resource_version;
                ask("update", &resource.plural, api.replace(&key.name, &params, &wanted)).await?;
            }
            None => drop(ask("create", &resource.plural, api.create(&params, &wanted)).await?),
        }
        Ok(Outcome::Stands)
    }

    async fn remove(&self, key: &PolicyKey) -> Result<Outcome, Fault> {
        let resource = ours();
        let api = self.api(&resource, key);
        let Some(found) = ask("get", &resource.plural, api.get_opt(&key.name)).await? else {
            return Ok(Outcome::Stands);
        };
        // Not one that another replica has made meanwhile.
        let preconditions = Preconditions { uid: found.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match ask("delete", &resource.plural, api.delete(&key.name, &params)).await {
            Err(fault) if fault.sort != Sort::NotFound => Err(fault),
            Ok(_) | Err(_) => Ok(Outcome::Stands),
        }
    }

    fn api(&self, resource: &ApiResource, key: &PolicyKey) -> Api<DynamicObject> {
        if key.namespace.is_empty() {
            Api::all_with(self.client.clone(), resource)
        } else {
            Api::namespaced_with(self.client.clone(), &key.namespace, resource)
        }
    }

    fn say(&self, fault: &Fault) {
        if let Some(unsaid) = self.said.now() {
            let Fault { cause, next_step, .. } = fault;
            tracing::warn!(cause, next_step, unsaid, "a status is not written");
        }
    }
}

fn is_same(found: &DynamicObject, wanted: &DynamicObject) -> bool {
    let status = |object: &DynamicObject| -> Value { object.data["status"].clone() };
    status(found) == status(wanted)
        && found.metadata.owner_references == wanted.metadata.owner_references
}

fn of(kind: Kind) -> ApiResource {
    let version = kind.api_version();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, kind.name());
    ApiResource::from_gvk_with_plural(&gvk, kinds::plural(kind))
}

fn ours() -> ApiResource {
    let (group, version, kind) = OURS;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    ApiResource::from_gvk_with_plural(&gvk, "networkpolicyrealizations")
}

async fn ask<T>(
    verb: &str,
    resource: &str,
    asked: impl Future<Output = kube::Result<T>>,
) -> Result<T, Fault> {
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| Fault::of(&error, verb, resource)),
        Err(_) => Err(Fault::late(verb, resource)),
    }
}
