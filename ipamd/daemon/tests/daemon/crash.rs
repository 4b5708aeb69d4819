//! The state that survives the daemon, the boot and the loss of the checkpoint.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
};
use config_model::{PodName, Tombstone};
use ipamd_rpc::Released;
use std::{collections::BTreeSet, fs, net::Ipv4Addr};
use tests_eventually::{PATIENCE, eventually};

fn ipv4(held: &ipamd_rpc::PodAddress) -> Ipv4Addr {
    held.ipv4.unwrap()
}

#[test]
fn answered_requests_are_known_after_a_crash() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let pods: Vec<_> = (0..3).map(|n| key(&format!("p{n}"))).collect();
    let held: Vec<_> = pods.iter().map(|pod| node.add(pod)).collect();
    node.release(&pods[0]);
    daemon.crash();
    let daemon = node.start();
    assert_eq!(node.held(&pods[0]), None);
    for (pod, held) in pods.iter().zip(&held).skip(1) {
        assert_eq!(node.held(pod), Some((ipv4(held), true)));
        assert!(node.is_routed(ipv4(held)), "the new daemon spares the pods of the old one");
    }
    let kept: BTreeSet<Ipv4Addr> = held[1..].iter().map(ipv4).collect();
    let new: Vec<Ipv4Addr> = (0..3).map(|n| ipv4(&node.add(&key(&format!("n{n}"))))).collect();
    assert!(new.iter().all(|address| !kept.contains(address)), "{new:?} and {kept:?}");
    daemon.terminate();
}

#[test]
fn after_a_reboot_nothing_is_assigned_and_old_dels_succeed() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let pod = key("a");
    node.add(&pod);
    daemon.crash();
    // The kernel of the new boot has no state of the old pods.
    {
        let mut kernel = node.kernel.0.lock().unwrap();
        kernel.state.links.retain(|_, link| link.alias.is_none());
        kernel.state.routes.clear();
        kernel.state.rules.retain(|rule| ![512, 1536].contains(&rule.pref));
    }
    let daemon = node.start_in("boot-2");
    assert_eq!(node.held(&pod), None);
    assert_eq!(node.release(&pod), Released::Unknown);
    node.add(&key("b"));
    daemon.terminate();
}

#[test]
fn a_tombstone_is_drained_before_the_next_add() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let (down, up) = (key("down"), key("up"));
    let held = [node.add(&down), node.add(&up)];
    daemon.crash();
    let bury = |key: &config_model::PodKey| {
        let pod = PodName { namespace: "default".to_owned(), name: "x".to_owned() };
        let path = node.tombstones().join(Tombstone::file_name(key));
        let word = Tombstone::new(key.clone(), Some(pod), Vec::new());
        fs::write(&path, serde_json::to_vec(&word).unwrap()).unwrap();
        path
    };
    let first = bury(&down);
    let nonsense = node.tombstones().join("nonsense.json");
    fs::write(&nonsense, "{").unwrap();
    let daemon = node.start();
    assert_eq!(node.held(&down), None, "done before anybody is served");
    eventually("the tombstone to be gone", PATIENCE, || !first.exists());
    eventually("its rules to be gone", PATIENCE, || !node.is_routed(ipv4(&held[0])));
    assert!(nonsense.exists(), "what cannot be read is left for a person");
    // While the daemon runs: the next pass finds it, or the next ADD of the key.
    let second = bury(&up);
    node.changes.pull();
    eventually("the second tombstone to be gone", PATIENCE, || !second.exists());
    assert_eq!(node.held(&up), None);
    let third = bury(&up);
    node.add(&up);
    assert!(!third.exists());
    assert!(node.held(&up).is_some(), "the tombstone was of before");
    daemon.terminate();
}

#[test]
fn pods_whose_checkpoint_is_lost_are_found_in_the_kernel() {
    let node = TestNode::new(FakeCloud::new(50));
    for damage in ["", "rubbish"] {
        let daemon = node.start();
        let pod = key(&format!("a{}", damage.len()));
        let held = node.add(&pod);
        daemon.crash();
        let file = node.folder.path().join("state/ipam/checkpoint.log");
        if damage.is_empty() {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, damage).unwrap();
        }
        let daemon = node.start();
        assert_eq!(node.held(&pod), Some((ipv4(&held), true)), "{damage:?}");
        let other = node.add(&key(&format!("b{}", damage.len())));
        assert_ne!(other.ipv4, held.ipv4);
        assert!(node.is_routed(ipv4(&held)));
        daemon.terminate();
    }
}

#[test]
fn pods_missing_from_a_truncated_checkpoint_are_found_in_the_kernel() {
    let node = TestNode::new(FakeCloud::new(50));
    // The lengths of an empty file, half a header, and half of the first record.
    for length in [0, 7, 40] {
        let daemon = node.start();
        let pod = key(&format!("a{length}"));
        let held = node.add(&pod);
        daemon.crash();
        let file = node.folder.path().join("state/ipam/checkpoint.log");
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..length]).unwrap();
        let daemon = node.start();
        assert_eq!(node.held(&pod), Some((ipv4(&held), true)), "cut off after {length} bytes");
        let other = node.add(&key(&format!("b{length}")));
        assert_ne!(other.ipv4, held.ipv4);
        assert!(node.is_routed(ipv4(&held)));
        daemon.terminate();
    }
}

#[test]
fn a_pod_in_the_kernel_is_taken_over_though_the_cloud_shows_its_address_late() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let pod = key("a");
    let held = node.add(&pod);
    daemon.crash();
    fs::remove_file(node.folder.path().join("state/ipam/checkpoint.log")).unwrap();
    node.cloud.state().lagging_looks = 2;
    let daemon = node.start();
    assert_eq!(node.held(&pod), Some((ipv4(&held), true)));
    node.add(&key("b"));
    assert!(node.is_routed(ipv4(&held)));
    daemon.terminate();
}

#[test]
fn the_rest_of_a_damaged_checkpoint_still_has_the_pods_name() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let pod = key("a");
    let held = node.add(&pod);
    daemon.crash();
    let file = node.folder.path().join("state/ipam/checkpoint.log");
    let bytes = fs::read(&file).unwrap();
    let header = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    fs::write(&file, [&bytes[..header], b"rubbish\n", &bytes[header..]].concat()).unwrap();
    let daemon = node.start();
    assert_eq!(node.held(&pod), Some((ipv4(&held), true)));
    // The runtime repeats its ADD: of the same pod.
    assert_eq!(ipv4(&node.add_again(&pod)), ipv4(&held));
    daemon.terminate();
}
