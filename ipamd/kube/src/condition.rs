//! The node condition `IPPoolHealthy`.

use crate::{
    Concern, PoolHealth, node::Seen, request::in_time, status_reporter::StatusReporter, wire,
};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use std::time::Duration;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

/// Writes the condition after each change, and periodically so that its age shows that the daemon lives. It is
/// never removed: an old condition has more information than none.
pub(crate) async fn run(
    client: Client,
    name: String,
    mut node: watch::Receiver<Seen>,
    mut health: watch::Receiver<Option<PoolHealth>>,
    beat: Duration,
    status: StatusReporter,
) {
    let api = Api::<wire::Node>::all(client);
    status.waiting(Concern::Condition, "the first report of the pool");
    let mut backoff = crate::request::backoff();
    let mut next_beat = Instant::now();
    // An existing condition has the time of its last change. Without the Node object that time is now.
    drop(timeout(SIGHT, node.wait_for(Option::is_some)).await);
    let mut written = None;
    loop {
        let wanted = health.borrow_and_update().clone();
        let Some(wanted) = wanted else {
            if health.changed().await.is_err() {
                return;
            }
            continue;
        };
        let before = node.borrow().as_ref().and_then(|node| node.condition.clone());
        let changes = before.as_ref().is_none_or(|before| !matches_health(before, &wanted));
        // The watch may lag behind the last write.
        let before = written.take().or(before);
        if changes || Instant::now() >= next_beat {
            let patch = condition(&wanted, before.as_ref(), Timestamp::now());
            let (params, patch) = (PatchParams::default(), Patch::Strategic(&patch));
            let write = api.patch_status(&name, &params, &patch);
            match in_time("patch", "nodes/status", write).await {
                Ok(node) => {
                    written = node.condition;
                    backoff.reset();
                    next_beat = Instant::now() + beat;
                    status.good(Concern::Condition, wire::CONDITION);
                }
                Err(fault) => {
                    status.failing(Concern::Condition, wire::CONDITION, &fault);
                    sleep(backoff.pause()).await;
                    continue;
                }
            }
            // Each write is an event for all watchers of nodes.
            sleep(SPACING).await;
        }
        tokio::select! {
            changed = health.changed() => if changed.is_err() { return },
            () = sleep_until(next_beat) => {}
        }
    }
}

fn matches_health(condition: &wire::Condition, health: &PoolHealth) -> bool {
    condition.status == status(health)
        && condition.reason == health.reason
        && condition.message == health.message
}

fn status(health: &PoolHealth) -> &'static str {
    if health.healthy { "True" } else { "False" }
}

/// The patch. The API server merges conditions by type, so others stay unchanged.
fn condition(
    health: &PoolHealth,
    before: Option<&wire::Condition>,
    now: Timestamp,
) -> serde_json::Value {
    let now = format!("{now:.0}");
    let unchanged = before.filter(|before| before.status == status(health));
    let since = unchanged.and_then(|before| before.last_transition_time.clone());
    json!({ "status": { "conditions": [{
        "type": wire::CONDITION,
        "status": status(health),
        "reason": health.reason,
        "message": health.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since.unwrap_or_else(|| now.clone()),
    }] } })
}

/// The longest wait for the Node object.
const SIGHT: Duration = Duration::from_secs(5);
/// The shortest time between two writes, if the pool's state changes often.
const SPACING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let health = PoolHealth {
            healthy: true,
            reason: "AddressesFree".into(),
            message: "3 addresses are free".into(),
        };
        let now: Timestamp = "2026-11-21T12:00:00.123Z".parse().expect("a time");
        let since = |before: Option<&wire::Condition>| {
            condition(&health, before, now)["status"]["conditions"][0]["lastTransitionTime"].clone()
        };
        assert_eq!(since(None), "2026-11-21T12:00:00Z");
        let mut before = wire::Condition {
            status: "True".into(),
            last_transition_time: Some("2026-11-21T08:00:00Z".into()),
            ..wire::Condition::default()
        };
        assert_eq!(since(Some(&before)), "2026-11-21T08:00:00Z");
        before.status = "False".into();
        assert_eq!(since(Some(&before)), "2026-11-21T12:00:00Z");
    }
}
