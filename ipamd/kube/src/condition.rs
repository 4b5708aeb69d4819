//! The node condition `IPPoolHealthy`.

use crate::{Concern, PoolHealth, node::Seen, request::in_time, teller::Teller, wire};
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

/// Writes the condition when it changes, and now and then so that its age tells that we live. It is
/// never removed: one that is old says more than none.
pub(crate) async fn run(
    client: Client,
    name: String,
    mut node: watch::Receiver<Seen>,
    mut health: watch::Receiver<Option<PoolHealth>>,
    beat: Duration,
    teller: Teller,
) {
    let api = Api::<wire::Node>::all(client);
    teller.waiting(Concern::Condition, "the first word of the pool");
    let mut backoff = crate::request::backoff();
    let mut next_beat = Instant::now();
    // What there is says since when it holds. Without a sight of the node it begins to hold now.
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
        let changes = before.as_ref().is_none_or(|before| !says(before, &wanted));
        // The watch may not have come to what was just written.
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
                    teller.good(Concern::Condition, wire::CONDITION);
                }
                Err(fault) => {
                    teller.failing(Concern::Condition, wire::CONDITION, &fault);
                    sleep(backoff.pause()).await;
                    continue;
                }
            }
            // Each write is an event for all who watch nodes.
            sleep(SPACING).await;
        }
        tokio::select! {
            changed = health.changed() => if changed.is_err() { return },
            () = sleep_until(next_beat) => {}
        }
    }
}

fn says(condition: &wire::Condition, health: &PoolHealth) -> bool {
    condition.status == status(health)
        && condition.reason == health.reason
        && condition.message == health.message
}

fn status(health: &PoolHealth) -> &'static str {
    if health.healthy { "True" } else { "False" }
}

/// The patch: conditions are merged by type, so no other is touched.
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

/// As long the first sight of the node is waited for.
const SIGHT: Duration = Duration::from_secs(5);
/// A pool that flickers is told so seldom.
const SPACING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_change_stays_while_the_status_does() {
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
