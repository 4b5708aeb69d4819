//! The generated rights are enough, each is needed, and each that is missing takes away its own
//! purpose alone.

use crate::world::{Adapter, PATIENCE, World, apply};
use config_crds::{CLUSTER_RIGHTS, RIGHTS_IN_NAMESPACE, Right};
use ipamd_kube::{
    ClusterFact, Concern, ConcernState, Election, EniConfig, EniConfigKeys, EventKind, LeasePace,
    Options, PodEvent, PoolHealth, Replicas,
};
use serde_json::{Value, json};
use std::{env, path::PathBuf, time::Duration};
use tests_cluster::Identity;
use tests_eventually::eventually_async;

/// Everything that can be asked for.
fn everything(world: &World, kubeconfig: PathBuf, identity: &str) -> Options {
    let mut options = world.options();
    options.kubeconfig = Some(kubeconfig);
    options.branches = true;
    options.eni_config = Some(EniConfigKeys::default());
    options.annotate_pod_ip = true;
    options.condition = true;
    let service = ("kube-system".to_owned(), "ferrule-controller".to_owned());
    let file = env::temp_dir().join(format!("ferrule-replicas-{identity}-{}", std::process::id()));
    options.replicas = Some(Replicas { service, file });
    options.startup_taint = Some("ferrule.io/not-ready".to_owned());
    options.event_spacing = Duration::from_millis(50);
    let pace = LeasePace {
        lease: Duration::from_secs(3),
        give_up: Duration::from_secs(2),
        renew: Duration::from_millis(100),
        look: Duration::from_millis(100),
    };
    let identity = identity.to_owned();
    options.election = Some(Election { node_group: identity.clone(), identity, pace });
    options
}

/// Things to do for every concern.
async fn work(world: &World, adapter: &Adapter, round: usize) {
    let pod = format!("web-{round}");
    world.pod(&pod, json!({})).await;
    let key = json!([{"key": "ferrule.io/not-ready", "effect": "NoSchedule"}]);
    world.patch_node(json!({"spec": {"taints": key}})).await;
    world
        .make(json!({
            "apiVersion": "vpcresources.k8s.aws/v1alpha1", "kind": "CNINode",
            "metadata": {"name": world.name}, "spec": {"features": []},
        }))
        .await;
    adapter.handle.pod_has(world.pod_name(&pod), [10, 0, 0, 7].into());
    adapter.handle.ask_for_trunk();
    adapter.handle.pool(PoolHealth {
        healthy: true,
        reason: "AddressesFree".to_owned(),
        message: format!("in round {round}"),
    });
}

fn event(world: &World) -> PodEvent {
    PodEvent {
        pod: world.pod_name("web"),
        kind: EventKind::Normal,
        reason: "Test".to_owned(),
        action: "Test".to_owned(),
        note: "text".to_owned(),
    }
}

const CONCERNS: [Concern; 10] = [
    Concern::Pods,
    Concern::Node,
    Concern::Replicas,
    Concern::EniConfig,
    Concern::CniNode,
    Concern::Events,
    Concern::PodIps,
    Concern::Condition,
    Concern::Taint,
    Concern::Election,
];

#[tokio::test]
async fn the_generated_permissions_suffice() {
    let world = World::new("enough").await;
    let adapter = Adapter::start(everything(&world, world.kubeconfig.clone(), "enough"));
    work(&world, &adapter, 0).await;
    adapter.handle.event(event(&world));
    adapter.handle.event(event(&world));
    for concern in CONCERNS {
        adapter.is_good(concern).await;
    }
}

#[tokio::test]
async fn each_missing_permission_is_named_and_disables_only_its_own_feature() {
    let world = World::new("missing-rights").await;
    let cluster = cluster_rights();
    let all = cluster.iter().chain(RIGHTS_IN_NAMESPACE);
    let each = all.flat_map(|right| right.verbs.iter().map(move |verb| (*right, *verb)));
    for (round, (right, verb)) in each.enumerate() {
        let name = format!("lacks-{round}");
        let kubeconfig = user_without(&world, &name, right, verb).await;
        let mut adapter = Adapter::start(everything(&world, kubeconfig, &name));
        work(&world, &adapter, round).await;
        let resource = match right.group {
            "" => right.resource.to_owned(),
            group => format!("{}.{group}", right.resource),
        };
        let wanted = format!("allow the daemon's service account to {verb} {resource}");
        // Repeats make the series that events/patch is for.
        let asking = tokio::spawn({
            let (handle, event) = (adapter.handle.clone(), event(&world));
            async move {
                loop {
                    handle.event(event.clone());
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        });
        let report = adapter.report(&wanted, |report| report.next_step == wanted).await;
        let hit = report.concern;
        for concern in CONCERNS {
            // Without pods there is no pod to annotate. Without the node there are no taints and no name of an
            // ENIConfig.
            let follows: &[Concern] = if hit == Concern::Pods {
                &[Concern::PodIps]
            } else if hit == Concern::Node {
                &[Concern::Taint, Concern::CniNode]
            } else {
                &[]
            };
            if concern != hit && !follows.contains(&concern) {
                let state =
                    eventually_async(&format!("{wanted}: {concern} works"), PATIENCE, || async {
                        let all = adapter.handle.concern_states().borrow().clone();
                        all.get(&concern).filter(|now| **now == ConcernState::Good).cloned()
                    })
                    .await;
                assert_eq!(state, ConcernState::Good);
            }
        }
        asking.abort();
        adapter.handle.stop().await;
    }
}

#[tokio::test]
async fn an_eni_config_without_read_permission_is_reported_as_missing() {
    let world = World::new("unread").await;
    let of = |right: &&Right| right.resource == "eniconfigs";
    let right = *CLUSTER_RIGHTS.iter().find(of).unwrap();
    let kubeconfig = user_without(&world, "unread", right, "list").await;
    let mut adapter = Adapter::start(everything(&world, kubeconfig, "unread"));
    let why = adapter
        .fact("it is missing", |fact| {
            let ClusterFact::EniConfig(EniConfig::Missing { why, .. }) = fact else { return None };
            Some(why.clone())
        })
        .await;
    assert!(why.contains("cannot list eniconfigs"), "{why}");
}

/// The rights in all namespaces without those of `FERRULE_SERVICES`, which include the right to the controller's slices.
fn cluster_rights() -> Vec<Right> {
    let serves = |right: &&Right| ["services", "endpointslices"].contains(&right.resource);
    CLUSTER_RIGHTS.iter().filter(|right| !serves(right)).copied().collect()
}

/// A user with all rights but one.
async fn user_without(world: &World, name: &str, lacking: Right, verb: &str) -> PathBuf {
    let rules = |rights: &[Right]| -> Vec<Value> {
        let left = |right: &Right| -> Vec<&str> {
            let lacks = |have: &&str| *right == lacking && *have == verb;
            right.verbs.iter().copied().filter(|have| !lacks(have)).collect()
        };
        let rule = |right: &Right| {
            json!({
                "apiGroups": [right.group], "resources": [right.resource], "verbs": left(right),
            })
        };
        rights.iter().filter(|right| !left(right).is_empty()).map(rule).collect()
    };
    let api = "rbac.authorization.k8s.io";
    for (kind, rights, namespace) in [
        ("ClusterRole", &*cluster_rights(), None),
        ("Role", RIGHTS_IN_NAMESPACE, Some("kube-system")),
    ] {
        let metadata = json!({"name": name, "namespace": namespace});
        let role = json!({
            "apiVersion": format!("{api}/v1"), "kind": kind, "metadata": metadata,
            "rules": rules(rights),
        });
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": name}],
        });
        apply(&world.client, role).await;
        apply(&world.client, binding).await;
    }
    world.cluster.get().kubeconfig_of(name, &Identity::user(name)).unwrap()
}
