//! Asking for a trunk.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{Concern, EniConfigKeys};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tests_eventually::eventually_async;

fn cni_nodes(world: &World) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("vpcresources.k8s.aws", "v1alpha1", "CNINode");
    Api::all_with(world.client.clone(), &ApiResource::from_gvk(&gvk))
}

fn cni_node(world: &World, spec: Value) -> Value {
    json!({
        "apiVersion": "vpcresources.k8s.aws/v1alpha1", "kind": "CNINode",
        "metadata": {"name": world.name}, "spec": spec,
    })
}

async fn has_features(world: &World, wanted: Value) -> DynamicObject {
    eventually_async(&format!("the features are {wanted}"), PATIENCE, || async {
        let node = cni_nodes(world).get_opt(&world.name).await.unwrap()?;
        (node.data["spec"]["features"] == wanted).then_some(node)
    })
    .await
}

#[tokio::test]
async fn the_feature_is_added_to_the_present_ones_on_request() {
    let world = World::new("trunk").await;
    let spec = json!({
        "features": [{"name": "Another", "value": "x"}], "tags": {"team": "a"},
        "managedBy": "vpc-resource-controller",
    });
    world.make(cni_node(&world, spec)).await;
    let mut options = world.options();
    options.branches = true;
    let adapter = Adapter::start(options);
    adapter.is_good(Concern::CniNode).await;
    has_features(&world, json!([{"name": "Another", "value": "x"}])).await;
    adapter.handle.ask_for_trunk();
    let all = json!([{"name": "Another", "value": "x"}, {"name": "SecurityGroupsForPods"}]);
    let node = has_features(&world, all.clone()).await;
    assert_eq!(node.data["spec"]["tags"], json!({"team": "a"}));
    assert_eq!(node.data["spec"]["managedBy"], "vpc-resource-controller");
    // The adapter adds the feature again after another writer removed it, and keeps that writer's additions.
    let change = json!({"spec": {"features": [{"name": "New"}]}});
    let params = PatchParams::default();
    cni_nodes(&world).patch(&world.name, &params, &Patch::Merge(change)).await.unwrap();
    has_features(&world, json!([{"name": "New"}, {"name": "SecurityGroupsForPods"}])).await;
}

#[tokio::test]
async fn a_missing_cni_node_is_awaited_and_never_created() {
    let world = World::new("no-cni-node").await;
    let mut options = world.options();
    options.branches = true;
    let mut adapter = Adapter::start(options);
    adapter.is_good(Concern::CniNode).await;
    adapter.handle.ask_for_trunk();
    let report = adapter
        .report("no CNINode", |report| report.cause.contains("CNINode no-cni-node does not exist"))
        .await;
    assert!(report.next_step.contains("VPC resource controller"), "{report:?}");
    assert!(cni_nodes(&world).get_opt(&world.name).await.unwrap().is_none());
    world.make(cni_node(&world, json!({}))).await;
    has_features(&world, json!([{"name": "SecurityGroupsForPods"}])).await;
    adapter.is_good(Concern::CniNode).await;
}

#[tokio::test]
async fn custom_networking_names_the_eni_config_first() {
    let world = World::new("trunk-custom").await;
    world
        .make(cni_node(
            &world,
            json!({"features": [
                {"name": "CustomNetworking", "value": "of-yesterday"},
            ]}),
        ))
        .await;
    let label = json!({"labels": {"k8s.amazonaws.com/eniConfig": "az-a"}});
    world.patch_node(json!({"metadata": label})).await;
    let mut options = world.options();
    options.branches = true;
    options.eni_config = Some(EniConfigKeys::default());
    let adapter = Adapter::start(options);
    adapter.handle.ask_for_trunk();
    has_features(
        &world,
        json!([{"name": "CustomNetworking", "value": "az-a"}, {"name": "SecurityGroupsForPods"}]),
    )
    .await;
}

/// Two write the list at the same time, each what it read with something added.
#[tokio::test]
async fn no_feature_of_another_writer_is_lost() {
    let world = World::new("two-writers").await;
    world.make(cni_node(&world, json!({"features": []}))).await;
    let mut options = world.options();
    options.branches = true;
    let adapter = Adapter::start(options);
    adapter.handle.ask_for_trunk();
    let ours = json!({"name": "SecurityGroupsForPods"});
    has_features(&world, json!([ours])).await;
    let nodes = cni_nodes(&world);
    for round in 0..20 {
        // Takes ours away, so that the adapter writes as well, and writes twice in a row.
        for half in ["a", "b"] {
            eventually_async("written", PATIENCE, || async {
                let mut node = nodes.get(&world.name).await.unwrap();
                let mut features = node.data["spec"]["features"].as_array().unwrap().clone();
                features.retain(|feature| *feature != ours);
                features.push(json!({"name": format!("other-{round}-{half}")}));
                node.data["spec"]["features"] = json!(features);
                nodes.replace(&world.name, &PostParams::default(), &node).await.ok()
            })
            .await;
        }
    }
    eventually_async("ours is back, and all others are there", PATIENCE, || async {
        let node = nodes.get(&world.name).await.unwrap();
        let features = node.data["spec"]["features"].as_array().unwrap().clone();
        let others = features.iter().filter(|feature| **feature != ours).count();
        assert_eq!(others, 40, "{features:?}");
        features.contains(&ours).then_some(())
    })
    .await;
}
