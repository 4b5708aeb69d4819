//! Nodes that amazon-vpc-cni has run before.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
    shown::explain,
};
use ipamd_rpc::Released;
use ipnet::IpNet;
use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
};
use tests_eventually::{PATIENCE, eventually};

fn entry(id: &str, address: Ipv4Addr) -> String {
    format!(
        r#"{{"networkName":"aws-cni","containerID":"{id}","ifName":"eth0","ipv4":"{address}",
        "allocationTimestamp":1755700000000000000,"metadata":
        {{"k8sPodNamespace":"default","k8sPodName":"pod-{id}","interfacesCount":1}}}}"#
    )
}

/// A node whose primary ENI has these addresses, and amazon-vpc-cni's checkpoint.
fn node(addresses: &[Ipv4Addr], checkpoint: &str) -> TestNode {
    let cloud = FakeCloud::new(50);
    let blocks = addresses.iter().map(|address| IpNet::from(IpAddr::V4(*address)));
    cloud.state().enis[0].blocks = blocks.collect();
    let node = TestNode::new(cloud);
    fs::create_dir(node.folder.path().join("aws-node")).unwrap();
    fs::write(node.folder.path().join("aws-node/ipam.json"), checkpoint).unwrap();
    node
}

#[test]
fn running_pods_keep_their_addresses_and_deleted_pods_have_none() {
    let [runs, gone] = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
    let checkpoint = format!(
        r#"{{"version":"vpc-cni-ipam/1","allocations":[{},{},{{"ifName":7}}]}}"#,
        entry("runs", runs),
        entry("gone", gone)
    );
    let node = node(&[runs, gone], &checkpoint);
    node.build_unmarked(&key("runs"), runs);
    let daemon = node.start();
    assert_eq!(node.held(&key("runs")), Some((runs, true)));
    assert_eq!(node.held(&key("gone")), None);
    // Its address may be given out again; the running pod's may not.
    let new = node.add(&key("new"));
    assert_ne!(new.ipv4, Some(runs));
    assert!(node.is_routed(runs), "it is defended");
    daemon.terminate();
    // From here on there is a checkpoint of ours, and the old one no longer counts.
    let daemon = node.start();
    let Released::Known(released) = node.release(&key("runs")) else { panic!() };
    assert_eq!(released[0].ipv4, Some(runs));
    eventually("its rules to be gone", PATIENCE, || !node.is_routed(runs));
    daemon.terminate();
    let daemon = node.start();
    assert_eq!(node.held(&key("runs")), None);
    daemon.terminate();
    let left = fs::read_to_string(node.folder.path().join("aws-node/ipam.json")).unwrap();
    assert_eq!(left, checkpoint, "the file is never written");
}

#[test]
fn the_daemon_does_not_start_while_an_unknown_pod_runs() {
    let runs = Ipv4Addr::new(10, 0, 0, 5);
    for checkpoint in [r#"{"version":"vpc-cni"#, r#"{"version":"vpc-cni-ipam/1"}"#] {
        let node = node(&[runs], checkpoint);
        node.build_unmarked(&key("runs"), runs);
        let daemon = node.start();
        eventually("the daemon to say whom it waits for", PATIENCE, || {
            let phase = explain(&node)["phase"].to_string();
            phase.contains("identify the running pods") && phase.contains(&runs.to_string())
        });
        assert!(node.is_routed(runs), "a running pod is cut off");
        // The complete checkpoint names the pod, so the daemon takes it over.
        let whole =
            format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{}]}}"#, entry("runs", runs));
        fs::write(node.folder.path().join("aws-node/ipam.json"), whole).unwrap();
        assert_eq!(node.held(&key("runs")), Some((runs, true)));
        assert!(node.is_routed(runs));
        daemon.terminate();
    }
}

#[test]
fn an_address_that_the_kernel_does_not_confirm_cools_first() {
    let [listed, free] = [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(10, 0, 0, 6)];
    let checkpoint =
        format!(r#"{{"version":"vpc-cni-ipam/1","allocations":[{}]}}"#, entry("builds", listed));
    let node = node(&[listed, free], &checkpoint).with("IP_COOLDOWN_PERIOD", "3600");
    let daemon = node.start();
    // A call of amazon-vpc-cni's plugin may be about to build it: the lower address is not given.
    assert_eq!(node.add(&key("new")).ipv4, Some(free));
    daemon.terminate();
}

#[test]
fn a_checkpoint_of_another_version_is_reported_and_blocks_nothing() {
    let node = node(&[], r#"{"version":"vpc-cni-ipam/9","allocations":[]}"#);
    let daemon = node.start();
    node.add(&key("new"));
    let told = explain(&node)["notices"].to_string();
    assert!(told.contains("vpc-cni-ipam/9") && told.contains("ipam.json"), "{told}");
    daemon.terminate();
}
