//! What the daemon shows of itself.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};
use tests_support::promtool;

/// The body at a path of introspection; null while nobody answers.
fn get(node: &TestNode, path: &str) -> Value {
    let Ok(mut stream) = UnixStream::connect(node.introspection()) else { return Value::Null };
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

pub(crate) fn explain(node: &TestNode) -> Value {
    get(node, "/v1/ferrule/explain")
}

#[test]
fn introspection_has_amazons_shapes_and_tells_no_container_id() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let held = node.add(&key("5ecret1d")).ipv4.unwrap().to_string();
    node.eventually("introspection", || !get(&node, "/").is_null());
    assert_eq!(get(&node, "/v1/pods")["AvailableCommands"][0], "/v1/enis");
    let enis = get(&node, "/v1/enis");
    assert_eq!(enis["0"]["AssignedIPs"], 1);
    let eni = &enis["0"]["ENIs"]["eni-0"];
    assert_eq!((&eni["IsPrimary"], &eni["RouteTableID"]), (&json!(true), &json!(254)));
    let cidr = &eni["AvailableIPv4Cidrs"][format!("{held}/32")];
    assert_eq!(cidr["Cidr"], json!({ "IP": held, "Mask": "/////w==" }));
    let used = &cidr["IPAddresses"][&held];
    assert_eq!(used["IPAMKey"]["containerID"], "");
    assert_eq!(used["IPAMMetadata"]["k8sPodName"], "pod-5ecret1d");
    let settings = get(&node, "/v1/networkutils-env-settings");
    assert_eq!(settings["AWS_VPC_ENI_MTU"], 9001);
    assert_eq!(get(&node, "/v1/ipamd-env-settings")["WARM_IP_TARGET"], 1);
    let pods = get(&node, "/v1/ferrule/pods");
    assert_eq!((&pods[0]["address"], &pods[0]["confirmed"]), (&json!(held), &json!(true)));
    let explained = explain(&node);
    assert_eq!(explained["phase"], "running");
    assert_eq!(explained["modes"]["family"], "v4");
    assert_eq!(explained["kubernetes"], Value::Null);
    assert_eq!(explained["budgets"][0]["action"], "AssignPrivateIpAddresses");
    daemon.terminate();
}

/// Its complaints are of names that amazon-vpc-cni has made.
#[test]
fn prometheus_has_nothing_to_say_of_our_metrics() {
    if !promtool::is_there("prometheus_has_nothing_to_say_of_our_metrics") {
        return;
    }
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    node.add(&key("a"));
    node.release(&key("a"));
    daemon.terminate();
    let complaints = promtool::complaints(&node.metrics.page()).unwrap();
    let of_ours: Vec<_> = complaints.iter().filter(|it| !it.starts_with("awscni_")).collect();
    assert!(of_ours.is_empty(), "{of_ours:?}");
    assert!(!complaints.is_empty(), "amazon-vpc-cni's names are not as Prometheus would have them");
}

#[test]
fn what_happens_is_counted() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    node.add(&key("a"));
    node.release(&key("a"));
    daemon.terminate();
    let page = node.metrics.page();
    for line in [
        "awscni_add_ip_req_count 1",
        "awscni_del_ip_req_count{reason=\"PodDeleted\"} 1",
        "ferrule_add_duration_seconds_count{result=\"ok\"} 1",
        "ferrule_del_duration_seconds_count 1",
        "awscni_build_info{goversion=\"\",version=\"0.1.0\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
    }
    for part in [
        "awscni_ipamd_action_inprogress{fn=\"increaseDatastorePool\"} ",
        "ferrule_ec2_call_wait_seconds_count{action=\"AssignPrivateIpAddresses\"} ",
    ] {
        assert!(page.contains(part), "no {part} in:\n{page}");
    }
    assert!(page.contains("ferrule_repairs_total{kind=\"write_sysctl\"} 1"), "{page}");
}
