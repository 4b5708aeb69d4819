//! The answers to the plugin's STATUS and GC.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
};
use config_model::PodKey;
use ipamd_rpc::{Collect, PoolStatus, Released};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tests_eventually::{PATIENCE, eventually};

#[test]
fn the_status_names_the_obstacle_of_an_add() {
    let node = TestNode::new(FakeCloud::new(2)).with("FERRULE_ADD_WAIT", "1");
    node.cloud.state().imds = false;
    let daemon = node.start();
    eventually("the start to be reported", PATIENCE, || {
        let status = node.status();
        status.impaired.is_empty()
            && status.unavailable.iter().any(|why| why.contains("the metadata service"))
    });
    node.cloud.state().imds = true;
    eventually("the pool to serve", PATIENCE, || node.status() == PoolStatus::default());
    let first = key("a");
    node.add(&first);
    node.add(&key("b"));
    node.reserve(&key("c"), Duration::from_secs(40));
    eventually("the full subnet to be reported", PATIENCE, || {
        let status = node.status();
        status.impaired.is_empty()
            && status.unavailable.iter().any(|why| why.contains("no_usable_address"))
    });
    node.release(&first);
    eventually("the pool to serve again", PATIENCE, || node.status() == PoolStatus::default());
    daemon.terminate();
}

#[test]
fn gc_releases_unlisted_reservations_except_running_adds_and_other_networks() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let (kept, stale, adding) = (key("kept"), key("stale"), key("adding"));
    let other = PodKey::new("other-net", "stale", "eth0").expect("a key");
    node.add(&kept);
    let held = node.add(&stale);
    node.add(&other);
    node.reserve(&adding, Duration::from_secs(40));
    let list = Collect { network: kept.network.clone(), valid: BTreeSet::from([kept.clone()]) };
    let collected = node.collect(list.clone());
    assert_eq!(collected.released, BTreeMap::from([(stale.clone(), vec![held.clone()])]));
    assert_eq!(collected.spared, BTreeSet::from([adding.clone()]));
    assert_eq!(collected.failed, BTreeMap::new());
    assert_eq!(node.release(&stale), Released::Unknown);
    for pod in [&kept, &other, &adding] {
        assert!(node.held(pod).is_some(), "{pod}");
    }
    eventually("the kernel to be clean of the pod", PATIENCE, || {
        !node.is_routed(held.ipv4.expect("an IPv4 address"))
    });
    assert!(node.confirm(&adding), "the ADD continues");
    // Built and confirmed, it is as any other.
    let collected = node.collect(list);
    assert_eq!(collected.released.into_keys().collect::<Vec<_>>(), [adding]);
    daemon.terminate();
}
