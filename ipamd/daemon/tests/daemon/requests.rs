//! The plugin's requests, also during starts and stops of the daemon.

use crate::{
    cloud::{ADDRESSES_PER_ENI, FakeCloud},
    node::{TestNode, address_of, key},
    shown::explain,
};
use ipamd_core::{Action, CloudFault, Remedy};
use ipamd_rpc::{Reason, Released, ReserveOutcome};
use runtime_socket::server::HealthName;
use std::{collections::BTreeSet, time::Duration};
use tests_eventually::{PATIENCE, eventually};

const LONG: Duration = Duration::from_secs(40);

fn reason(outcome: ReserveOutcome) -> (Reason, String) {
    match outcome {
        ReserveOutcome::Refused(refusal) => (refusal.reason, refusal.message),
        held @ (ReserveOutcome::Reserved(_) | ReserveOutcome::ReservedBranch(_)) => {
            panic!("{held:?}")
        }
    }
}

#[test]
fn an_address_is_reserved_confirmed_and_released() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let pod = key("a");
    assert_eq!(node.held(&pod), None);
    let first = node.add(&pod);
    let again = address_of(node.reserve(&pod, LONG));
    assert_eq!(again, first, "the same key gets the same address");
    assert_eq!(node.held(&pod), first.ipv4.map(|address| (address, true)));
    assert_eq!(node.release(&pod), Released::Known(vec![first.clone()]));
    assert_eq!(node.release(&pod), Released::Unknown);
    assert!(!node.confirm(&pod), "what was released cannot be confirmed");
    eventually("the kernel to be clean of the pod", PATIENCE, || {
        !node.is_routed(first.ipv4.expect("an IPv4 address"))
    });
    daemon.terminate();
}

#[test]
fn pods_of_a_second_eni_are_served_when_the_first_is_full() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let count = ADDRESSES_PER_ENI + 2;
    let held: Vec<_> = (0..count).map(|n| node.add(&key(&format!("p{n}")))).collect();
    let addresses: BTreeSet<_> = held.iter().map(|held| held.ipv4).collect();
    assert_eq!(addresses.len(), usize::from(count), "{held:?}");
    let tables: BTreeSet<u32> = held.iter().map(|held| held.table.0).collect();
    assert_eq!(tables, BTreeSet::from([2, 254]));
    daemon.terminate();
}

#[test]
fn requests_before_the_clouds_first_answer_are_served_after_it() {
    let node = TestNode::new(FakeCloud::new(50));
    node.cloud.state().imds = false;
    let daemon = node.start();
    eventually("the loop to answer", PATIENCE, || node.health(HealthName::Live));
    assert!(!node.health(HealthName::Ready));
    let (why, said) = reason(node.reserve(&key("early"), Duration::from_millis(50)));
    assert_eq!(why, Reason::TryAgain);
    assert!(said.contains("the metadata service does not answer"), "{said}");
    let waiting = node.spawn(node.reserving(&key("patient"), LONG));
    node.cloud.state().imds = true;
    address_of(node.block_on(waiting).expect("an answer"));
    eventually("the pool to be ready", PATIENCE, || node.health(HealthName::Ready));
    daemon.terminate();
}

#[test]
fn an_unknown_instance_type_is_reported_until_ec2_knows_it() {
    let node = TestNode::new(FakeCloud::new(50));
    node.cloud.state().enis[0].blocks =
        vec!["10.0.0.101/32".parse().unwrap(), "10.0.0.102/32".parse().unwrap()];
    node.cloud.state().unknown_type = Some(CloudFault {
        code: "InvalidInstanceType".to_owned(),
        message: "EC2 knows no instance type c5.tiny".to_owned(),
        remedy: Remedy::NotifyOperator,
    });
    let daemon = node.start();
    eventually("the daemon to be live", PATIENCE, || node.health(HealthName::Live));
    // The node serves its addresses and takes them back.
    let served = key("served");
    node.add(&served);
    node.add(&key("another"));
    let (why, message) = reason(node.reserve(&key("a"), Duration::from_millis(50)));
    assert_eq!(why, Reason::TryAgain);
    assert!(message.contains("c5.tiny"), "{message}");
    assert!(matches!(node.release(&served), Released::Known(_)));
    eventually("the instance type to be reported", PATIENCE, || {
        explain(&node).to_string().contains("c5.tiny")
    });
    node.cloud.state().unknown_type = None;
    node.add(&key("b"));
    daemon.terminate();
}

#[test]
fn a_full_subnet_makes_the_pool_unready_and_leaves_the_daemon_alive() {
    let node = TestNode::new(FakeCloud::new(2)).with("FERRULE_ADD_WAIT", "1");
    let daemon = node.start();
    let first = key("a");
    node.add(&first);
    node.add(&key("b"));
    let (_, said) = reason(node.reserve(&key("c"), LONG));
    assert!(!said.is_empty());
    eventually("the pool to be unready", PATIENCE, || !node.health(HealthName::Ready));
    assert!(node.health(HealthName::Live));
    node.release(&first);
    eventually("the pool to be ready again", PATIENCE, || node.health(HealthName::Ready));
    node.add(&key("d"));
    daemon.terminate();
}

#[test]
fn waiting_requests_are_answered_at_the_stop_and_enis_stay_attached() {
    let node = TestNode::new(FakeCloud::new(1));
    let daemon = node.start();
    let pod = key("a");
    let held = node.add(&pod);
    let waiting = node.spawn(node.reserving(&key("b"), LONG));
    eventually("the request to wait", PATIENCE, || {
        crate::shown::explain(&node)["pool"]["waitingAdds"] == 1
    });
    daemon.terminate();
    let (why, _) = reason(node.block_on(waiting).expect("an answer"));
    assert_eq!(why, Reason::Stopping);
    let undone = [Action::Detach, Action::Delete, Action::Unassign];
    assert!(node.cloud.state().calls.iter().all(|call| !undone.contains(call)));
    assert!(node.is_routed(held.ipv4.expect("an IPv4 address")), "pods keep their networking");
    let daemon = node.start();
    assert_eq!(node.held(&pod), held.ipv4.map(|address| (address, true)));
    daemon.terminate();
}

#[test]
fn a_client_that_disconnects_leaves_the_queue() {
    let node = TestNode::new(FakeCloud::new(1));
    let daemon = node.start();
    let first = key("a");
    let held = node.add(&first);
    let gone = node.spawn(node.reserving(&key("gone"), LONG));
    let waiting = || crate::shown::explain(&node)["pool"]["waitingAdds"].as_u64();
    eventually("the request to wait", PATIENCE, || waiting() == Some(1));
    gone.abort();
    eventually("its place to be free", PATIENCE, || waiting() == Some(0));
    node.release(&first);
    let next = node.add(&key("next"));
    assert_eq!(next.ipv4, held.ipv4);
    daemon.terminate();
}
