//! A daemon whose API server does not answer.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
    shown::explain,
};
use runtime_socket::server::HealthName;
use tests_eventually::{PATIENCE, eventually};

#[test]
fn a_daemon_that_does_not_need_the_api_server_serves_without_it() {
    let node = TestNode::new(FakeCloud::new(50)).with_a_silent_api_server();
    let daemon = node.start();
    node.add(&key("a"));
    eventually("the pool to be ready", PATIENCE, || node.health(HealthName::Ready));
    let concern_states = explain(&node)["kubernetes"].clone();
    assert!(concern_states["pods"].is_string(), "its state is reported: {concern_states}");
    assert_eq!(concern_states["election"], serde_json::Value::Null, "without CLUSTER_NAME");
    daemon.terminate();
}

#[test]
fn a_mode_that_needs_the_api_server_waits_live_and_not_ready() {
    for mode in ["AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "ENABLE_POD_ENI"] {
        let cloud = FakeCloud::new(50);
        let node = TestNode::new(cloud).with_a_silent_api_server().with(mode, "true");
        let daemon = node.start();
        eventually("the daemon to run", PATIENCE, || explain(&node)["phase"] == "running");
        assert!(node.health(HealthName::Live));
        assert!(!node.health(HealthName::Ready), "{mode}");
        daemon.terminate();
    }
}
