//! Word of kinds that come and go: definitions are watched, by their metadata alone.

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::watcher::{self, watcher},
};
use std::pin::pin;
use tokio::{sync::watch, time::sleep};

/// Counts every change of a definition, for ever. A change that is missed does no harm: absent kinds are
/// looked for from time to time as well.
pub(crate) async fn count(client: Client, changes: watch::Sender<u64>) {
    let mut backoff = crate::api::backoff();
    loop {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client.clone());
        let mut events = pin!(watcher(api, watcher::Config::default()));
        while let Some(Ok(_)) = events.next().await {
            backoff.reset();
            changes.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
        sleep(backoff.pause()).await;
    }
}
