//! The election of a collector.

use crate::world::{Adapter, PATIENCE, World};
use ipamd_kube::{ClusterFact, Concern, Election, LeasePace, Options};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::time::Duration;
use tests_eventually::eventually_async;

fn stands(world: &World, identity: &str) -> Options {
    let mut options = world.options();
    options.pods = false;
    options.election = Some(Election {
        node_group: world.name.clone(),
        identity: identity.to_owned(),
        pace: LeasePace {
            lease: Duration::from_secs(8),
            give_up: Duration::from_secs(5),
            renew: Duration::from_millis(400),
            look: Duration::from_millis(400),
        },
    });
    options
}

async fn leads(adapter: &mut Adapter, wanted: bool) {
    adapter
        .fact(&format!("leads: {wanted}"), |fact| {
            let ClusterFact::Collector(leads) = fact else { return None };
            (*leads == wanted).then_some(())
        })
        .await;
}

async fn holder(world: &World) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let name = format!("ferrule-leaked-eni-collector-{}", world.name);
    leases.get_opt(&name).await.unwrap()?.spec?.holder_identity
}

#[tokio::test]
async fn one_leads_and_the_next_one_follows_when_it_stops() {
    let world = World::new("elected").await;
    let mut first = Adapter::start(stands(&world, "first"));
    leads(&mut first, true).await;
    assert_eq!(holder(&world).await.as_deref(), Some("first"));
    let mut second = Adapter::start(stands(&world, "second"));
    second.is_good(Concern::Election).await;
    // For more than a lease's time nothing changes: the first one renews.
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), "kube-system");
    let name = "ferrule-leaked-eni-collector-elected";
    let renewed = || async { leases.get(name).await.unwrap().spec.unwrap().renew_time.unwrap() };
    let start = renewed().await;
    eventually_async("renewals for longer than the lease", PATIENCE, || async {
        (renewed().await.0.duration_since(start.0).as_secs() > 8).then_some(())
    })
    .await;
    assert_eq!(holder(&world).await.as_deref(), Some("first"));
    first.handle.stop().await;
    leads(&mut first, false).await;
    leads(&mut second, true).await;
    assert_eq!(holder(&world).await.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_disconnected_leader_steps_down_before_another_leads() {
    let world = World::new("cut-off").await;
    let forwarder = world.forwarder(true).await;
    let mut options = stands(&world, "first");
    options.endpoint = Some(forwarder.url());
    let mut first = Adapter::start(options);
    leads(&mut first, true).await;
    let mut second = Adapter::start(stands(&world, "second"));
    second.is_good(Concern::Election).await;
    forwarder.shut();
    tokio::select! {
        biased;
        () = leads(&mut first, false) => {}
        () = leads(&mut second, true) => panic!("two lead at once"),
    }
    leads(&mut second, true).await;
    forwarder.open();
    first.is_good(Concern::Election).await;
    assert_eq!(holder(&world).await.as_deref(), Some("second"));
    while let Ok(fact) = first.facts.try_recv() {
        assert_ne!(fact, ClusterFact::Collector(true), "it is the second one's");
    }
}

#[tokio::test]
async fn a_crashed_leader_is_replaced_when_its_lease_expires() {
    let world = World::new("crashed").await;
    let mut first = Adapter::start(stands(&world, "first"));
    leads(&mut first, true).await;
    drop(first);
    assert_eq!(holder(&world).await.as_deref(), Some("first"), "it had no time to give it back");
    let mut second = Adapter::start(stands(&world, "second"));
    leads(&mut second, true).await;
}
