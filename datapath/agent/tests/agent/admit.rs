//! Pods that start.

use crate::{
    node::{Node, PATIENCE},
    replica::{Authority, Replica, hub},
};
use config_model::EnforcingMode;
use datapath_rpc::Admitted;
use tests_eventually::eventually;

#[test]
fn a_pod_with_an_entry_starts_and_its_address_is_announced_to_every_replica() {
    let authority = Authority::new();
    let replicas = [1, 2].map(|epoch| Replica::start(&authority, hub(epoch, 100)));
    for replica in &replicas {
        replica.pod("n1", "web-0", "u-0");
        replica.policy("p");
    }
    let node = Node::new(&authority);
    let _agent = node.start(&[&replicas[0], &replicas[1]]);
    node.until("the node has its pod", |status| status.pods == 1);
    let answer = node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap();
    assert_eq!(answer, Admitted::Enforced);
    for replica in &replicas {
        let announced = eventually("the address was announced", PATIENCE, || {
            replica.calls.announced.lock().unwrap().first().cloned()
        });
        assert_eq!((announced.uid.as_str(), announced.name.as_str()), ("u-0", "web-0"));
        assert_eq!(announced.addresses, [vec![10, 0, 0, 9]]);
    }
    let page = node.page("/metrics");
    assert!(page.contains("ferrule_agent_admitted_total{answer=\"enforced\"} 1"), "{page}");
    assert!(page.contains("ferrule_agent_held{kind=\"policy\"} 1"), "{page}");
    assert!(node.page("/readyz").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_pod_without_an_entry_waits_and_then_starts_open_or_fails() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let _agent = node.start(&[&replica]);
    node.until("the node has its pod", |status| status.pods == 1);
    // Another pod of that name.
    let Admitted::Refused(why) = node.admit("web-0", "u-1", EnforcingMode::Strict).unwrap() else {
        panic!("an unknown pod was admitted")
    };
    assert!(why.contains("u-1") && why.contains("knows UID u-0 under this name"), "{why}");
    let Admitted::Open(why) = node.admit("web-1", "u-2", EnforcingMode::Standard).unwrap() else {
        panic!("an unknown pod was admitted")
    };
    assert!(why.contains("shop/web-1") && why.contains(&replica.at.to_string()), "{why}");
}

#[test]
fn an_entry_that_arrives_during_the_wait_starts_the_pod() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.policy("p");
    let node = Node::new(&authority);
    let _agent = node.start(&[&replica]);
    node.until("a replica is followed", |status| !status.replica.is_empty());
    let pods: Vec<_> = (0..50).map(|n| (format!("web-{n}"), format!("u-{n}"))).collect();
    // Each entry arrives during the wait or after it. No pod is taken for a pod without policies.
    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            for (name, uid) in pods.iter().filter(|(_, uid)| !uid.ends_with('7')) {
                replica.pod("n1", name, uid);
            }
        });
        node.admit_all(&pods)
    });
    for ((name, uid), answer) in pods.iter().zip(&answers) {
        if uid.ends_with('7') {
            assert!(matches!(answer, Admitted::Refused(_)), "{name}: {answer:?}");
        }
    }
    // The pods with an entry by now start at the next attempt at the latest.
    node.until("all were told of", |status| status.pods == 45);
    for (name, uid) in pods.iter().filter(|(_, uid)| !uid.ends_with('7')) {
        assert_eq!(node.admit(name, uid, EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    }
}

#[test]
fn the_end_of_a_pod_is_accepted_whether_it_is_known_or_not() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let _agent = node.start(&[&replica]);
    node.until("the node has its pod", |status| status.pods == 1);
    node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap();
    node.forget("web-0", "u-0");
    node.forget("web-0", "u-0");
    node.forget("web-1", "");
    replica.pod_gone("web-0");
    node.until("its entry is gone", |status| status.pods == 0);
    let again = node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap();
    assert!(matches!(again, Admitted::Refused(_)), "{again:?}");
}
