//! Introspection, metrics and the status document.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
};
use ipamd_core::Action;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};
use tests_eventually::{PATIENCE, eventually};
use tests_support::promtool;
use view_node::{Addresses, PodAssignment, Severity, Status, Trouble};

/// Returns the body at a path of introspection; null while the daemon does not answer.
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
fn introspection_has_the_formats_of_amazon_vpc_cni_and_no_container_id() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let held = node.add(&key("5ecret1d")).ipv4.unwrap().to_string();
    eventually("introspection", PATIENCE, || !get(&node, "/").is_null());
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
fn promtool_accepts_the_metrics() {
    if !promtool::is_there("promtool_accepts_the_metrics") {
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

/// Returns the document once it fulfills the condition.
fn status_with(node: &TestNode, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let read = || serde_json::from_value::<Status>(get(node, view_node::STATUS)).ok();
    eventually(what, PATIENCE, || read().is_some_and(|status| wanted(&status)));
    read().unwrap()
}

fn trouble<'a>(status: &'a Status, kind: &str) -> Option<&'a Trouble> {
    status.troubles.iter().find(|trouble| trouble.kind == kind)
}

#[test]
fn the_status_document_has_the_counts_of_the_pool_and_the_reservations() {
    let node = TestNode::new(FakeCloud::new(50));
    let daemon = node.start();
    let held = node.add(&key("a")).ipv4.unwrap().to_string();
    let status = status_with(&node, "the pod is counted", |it| it.pool.assigned == 1);
    assert_eq!((status.phase.as_str(), status.pool.max_enis), ("running", 2));
    let limits = status.limits.unwrap();
    assert_eq!((limits.enis, limits.ipv4_per_eni), (2, 5));
    assert!(status.budgets.iter().any(|it| it.action == "AssignPrivateIpAddresses"));
    let pods: Vec<PodAssignment> = serde_json::from_value(get(&node, view_node::PODS)).unwrap();
    assert_eq!(pods[0].address.as_deref(), Some(held.as_str()));
    assert_eq!((pods[0].table, pods[0].host_interface.as_deref()), (Some(254), Some("eni0")));
    let paths = get(&node, &format!("{}/uid", view_node::PATHS));
    assert!(paths.is_null(), "no agent enforces policy: {paths}");
    daemon.terminate();
}

#[test]
fn the_documents_have_the_subnets_count_and_the_use_of_each_address() {
    let node = TestNode::new(FakeCloud::new(50)).with("IP_COOLDOWN_PERIOD", "3600");
    let daemon = node.start();
    let held = node.add(&key("a")).ipv4.unwrap().to_string();
    let status = status_with(&node, "the subnet is known", |it| !it.subnets.is_empty());
    let subnet = &status.subnets[0];
    assert_eq!((&*subnet.id, &*subnet.zone, subnet.total), ("subnet-1", "eu-central-1a", 251));
    assert!(subnet.for_pods && subnet.in_use && !subnet.fragmented, "{subnet:?}");
    assert_eq!(subnet.samples.last().map(|it| it.available), Some(subnet.available));
    let free = status.settings.as_ref().unwrap().free_by_subnet["subnet-1"];
    assert!(free > 0 && free <= status.pool.free, "{status:?}");

    let read = || serde_json::from_value::<Addresses>(get(&node, view_node::ADDRESSES)).unwrap();
    let of_pod = |it: &Addresses| it.used.iter().find(|it| it.pod.is_some()).cloned();
    let used = of_pod(&read()).unwrap();
    assert_eq!((&*used.address, used.eni.as_deref()), (&*held, Some("eni-0")));
    assert_eq!(used.pod.map(|pod| (pod.name, pod.confirmed)), Some(("pod-a".to_owned(), true)));
    let eni = &read().enis[0];
    assert!(eni.blocks.contains(&format!("{held}/32")), "{eni:?}");
    assert_eq!((&*eni.subnet, eni.assigned), ("subnet-1", 1));
    node.release(&key("a"));
    eventually("the address cools", PATIENCE, || of_pod(&read()).is_none());
    let cooling = read().used.into_iter().find(|it| it.address == held).unwrap();
    assert_eq!((cooling.eni.as_deref(), cooling.stuck_seconds), (Some("eni-0"), None));
    daemon.terminate();
}

#[test]
fn a_missing_permission_of_the_node_is_reported_with_the_waiting_pods() {
    let node = TestNode::new(FakeCloud::new(50));
    node.cloud.state().denied = Some(Action::Assign);
    let daemon = node.start();
    let waiting = node.spawn(node.reserving(&key("a"), Duration::from_secs(120)));
    let status = status_with(&node, "the denial", |it| {
        trouble(it, "denied").is_some() && !it.waiting_adds.is_empty()
    });
    let denied = trouble(&status, "denied").unwrap();
    assert_eq!(
        (denied.severity, &*denied.object),
        (Severity::Trouble, "ec2:AssignPrivateIpAddresses")
    );
    assert!(denied.cause.contains("not authorized"), "{denied:?}");
    assert!(denied.next_step.starts_with("allow ec2:AssignPrivateIpAddresses"), "{denied:?}");
    assert!(denied.since.is_some());
    assert_eq!(status.waiting_adds[0].name, "pod-a");
    assert_eq!(status.pool.waiting_adds, 1);
    node.cloud.state().denied = None;
    waiting.abort();
    daemon.terminate();
}

#[test]
fn a_full_subnet_is_reported_by_id_until_it_has_room() {
    let node = TestNode::new(FakeCloud::new(0));
    let daemon = node.start();
    let status = status_with(&node, "the full subnet", |it| trouble(it, "subnet_full").is_some());
    let full = trouble(&status, "subnet_full").unwrap();
    assert!(full.cause.contains("subnet-1"), "{full:?}");
    assert!(full.next_step.contains("larger one"), "{full:?}");
    daemon.terminate();
}

#[test]
fn the_status_document_has_the_installers_report() {
    let node = TestNode::new(FakeCloud::new(50));
    let standing = json!({ "restored": 1, "failing": "10-other.conflist cannot be put aside",
        "last": "write 05-ferrule.conflist" });
    let file = node.socket().with_file_name("network.json");
    fs::write(file, standing.to_string()).unwrap();
    let daemon = node.start();
    let status = status_with(&node, "the installer's word", |it| trouble(it, "network").is_some());
    assert!(trouble(&status, "network").unwrap().cause.contains("10-other.conflist"));
    assert!(trouble(&status, "repaired").unwrap().cause.ends_with("write 05-ferrule.conflist"));
    daemon.terminate();
}

#[test]
fn operations_are_counted() {
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
