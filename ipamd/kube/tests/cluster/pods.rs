//! The facts of this node's pods.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{ClusterFact, Concern};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use serde_json::json;
use std::{cell::RefCell, collections::BTreeMap};
use tests_eventually::eventually_async;

#[tokio::test]
async fn a_pod_is_coming_from_its_binding_to_its_address() {
    let world = World::new("coming").await;
    let mut adapter = Adapter::start(world.options());
    adapter.coming(&[]).await;
    world.pod("web", json!({})).await;
    adapter.coming(&["web"]).await;
    world.pod("on-host", json!({"spec": {"hostNetwork": true}})).await;
    world.pod("elsewhere", json!({"spec": {"nodeName": "another"}})).await;
    world.pod("job", json!({})).await;
    adapter.coming(&["job", "web"]).await;
    world
        .patch_pod_status("web", json!({"podIP": "10.0.0.7", "podIPs": [{"ip": "10.0.0.7"}]}))
        .await;
    adapter.coming(&["job"]).await;
    world.patch_pod_status("job", json!({"phase": "Failed"})).await;
    adapter.coming(&[]).await;
    world.delete_pod("web").await;
    world.pod("web", json!({})).await;
    adapter.coming(&["web"]).await;
}

#[tokio::test]
async fn existing_pods_are_reported_at_once() {
    let world = World::new("before").await;
    world.pod("first", json!({})).await;
    world.pod("second", json!({})).await;
    let mut adapter = Adapter::start(world.options());
    let first = adapter
        .fact("the first list", |fact| {
            let ClusterFact::Coming(pods) = fact else { return None };
            Some(pods.len())
        })
        .await;
    assert_eq!(first, 2, "half a list is never reported");
}

#[tokio::test]
async fn the_requirements_of_a_pod_are_known_with_its_first_event() {
    let world = World::new("needs").await;
    let adapter = Adapter::start(world.options());
    let waiting = tokio::spawn({
        let (handle, pod) = (adapter.handle.clone(), world.pod_name("fast"));
        async move { handle.needs(&pod).await }
    });
    adapter.is_good(Concern::Pods).await;
    assert!(!waiting.is_finished());
    let limit = json!({"limits": {"vpc.amazonaws.com/pod-eni": "1"}});
    let containers = json!([{"name": "c", "image": "none.invalid/none", "resources": limit}]);
    let nics = json!({"k8s.amazonaws.com/nicConfig": "multi-nic-attachment"});
    world
        .pod("fast", json!({"metadata": {"annotations": nics}, "spec": {"containers": containers}}))
        .await;
    let needs = waiting.await.unwrap();
    assert!(needs.branch && needs.every_card);
    assert_eq!(adapter.handle.known_needs(&world.pod_name("fast")), Some(needs));
    assert_eq!(adapter.handle.known_needs(&world.pod_name("unknown")), None);
}

#[tokio::test]
async fn a_branch_eni_is_reported_when_it_appears_changes_and_disappears() {
    let world = World::new("branch").await;
    let mut options = world.options();
    options.branches = true;
    let mut adapter = Adapter::start(options);
    adapter.coming(&[]).await;
    let limit = json!({"limits": {"vpc.amazonaws.com/pod-eni": "1"}});
    let containers = json!([{"name": "c", "image": "none.invalid/none", "resources": limit}]);
    world.pod("secure", json!({"spec": {"containers": containers}})).await;
    let annotate = |vlan: &str| {
        let text = format!(
            r#"[{{"eniId":"eni-1","ifAddress":"0a:00:00:00:00:01","privateIp":"10.0.3.9",{vlan},
            "subnetCidr":"10.0.3.0/24","associationID":"trunk-assoc-1"}}]"#
        );
        json!({"metadata": {"annotations": {"vpc.amazonaws.com/pod-eni": text}}})
    };
    for (spelling, vlan) in [("\"vlanId\":3", 3), ("\"vlanID\":4", 4)] {
        world.patch_pod("secure", annotate(spelling)).await;
        let told = adapter
            .fact("the branch", |fact| {
                let ClusterFact::Branch { pod, branch: Some(branch), .. } = fact else {
                    return None;
                };
                Some((pod.clone(), branch.clone()))
            })
            .await;
        assert_eq!((told.0, told.1.vlan), (world.pod_name("secure"), vlan));
    }
    world.delete_pod("secure").await;
    let gone = adapter
        .fact("the branch is gone", |fact| {
            let ClusterFact::Branch { pod, branch: None, .. } = fact else { return None };
            Some(pod.clone())
        })
        .await;
    assert_eq!(gone, world.pod_name("secure"));
}

#[tokio::test]
async fn an_invalid_branch_annotation_is_reported_and_is_an_event_of_the_pod() {
    let world = World::new("malformed").await;
    let mut options = world.options();
    options.branches = true;
    let mut adapter = Adapter::start(options);
    let annotations = json!({"vpc.amazonaws.com/pod-eni": "[{\"eniId\":\"eni-1\"}]"});
    let pod = world.pod("odd", json!({"metadata": {"annotations": annotations}})).await;
    let report = adapter.report("the annotation", |report| report.concern == Concern::Branch).await;
    assert_eq!(report.object, "pod malformed/odd");
    assert!(report.cause.contains("ifAddress") && !report.next_step.is_empty(), "{report:?}");
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.name);
    let event = eventually_async("the event", PATIENCE, || async {
        events.list(&Default::default()).await.unwrap().items.into_iter().next()
    })
    .await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.regarding.unwrap().uid, pod.metadata.uid);
    // Other pods continue.
    world.pod("web", json!({})).await;
    adapter.coming(&["odd", "web"]).await;
}

#[tokio::test]
async fn a_long_annotation_and_a_negative_prefix_length_get_one_refusal_each() {
    let world = World::new("oversized").await;
    let mut options = world.options();
    options.branches = true;
    let mut adapter = Adapter::start(options);
    adapter.coming(&[]).await;
    let annotate = |subnet: &str, association: &str| {
        let text = format!(
            r#"[{{"eniId":"eni-1","ifAddress":"0a:00:00:00:00:01","privateIp":"10.0.3.9","vlanId":3,
            "subnetCidr":"{subnet}","associationID":"{association}"}}]"#
        );
        json!({"metadata": {"annotations": {"vpc.amazonaws.com/pod-eni": text}}})
    };
    // Valid JSON of valid fields, but long. The API server accepts annotations of 256 KiB.
    let long = annotate("10.0.3.0/24", &"x".repeat(250_000));
    let negative = annotate("10.0.3.0/-1", "trunk-assoc-1");
    let good = annotate("10.0.3.0/24", "trunk-assoc-1");
    let pods = tokio::join!(
        world.pod("long", long),
        world.pod("negative", negative),
        world.pod("good", good)
    );

    let received = RefCell::new(BTreeMap::new());
    let branches = adapter
        .fact("a fact about each pod", |fact| {
            if let ClusterFact::Branch { pod, branch, .. } = fact {
                received.borrow_mut().insert(pod.name.clone(), branch.clone());
            }
            let complete = received.borrow().len() == 3;
            complete.then(|| received.take())
        })
        .await;
    assert_eq!(branches["good"].as_ref().unwrap().vlan, 3);
    assert_eq!((&branches["long"], &branches["negative"]), (&None, &None));

    let received = RefCell::new(BTreeMap::new());
    adapter
        .report("a report about each refused pod", |report| {
            if report.concern == Concern::Branch {
                received.borrow_mut().insert(report.object.clone(), report.clone());
            }
            received.borrow().len() == 2
        })
        .await;
    let reports = received.take();
    let expected = [
        ("long", &pods.0, "the maximum is 16384"),
        ("negative", &pods.1, "subnetCidr \"10.0.3.0/-1\" is not valid"),
    ];
    for (name, _, cause) in expected {
        let report = &reports[&format!("pod oversized/{name}")];
        assert!(report.cause.contains(cause) && report.cause.len() < 200, "{report:?}");
        assert!(report.next_step.contains("VPC resource controller"), "{report:?}");
    }
    let api: Api<Event> = Api::namespaced(world.client.clone(), &world.name);
    let list = || async { api.list(&Default::default()).await.unwrap().items };
    eventually_async("two events", PATIENCE, || async { (list().await.len() == 2).then_some(()) })
        .await;

    // A later pod is served. By then each refusal has still one report and one event.
    world.pod("later", json!({})).await;
    adapter.coming(&["good", "later", "long", "negative"]).await;
    while let Ok(report) = adapter.reports.try_recv() {
        assert_ne!(report.concern, Concern::Branch, "a second report: {report:?}");
    }
    let events = list().await;
    assert_eq!(events.len(), 2, "{events:?}");
    for (name, pod, cause) in expected {
        let of_pod = |event: &&Event| {
            event.regarding.as_ref().is_some_and(|regarding| regarding.uid == pod.metadata.uid)
        };
        let event = events.iter().find(of_pod).unwrap_or_else(|| panic!("{name}: {events:?}"));
        let note = event.note.as_deref().unwrap_or_default();
        assert!(note.contains(cause) && note.len() < 400, "{name}: {note}");
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert!(event.series.is_none(), "{name}: the event was sent again");
    }
}
