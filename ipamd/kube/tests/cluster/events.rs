//! Events.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{Concern, EventKind, PodEvent};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::json;
use std::time::Duration;
use tests_eventually::eventually_async;

fn failed(world: &World, pod: &str, note: &str) -> PodEvent {
    PodEvent {
        pod: world.pod_name(pod),
        kind: EventKind::Warning,
        reason: "FailedAddressAssignment".to_owned(),
        action: "AssignAddress".to_owned(),
        note: note.to_owned(),
    }
}

async fn events(world: &World) -> Vec<Event> {
    let api: Api<Event> = Api::namespaced(world.client.clone(), &world.name);
    api.list(&ListParams::default()).await.unwrap().items
}

#[tokio::test]
async fn a_failed_add_is_an_event_of_the_pod_and_repeats_are_counted() {
    let world = World::new("events").await;
    let mut options = world.options();
    options.event_spacing = Duration::from_millis(200);
    let mut adapter = Adapter::start(options);
    let pod = world.pod("web", json!({})).await;
    adapter.coming(&["web"]).await;
    let note = "subnet-1 has 0 free addresses; add a subnet or free addresses";
    adapter.handle.event(failed(&world, "web", note));
    let event = eventually_async("the event", PATIENCE, || async {
        events(&world).await.into_iter().next()
    })
    .await;
    let regarding = event.regarding.unwrap();
    assert_eq!(regarding.uid, pod.metadata.uid, "kubectl describe looks for it by uid");
    assert_eq!(regarding.kind.as_deref(), Some("Pod"));
    assert_eq!(event.reason.as_deref(), Some("FailedAddressAssignment"));
    assert_eq!(event.note.as_deref(), Some(note));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reporting_instance.as_deref(), Some("events"));
    for _ in 0..5 {
        adapter.handle.event(failed(&world, "web", note));
    }
    eventually_async("all six are in the series", PATIENCE, || async {
        let all = events(&world).await;
        assert_eq!(all.len(), 1);
        (all[0].series.as_ref()?.count == 6).then_some(())
    })
    .await;
    adapter.is_good(Concern::Events).await;
}

#[tokio::test]
async fn a_storm_is_bounded() {
    let world = World::new("storm").await;
    let adapter = Adapter::start(world.options());
    for pod in 0..60 {
        adapter.handle.event(failed(&world, &format!("web-{pod}"), "no address"));
    }
    adapter.is_good(Concern::Events).await;
    eventually_async("the burst", PATIENCE, || async {
        (events(&world).await.len() >= 25).then_some(())
    })
    .await;
    // Events beyond the burst are written one by one, seconds apart.
    assert!(events(&world).await.len() < 35);
}

#[tokio::test]
async fn an_event_for_a_deleted_namespace_blocks_no_other() {
    let world = World::new("gone-namespace").await;
    let adapter = Adapter::start(world.options());
    let mut nowhere = failed(&world, "web", "no address");
    nowhere.pod.namespace = "nowhere-at-all".to_owned();
    adapter.handle.event(nowhere);
    adapter.handle.event(failed(&world, "web", "no address"));
    eventually_async("the other one", PATIENCE, || async {
        events(&world).await.into_iter().next()
    })
    .await;
    adapter.is_good(Concern::Events).await;
}

#[tokio::test]
async fn a_missing_permission_is_an_event_of_the_daemons_pod_or_of_the_node() {
    let world = World::new("permission").await;
    for daemon_pod in [Some("ferrule-x1"), None] {
        let mut options = world.options();
        options.namespace = Some(world.name.clone());
        options.daemon_pod = daemon_pod.map(str::to_owned);
        let adapter = Adapter::start(options);
        adapter.handle.missing_permission("AssignPrivateIpAddresses", "not authorized");
        let namespace = if daemon_pod.is_some() { world.name.as_str() } else { "default" };
        let api: Api<Event> = Api::namespaced(world.client.clone(), namespace);
        let event = eventually_async("the event", PATIENCE, || async {
            let all = api.list(&ListParams::default()).await.unwrap().items;
            all.into_iter().find(|event| event.reporting_instance.as_deref() == Some("permission"))
        })
        .await;
        assert_eq!(event.reason.as_deref(), Some("MissingIAMPermissions"));
        assert_eq!(event.action.as_deref(), Some("AssignPrivateIpAddresses"));
        let about = event.regarding.unwrap();
        assert_eq!(about.name.as_deref(), Some(daemon_pod.unwrap_or("permission")));
    }
}
