//! The removal of the startup taint.

use crate::{
    Concern, PoolHealth, fault::Kind, node::Seen, request, status_reporter::StatusReporter, wire,
};
use json_patch::{Patch as JsonPatch, PatchOperation, RemoveOperation, TestOperation, jsonptr};
use kube::{Api, Client, api::Patch};
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

/// Waits until the pool is ready, and removes the taints with this key, then and whenever one returns.
pub(crate) async fn run(
    client: Client,
    name: String,
    key: String,
    mut node: watch::Receiver<Seen>,
    mut health: watch::Receiver<Option<PoolHealth>>,
    status: StatusReporter,
) {
    let api = Api::<wire::Node>::all(client);
    status.waiting(Concern::Taint, "a ready pool");
    let mut backoff = request::backoff();
    loop {
        let serves = health.borrow_and_update().as_ref().is_some_and(|health| health.healthy);
        let seen = node.borrow_and_update().clone();
        if let Some(seen) = seen.filter(|_| serves) {
            let Some(patch) = removal(&seen.taints, &key) else {
                status.good(Concern::Taint, &key);
                if !changed(&mut node, &mut health).await {
                    return;
                }
                continue;
            };
            match request::patch(&api, &name, "nodes", &Patch::Json::<()>(patch)).await {
                Ok(_) => backoff.reset(),
                // Another writer changed the taints: the watch delivers them.
                Err(fault) if matches!(fault.kind, Kind::Invalid | Kind::Conflict) => {}
                Err(fault) => {
                    status.failing(Concern::Taint, &key, &fault);
                    sleep(backoff.pause()).await;
                    continue;
                }
            }
        }
        tokio::select! {
            more = changed(&mut node, &mut health) => if !more { return },
            // A node without changes delivers no newer taints, so this retries.
            () = sleep(backoff.pause()), if serves => {}
        }
    }
}

async fn changed(
    node: &mut watch::Receiver<Seen>,
    health: &mut watch::Receiver<Option<PoolHealth>>,
) -> bool {
    tokio::select! {
        changed = node.changed() => changed.is_ok(),
        changed = health.changed() => changed.is_ok(),
    }
}

/// Removes the taints with this key if each is still at its index. From the last to the first, so that the
/// indexes of the others stay valid.
fn removal(taints: &[Value], key: &str) -> Option<JsonPatch> {
    let ours = taints.iter().enumerate().filter(|(_, taint)| taint["key"] == key);
    let operations: Vec<PatchOperation> = ours
        .rev()
        .flat_map(|(index, taint)| {
            let path = jsonptr::PointerBuf::from_tokens(["spec", "taints", &index.to_string()]);
            [
                PatchOperation::Test(TestOperation { path: path.clone(), value: taint.clone() }),
                PatchOperation::Remove(RemoveOperation { path }),
            ]
        })
        .collect();
    (!operations.is_empty()).then_some(JsonPatch(operations))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_taints_with_the_key_are_removed() {
        let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
        let (ours, other) = ("ferrule.io/not-ready", "dedicated");
        let taints = [
            taint(ours, "NoSchedule"),
            taint(other, "NoSchedule"),
            taint(ours, "NoExecute"),
            taint("node.kubernetes.io/unreachable", "NoExecute"),
        ];
        let mut node = json!({"spec": {"taints": taints}});
        json_patch::patch(&mut node, &removal(&taints, ours).unwrap()).unwrap();
        assert_eq!(node["spec"]["taints"], json!([taints[1], taints[3]]));
        assert_eq!(removal(&taints[1..2], ours), None);
    }

    #[test]
    fn a_patch_for_changed_taints_changes_nothing() {
        let seen = [json!({"key": "k", "effect": "NoSchedule"})];
        let patch = removal(&seen, "k").unwrap();
        let now = json!({"spec": {"taints": [{"key": "other", "effect": "NoExecute"}, seen[0]]}});
        let mut node = now.clone();
        assert!(json_patch::patch(&mut node, &patch).is_err());
        assert_eq!(node, now);
    }
}
