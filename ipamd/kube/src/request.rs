//! A single request with a deadline.

use crate::fault::Fault;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use runtime_apiserver::Backoff;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Debug, future::Future, time::Duration};
use tokio::time::timeout;

/// The pauses between attempts.
pub(crate) fn backoff() -> Backoff {
    Backoff::between(PAUSE_FIRST, PAUSE_LAST)
}

/// The answer, or the failure.
pub(crate) async fn in_time<T>(
    verb: &str,
    resource: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Fault> {
    match timeout(LONGEST, request).await {
        Ok(answer) => answer.map_err(|error| Fault::of(&error, verb, resource)),
        Err(_) => Err(Fault::late(verb, resource)),
    }
}

/// Patches an object. `resource` is its name in RBAC rules.
pub(crate) async fn patch<K, P>(
    api: &Api<K>,
    name: &str,
    resource: &str,
    patch: &Patch<P>,
) -> Result<K, Fault>
where
    K: Clone + DeserializeOwned + Debug,
    P: Serialize + Debug,
{
    let params = PatchParams::default();
    in_time("patch", resource, api.patch(name, &params, patch)).await
}

pub(crate) async fn create<K>(api: &Api<K>, resource: &str, object: &K) -> Result<K, Fault>
where
    K: Clone + DeserializeOwned + Debug + Serialize,
{
    let params = PostParams::default();
    in_time("create", resource, api.create(&params, object)).await
}

/// Replaces an object of the same version.
pub(crate) async fn replace<K>(
    api: &Api<K>,
    name: &str,
    resource: &str,
    object: &K,
) -> Result<K, Fault>
where
    K: Clone + DeserializeOwned + Debug + Serialize,
{
    let params = PostParams::default();
    in_time("update", resource, api.replace(name, &params, object)).await
}

const LONGEST: Duration = Duration::from_secs(10);
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LAST: Duration = Duration::from_secs(30);
