#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use serde_json::{Value, json};

fn about(phase: &str, addresses: Value) -> PodData {
    let pod = json!({
        "metadata": { "namespace": "shop", "name": "web" }, "spec": { "nodeName": "n1" },
        "status": { "phase": phase, "podIPs": addresses },
    });
    PodData { pod: serde_json::from_value(pod).unwrap(), ..PodData::default() }
}

fn held(table: u32) -> PodAssignment {
    PodAssignment {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        address: Some("10.0.0.7".to_owned()),
        eni: "eni-1".to_owned(),
        device: Some(1),
        card: Some(0),
        table: Some(table),
        confirmed: true,
        host_interface: Some("eni0123456789a".to_owned()),
        since: "2026-01-01T00:00:00Z".to_owned(),
    }
}

#[test]
fn the_report_of_a_running_pod_has_all_its_parts() {
    let mut about = about("Running", json!([{ "ip": "10.0.0.7" }]));
    about.held = vec![held(2)];
    about.daemon = Some(Ok(Status::default()));
    about.policies = Some(Ok(vec!["NetworkPolicy shop/web".to_owned()]));
    about.paths = Some(Ok(Paths { stack: 2, pods: 3, nodes: 14 }));
    let report = PodReport::of(&about);
    assert!(report.is_good());
    let wanted = "\
shop/web: Running on n1
  address   10.0.0.7
  held      10.0.0.7
  ENI       eni-1 (device 1)
  table     2
  host veth eni0123456789a
  rule      512: from all to 10.0.0.7 lookup main
  rule      1536: from 10.0.0.7 lookup 2
  since     2026-01-01T00:00:00Z
  policy    NetworkPolicy shop/web
  paths     2 connections by the stack; fast path: 3 within the node, 14 with other nodes
";
    assert_eq!(report.to_string(), wanted);
    assert_eq!(json!(report)["paths"], json!({"stack": 2, "pods": 3, "nodes": 14}));
    about.paths = Some(Err("no answer".to_owned()));
    let report = PodReport::of(&about);
    assert!(report.to_string().contains("  paths     unknown: no answer\n"), "{report}");
    assert!(report.is_good(), "the agent may be older");
    about.held = vec![held(MAIN)];
    assert_eq!(PodReport::of(&about).interfaces[0].rules.len(), 1, "main needs no rule");
    about.daemon = Some(Ok(Status { rules: COMPACT.to_owned(), ..Status::default() }));
    assert!(PodReport::of(&about).interfaces[0].rules.is_empty(), "they are shared");
}

#[test]
fn the_report_of_a_waiting_pod_has_the_reasons_of_daemon_and_kubelet() {
    let mut about = about("Pending", json!([]));
    let status = json!({
        "waitingAdds": [{ "namespace": "shop", "name": "web", "seconds": 9, "reason": "r",
            "nextStep": "n" }],
        "troubles": [{ "kind": "denied", "severity": "trouble", "object": "ec2:A", "cause": "no",
            "nextStep": "allow ec2:A" }],
    });
    about.daemon = Some(Ok(serde_json::from_value(status).unwrap()));
    about.events = vec![
        Event { kind: "Normal".to_owned(), ..Event::default() },
        Event {
            kind: "Warning".to_owned(),
            reason: "FailedCreatePodSandBox".to_owned(),
            message: "plugin failed (add): subnet subnet-1 has no free addresses".to_owned(),
            count: Some(4),
            ..Event::default()
        },
    ];
    let report = PodReport::of(&about).to_string();
    assert!(report.contains("WHY       ferrule-ipamd: the ADD has waited for 9 s: r"), "{report}");
    assert!(report.contains("event FailedCreatePodSandBox, 4 times: plugin failed"), "{report}");
    assert!(report.contains("cause: the subnet of the node's ENIs is full"), "{report}");
    assert!(
        report.contains("WHY       node n1: ec2:A: no\n            next: allow ec2:A"),
        "{report}"
    );
}

#[test]
fn sandboxes_that_fail_for_one_reason_are_one_finding() {
    let event = |sandbox: char, before: &str, count: u32| Event {
        kind: "Warning".to_owned(),
        reason: "FailedCreatePodSandBox".to_owned(),
        message: format!(
            "{before}network for sandbox \"{}\": no address",
            sandbox.to_string().repeat(64)
        ),
        count: Some(count),
        ..Event::default()
    };
    let mut about = about("Pending", json!([]));
    about.events = vec![event('a', "", 1), event('b', "", 1), event('c', COMBINED, 5)];
    let report = PodReport::of(&about);
    let [only] = report.findings.as_slice() else { panic!("{report}") };
    assert_eq!(only.by, "event FailedCreatePodSandBox, 7 times");
    assert!(only.said.contains("\"ccc"), "{only:?}");
}

#[test]
fn an_address_that_the_daemon_does_not_hold_is_reported() {
    let mut about = about("Running", json!([{ "ip": "10.0.0.9" }]));
    about.daemon = Some(Ok(Status { phase: "running".to_owned(), ..Status::default() }));
    let report = PodReport::of(&about);
    assert!(report.findings[0].said.contains("the daemon has no address for it"), "{report}");
    about.held = vec![held(2)];
    assert!(PodReport::of(&about).findings[0].said.contains("has 10.0.0.7 for it"));
    about.pod.spec.host_network = true;
    assert!(PodReport::of(&about).is_good());
}

#[test]
fn a_starting_daemon_has_no_assignments_yet() {
    let mut about = about("Running", json!([{ "ip": "10.0.0.9" }]));
    for phase in ["starting: waits for the takeover", "stopping"] {
        about.daemon = Some(Ok(Status { phase: phase.to_owned(), ..Status::default() }));
        let report = PodReport::of(&about);
        assert!(report.is_good(), "{report}");
    }
}

#[test]
fn events_before_readiness_are_shown_and_are_no_problem() {
    let mut about = about("Running", json!([{ "ip": "10.0.0.7" }]));
    about.events = vec![Event {
        kind: "Warning".to_owned(),
        reason: "FailedCreatePodSandBox".to_owned(),
        message: "subnet subnet-1 has no free addresses".to_owned(),
        ..Event::default()
    }];
    assert!(!PodReport::of(&about).is_good());
    let ready = json!({ "type": "Ready", "status": "True" });
    about.pod.status.conditions.push(serde_json::from_value(ready).unwrap());
    let report = PodReport::of(&about);
    assert!(report.is_good(), "{report}");
    let text = report.to_string();
    assert!(text.contains("before    event FailedCreatePodSandBox: subnet subnet-1"), "{text}");
}

#[test]
fn a_waiting_pod_without_readable_events_is_a_problem() {
    let mut about = about("Pending", json!([]));
    about.events_unknown = Some("cannot list events".to_owned());
    let report = PodReport::of(&about);
    assert!(!report.is_good());
    assert!(report.to_string().contains("events    unknown: cannot list events"), "{report}");
    about.pod.status.phase = "Running".to_owned();
    assert!(PodReport::of(&about).is_good());
}

#[test]
fn the_report_of_an_ended_pod_has_no_problem_of_its_node() {
    let mut about = about("Succeeded", json!([]));
    let status = json!({ "phase": "running", "troubles": [
        { "kind": "denied", "severity": "trouble", "object": "ec2:A", "cause": "no" }] });
    about.daemon = Some(Ok(serde_json::from_value(status).unwrap()));
    assert!(PodReport::of(&about).is_good());
    about.pod.status.phase = "Pending".to_owned();
    assert!(!PodReport::of(&about).is_good());
}

#[test]
fn a_pod_on_a_node_with_its_own_network_is_good() {
    let mut about = about("Running", json!([{ "ip": "10.0.0.7" }]));
    about.excluded = Some("a fargate node has a network of its own".to_owned());
    let report = PodReport::of(&about);
    assert!(report.is_good());
    assert!(report.to_string().contains("network   not Ferrule's: a fargate node"), "{report}");
}
