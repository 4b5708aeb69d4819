//! A policy that another client updates all the time.

use crate::{
    agent::Agent,
    replica::Replica,
    world::{PATIENCE, World, antrea_policy, pod},
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::json;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tests_eventually::eventually_async;
use tokio::time::{Instant, sleep};

/// Number of concurrent writers. Between any two requests of the controller one of them writes.
const OTHERS: usize = 4;

/// Writers of the policy, which run until they are stopped.
struct Others {
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Others {
    fn start(world: &World, name: &'static str) -> Self {
        let gvk = GroupVersionKind::gvk("crd.antrea.io", "v1beta1", "ClusterNetworkPolicy");
        let resource = ApiResource::from_gvk(&gvk);
        let others = Self { stop: Arc::default(), written: Arc::default() };
        for _ in 0..OTHERS {
            let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
            let (stop, written) = (others.stop.clone(), others.written.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let number = written.fetch_add(1, Ordering::SeqCst);
                    let patch = json!({"metadata": {"annotations": {"n": number.to_string()}}});
                    // A write of these clients may also be refused.
                    let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
                }
            });
        }
        others
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_conflicting_status_write_is_retried_with_the_new_version() {
    let world = World::new().await;
    world.define("crd.antrea.io").await;
    let node = world.node("n1").await;
    let antrea = antrea_policy("antrea", "web");
    world.make(antrea.clone()).await;
    world.make(pod("default", "web-1", "n1", "web")).await;
    let replica = Replica::start(&world.kubeconfig, &[]).await;
    replica.ready().await;
    let token = world.token(&node, "ferrule-controller").await;
    let mut agent = Agent::new(token, &world.bundle().await);
    agent.begins(replica.at).await;
    let here = replica.at.to_string();
    agent.until("reports come here", |agent| agent.reports_to == here).await;
    agent.until("the policy", |agent| agent.policies() == ["antrea"]).await;
    let others = Others::start(&world, "antrea");
    agent.reports(true, &[("antrea", "broken")]).await;
    let refused = || async {
        let label = "outcome=\"refused\"";
        let count = replica.metric("ferrule_controller_statuses_total", label).await;
        (count >= 1.0).then_some(())
    };
    let mut is_well = false;
    let last = Instant::now() + PATIENCE;
    while refused().await.is_none() {
        // The status was written between two of their writes. Another report makes another status due.
        let now = world.get(&antrea).await.unwrap()["status"]["currentNodesRealized"].clone();
        if now == u64::from(is_well) {
            is_well = !is_well;
            let says = if is_well { "" } else { "broken" };
            agent.report(false, &[("antrea", says)]).await.unwrap();
        }
        assert!(Instant::now() < last, "no status was refused");
        sleep(Duration::from_millis(100)).await;
    }
    drop(others);
    agent.report(false, &[("antrea", "")]).await.unwrap();
    let object = eventually_async("it is realized", PATIENCE, || async {
        let object = world.get(&antrea).await?;
        (object["status"]["phase"] == "Realized").then_some(object)
    })
    .await;
    assert_eq!(object["status"]["currentNodesRealized"], 1);
    assert!(object["metadata"]["annotations"]["n"].is_string(), "what the others wrote stays");
}
