//! The facts of the node object, and the writes to it.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{ClusterFact, Concern, EniConfig, EniConfigKeys, PoolHealth};
use k8s_openapi::api::core::v1::NodeCondition;
use serde_json::{Value, json};
use std::time::Duration;
use tests_eventually::eventually_async;

fn health(healthy: bool, reason: &str) -> PoolHealth {
    PoolHealth { healthy, reason: reason.to_owned(), message: format!("because {reason}") }
}

#[tokio::test]
async fn changes_of_capacity_and_cordon_are_reported() {
    let world = World::new("node-facts").await;
    let mut adapter = Adapter::start(world.options());
    let max_pods = |fact: &ClusterFact| {
        let ClusterFact::MaxPods(pods) = fact else { return None };
        Some(*pods)
    };
    let schedulable = |fact: &ClusterFact| {
        let ClusterFact::Schedulable(schedulable) = fact else { return None };
        Some(*schedulable)
    };
    assert_eq!(adapter.fact("max pods", max_pods).await, 17);
    assert!(adapter.fact("schedulable", schedulable).await);
    world.patch_node_status(json!({"capacity": {"pods": "29"}})).await;
    assert_eq!(adapter.fact("max pods", max_pods).await, 29);
    let cordon = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    world.patch_node(json!({"spec": {"taints": cordon}})).await;
    assert!(!adapter.fact("cordoned", schedulable).await);
    world.patch_node(json!({"spec": {"taints": null}})).await;
    assert!(adapter.fact("uncordoned", schedulable).await);
}

#[tokio::test]
async fn the_nodes_eni_config_follows_label_annotation_and_object() {
    let world = World::new("custom").await;
    let mut options = world.options();
    options.eni_config = Some(EniConfigKeys::default());
    let mut adapter = Adapter::start(options);
    let config = |fact: &ClusterFact| {
        let ClusterFact::EniConfig(config) = fact else { return None };
        Some(config.clone())
    };
    let missing = |config: EniConfig| {
        let EniConfig::Missing { name, why } = config else { panic!("{config:?}") };
        (name, why)
    };
    let found = |config: EniConfig| {
        let EniConfig::Found { name, subnet, groups } = config else { panic!("{config:?}") };
        (name, subnet.to_string(), groups.len())
    };
    let object = |spec: Value| {
        json!({
            "apiVersion": "crd.k8s.amazonaws.com/v1alpha1", "kind": "ENIConfig",
            "metadata": {"name": "custom-a"}, "spec": spec,
        })
    };
    let (name, why) = missing(adapter.fact("no name", config).await);
    assert_eq!(name, "default");
    assert!(why.contains("does not exist"), "{why}");
    let label = json!({"labels": {"k8s.amazonaws.com/eniConfig": "custom-a"}});
    world.patch_node(json!({"metadata": label})).await;
    assert_eq!(missing(adapter.fact("no object", config).await).0, "custom-a");
    world.make(object(json!({"subnet": "", "securityGroups": ["sg-1"]}))).await;
    let (_, why) = missing(adapter.fact("no subnet", config).await);
    assert!(why.contains("spec.subnet"), "{why}");
    world.make(object(json!({"subnet": "subnet-a", "securityGroups": ["sg-1", "sg-2"]}))).await;
    let now = found(adapter.fact("found", config).await);
    assert_eq!(now, ("custom-a".to_owned(), "subnet-a".to_owned(), 2));
    world.make(object(json!({"subnet": "subnet-b"}))).await;
    let now = found(adapter.fact("changed", config).await);
    assert_eq!(now, ("custom-a".to_owned(), "subnet-b".to_owned(), 0));
    let external = json!({"labels": {"vpc.amazonaws.com/externalEniConfig": "external"}});
    world.patch_node(json!({"metadata": external})).await;
    assert_eq!(missing(adapter.fact("external goes first", config).await).0, "external");
}

#[tokio::test]
async fn the_condition_is_written_beside_the_others() {
    let world = World::new("condition").await;
    let kubelets = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    world.patch_node_status(json!({"conditions": kubelets})).await;
    let mut options = world.options();
    options.condition = true;
    let adapter = Adapter::start(options.clone());
    let condition = |status: &'static str, reason: &'static str| {
        let nodes = world.nodes();
        let name = world.name.clone();
        async move {
            eventually_async(&format!("condition {status} {reason}"), PATIENCE, || async {
                let node = nodes.get(&name).await.unwrap();
                let all = node.status.unwrap().conditions.unwrap_or_default();
                assert!(all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
                let fits = |c: &NodeCondition| {
                    c.type_ == "IPPoolHealthy"
                        && c.status == status
                        && c.reason.as_deref() == Some(reason)
                };
                all.into_iter().find(fits)
            })
            .await
        }
    };
    adapter.handle.pool(health(false, "NoAddress"));
    let first = condition("False", "NoAddress").await;
    assert_eq!(first.message.as_deref(), Some("because NoAddress"));
    adapter.handle.pool(health(true, "AddressesFree"));
    let second = condition("True", "AddressesFree").await;
    adapter.handle.stop().await;
    drop(adapter);
    // The next daemon finds it as it is, and keeps since when it holds.
    let next = Adapter::start(options);
    next.handle.pool(health(true, "Idle"));
    let third = condition("True", "Idle").await;
    assert_eq!(third.last_transition_time, second.last_transition_time);
}

#[tokio::test]
async fn a_condition_that_does_not_change_is_written_again_and_again() {
    let world = World::new("heartbeat").await;
    let mut options = world.options();
    assert_eq!(options.condition_beat, Duration::from_secs(300), "as kubelet");
    options.condition = true;
    options.condition_beat = Duration::from_secs(1);
    let adapter = Adapter::start(options);
    adapter.handle.pool(health(true, "AddressesFree"));
    let newer_than = |before: Option<NodeCondition>| {
        let (nodes, name) = (world.nodes(), world.name.clone());
        async move {
            eventually_async("the condition is written", PATIENCE, || async {
                let status = nodes.get(&name).await.unwrap().status.unwrap();
                let mut all = status.conditions.unwrap_or_default().into_iter();
                let ours = all.find(|c| c.type_ == "IPPoolHealthy")?;
                let beat = |condition: &NodeCondition| condition.last_heartbeat_time.clone();
                before.as_ref().is_none_or(|before| beat(&ours) > beat(before)).then_some(ours)
            })
            .await
        }
    };
    let first = newer_than(None).await;
    let second = newer_than(Some(first.clone())).await;
    let third = newer_than(Some(second)).await;
    let said = |condition: NodeCondition| {
        let NodeCondition { status, reason, message, last_transition_time, .. } = condition;
        (status, reason, message, last_transition_time)
    };
    assert_eq!(said(third), said(first), "nothing but the time is new");
}

#[tokio::test]
async fn the_startup_taint_is_removed_when_the_pool_is_ready_and_others_stay() {
    let world = World::new("tainted").await;
    let key = "ferrule.io/not-ready";
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "x", "effect": effect});
    let taints = [
        taint(key, "NoSchedule"),
        taint("dedicated", "NoSchedule"),
        taint(key, "NoExecute"),
        taint("other", "PreferNoSchedule"),
    ];
    world.patch_node(json!({"spec": {"taints": taints}})).await;
    let mut options = world.options();
    options.startup_taint = Some(key.to_owned());
    let adapter = Adapter::start(options);
    let keys = || async {
        let node = world.nodes().get(&world.name).await.unwrap();
        let taints = node.spec.unwrap().taints.unwrap_or_default();
        taints.into_iter().map(|taint| taint.key).collect::<Vec<String>>()
    };
    adapter.handle.pool(health(false, "NoAddress"));
    adapter.is_good(Concern::Node).await;
    assert_eq!(keys().await.len(), 4, "the pool cannot serve");
    adapter.handle.pool(health(true, "AddressesFree"));
    eventually_async("the taint is gone", PATIENCE, || async {
        (keys().await == ["dedicated", "other"]).then_some(())
    })
    .await;
    adapter.is_good(Concern::Taint).await;
}

#[tokio::test]
async fn taints_that_change_meanwhile_are_never_lost() {
    let world = World::new("taint-race").await;
    let key = "ferrule.io/not-ready";
    let mut options = world.options();
    options.startup_taint = Some(key.to_owned());
    let adapter = Adapter::start(options);
    adapter.handle.pool(health(true, "AddressesFree"));
    let nodes = world.nodes();
    for round in 0..12 {
        // The adapter removes by place; here the places move all the time.
        let mut taints = vec![json!({"key": key, "effect": "NoSchedule"})];
        for other in 0..=round % 4 {
            let taint = json!({"key": format!("other-{round}-{other}"), "effect": "NoSchedule"});
            if round % 2 == 0 { taints.push(taint) } else { taints.insert(0, taint) }
        }
        world.patch_node(json!({"spec": {"taints": taints}})).await;
        let expected = taints.len() - 1;
        eventually_async("ours is gone", PATIENCE, || async {
            let node = nodes.get(&world.name).await.unwrap();
            let now = node.spec.unwrap().taints.unwrap_or_default();
            let others = now.iter().filter(|taint| taint.key != key).count();
            assert_eq!(others, expected, "{now:?}");
            (now.len() == expected).then_some(())
        })
        .await;
    }
}
