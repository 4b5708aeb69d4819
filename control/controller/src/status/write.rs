//! Writes of one policy's status.

use crate::{
    fault::{Fault, Sort, answer_within},
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
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(4);
/// Maximum number of attempts to list the objects of the previous holder.
const LOOKS: usize = 5;
/// Page size of that list.
const PAGE: u32 = 500;

pub(super) struct Writer {
    client: Client,
    metrics: Arc<Metrics>,
    log_limiter: LogLimiter,
}

impl Writer {
    pub(super) fn new(client: Client, metrics: Arc<Metrics>) -> Self {
        Self { client, metrics, log_limiter: LogLimiter::default() }
    }

    /// Returns the UIDs of the NetworkPolicies that have an object of ours. `None` if these objects cannot be listed, for
    /// example because their kind is absent.
    pub(super) async fn ours(&self) -> Option<Vec<String>> {
        let mut backoff = crate::api::backoff();
        for _ in 0..LOOKS {
            match self.listed().await {
                Ok(uids) => return Some(uids),
                Err(fault) if fault.sort == Sort::NotFound => return None,
                Err(fault) => self.log(&fault),
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
            let page = answer_within(ANSWER, "list", &ours().plural, api.list(&params)).await?;
            let owners = page.items.iter().flat_map(|object| object.owner_references());
            uids.extend(owners.map(|owner| owner.uid.clone()));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params = params.continue_token(&next),
                None => return Ok(uids),
            }
        }
    }

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
                self.log(&fault);
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

    /// Updates the status of a kind that has one. Entries of other writers stay.
    async fn status(
        &self,
        key: &PolicyKey,
        uid: &str,
        says: &Realization,
    ) -> Result<Outcome, Fault> {
        let resource = of(key.kind);
        let api = self.api(&resource, key);
        let Some(mut object) =
            answer_within(ANSWER, "get", &resource.plural, api.get_opt(&key.name)).await?
        else {
            return Ok(Outcome::Nowhere);
        };
        if object.uid().as_deref() != Some(uid) {
            // This is another policy of the same name.
            return Ok(Outcome::Nowhere);
        }
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let Some(is) = status(key.kind, says, &object.data["status"], &now) else {
            return Ok(Outcome::Stands);
        };
        object.data["status"] = is;
        let params = PostParams::default();
        let write = api.replace_status(&key.name, &params, &object);
        answer_within(ANSWER, "update", &format!("{}/status", resource.plural), write).await?;
        Ok(Outcome::Stands)
    }

    /// Creates or updates our object of a NetworkPolicy.
    async fn put(&self, key: &PolicyKey, uid: &str, says: &Realization) -> Result<Outcome, Fault> {
        let (resource, params) = (ours(), PostParams::default());
        let api = self.api(&resource, key);
        let desired = object(key, uid, says);
        let mut desired: DynamicObject = serde_json::from_value(desired)
            .map_err(|error| Fault::odd("write", &resource.plural, &error.to_string()))?;
        let found = answer_within(ANSWER, "get", &resource.plural, api.get_opt(&key.name)).await?;
        match found {
            Some(found) if is_same(&found, &desired) => {}
            Some(found) => {
                desired.metadata.resource_version = found.metadata.resource_version;
                answer_within(
                    ANSWER,
                    "update",
                    &resource.plural,
                    api.replace(&key.name, &params, &desired),
                )
                .await?;
            }
            None => drop(
                answer_within(ANSWER, "create", &resource.plural, api.create(&params, &desired))
                    .await?,
            ),
        }
        Ok(Outcome::Stands)
    }

    async fn remove(&self, key: &PolicyKey) -> Result<Outcome, Fault> {
        let resource = ours();
        let api = self.api(&resource, key);
        let Some(found) =
            answer_within(ANSWER, "get", &resource.plural, api.get_opt(&key.name)).await?
        else {
            return Ok(Outcome::Stands);
        };
        // An object that another replica has created meanwhile stays.
        let preconditions = Preconditions { uid: found.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match answer_within(ANSWER, "delete", &resource.plural, api.delete(&key.name, &params))
            .await
        {
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

    fn log(&self, fault: &Fault) {
        if let Some(suppressed) = self.log_limiter.now() {
            let Fault { cause, next_step, .. } = fault;
            tracing::warn!(cause, next_step, suppressed, "cannot write status");
        }
    }
}

fn is_same(found: &DynamicObject, desired: &DynamicObject) -> bool {
    let status = |object: &DynamicObject| -> Value { object.data["status"].clone() };
    status(found) == status(desired)
        && found.metadata.owner_references == desired.metadata.owner_references
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
