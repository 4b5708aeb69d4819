//! Watch of CustomResourceDefinitions, whose changes make kinds appear and disappear. It reads their metadata only.

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::watcher::{self, watcher},
};
use std::pin::pin;
use tokio::{sync::watch, time::sleep};

/// Counts every change of a definition, forever. A missed change is harmless, as absent kinds are also looked for
/// periodically.
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
