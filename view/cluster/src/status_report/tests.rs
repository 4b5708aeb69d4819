#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use serde_json::{Value, json};

fn node(name: &str, labels: Value) -> Node {
    let ready = json!({ "type": "Ready", "status": "True" });
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": labels }, "status": { "conditions": [ready] },
    }))
    .unwrap()
}

fn pod(node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": format!("ferrule-{node}"), "namespace": "kube-system" },
        "spec": { "nodeName": node }, "status": { "phase": "Running" },
    }))
    .unwrap()
}

fn status(troubles: Value) -> DaemonAnswer {
    let status = json!({
        "version": "0.1.0", "phase": "running",
        "pool": { "enis": 2, "maxEnis": 4, "total": 20, "assigned": 12, "free": 7, "cooling": 1,
            "waitingAdds": 1 },
        "waitingAdds": [{ "namespace": "shop", "name": "web", "seconds": 12,
            "reason": "subnet subnet-1 has no free addresses", "nextStep": "free addresses" }],
        "budgets": [
            { "action": "A", "milliPerSecond": 500, "ceilingMilliPerSecond": 2000 },
            { "action": "B", "milliPerSecond": 2000, "ceilingMilliPerSecond": 2000 },
        ],
        "troubles": troubles,
    });
    DaemonAnswer::Status(Box::new(serde_json::from_value(status).unwrap()))
}

fn cluster(names: &[&str]) -> Cluster {
    let set = json!({ "metadata": { "name": "ferrule" } });
    Cluster {
        namespace: "kube-system".to_owned(),
        nodes: names.iter().map(|name| node(name, json!({}))).collect(),
        daemon_sets: Some(vec![serde_json::from_value(set).unwrap()]),
        pods: names.iter().map(|name| pod(name)).collect(),
        ..Cluster::default()
    }
}

fn denied() -> Value {
    json!([{ "kind": "denied", "severity": "trouble", "since": "2026-01-01T00:00:00Z",
        "object": "ec2:AssignPrivateIpAddresses", "cause": "UnauthorizedOperation: no",
        "nextStep": "allow ec2:AssignPrivateIpAddresses to the node's role" }])
}

#[test]
fn a_node_is_a_line_with_its_problems_and_next_steps_below() {
    let mut cluster = cluster(&["n2", "n1"]);
    cluster.answers.insert("ferrule-n1".to_owned(), status(json!([])));
    cluster.answers.insert("ferrule-n2".to_owned(), status(denied()));
    let status_report = StatusReport::of(&cluster);
    assert!(!status_report.is_good());
    let text = status_report.text(Width::Narrow, None).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "2 nodes: 1 good, 1 with trouble; 24 of 40 addresses in use; 2 ADDs wait for an address",
            "",
            "TROUBLE  n2: ec2:AssignPrivateIpAddresses: UnauthorizedOperation: no \
             (since 2026-01-01T00:00:00Z)",
            "         next: allow ec2:AssignPrivateIpAddresses to the node's role",
            "waiting  n1: shop/web for 12 s: subnet subnet-1 has no free addresses",
            "         next: free addresses",
            "waiting  n2: shop/web for 12 s: subnet subnet-1 has no free addresses",
            "         next: free addresses",
            "",
            "NODE   READY   ENIS   ADDRESSES   FREE   COOLING   WAITING   EC2   VERSION   STATE",
            "n2     yes     2/4    12/20       7      1         1         25%   0.1.0     denied",
            "n1     yes     2/4    12/20       7      1         1         25%   0.1.0     good",
        ]
    );
    let wide = status_report.text(Width::Wide, None).to_string();
    assert!(wide.lines().any(|line| line.starts_with("NODE") && line.contains("POD")), "{wide}");
}

#[test]
fn the_worst_rows_and_problems_are_first_and_a_filter_keeps_only_them() {
    let mut cluster = cluster(&["a", "b", "c", "d"]);
    for (name, troubles) in [
        ("a", json!([])),
        ("b", json!([{ "kind": "throttled", "severity": "notice", "object": "o", "cause": "c" }])),
        ("c", denied()),
        ("d", denied()),
    ] {
        cluster.answers.insert(format!("ferrule-{name}"), status(troubles));
    }
    cluster.controllers.push(pod("a"));
    cluster.lease = Some(Lease::default());
    let report = StatusReport::of(&cluster);
    let text = report.text(Width::Narrow, None).to_string();
    let first =
        |text: &str, word: &str| text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
    assert!(first(&text, "Lease ferrule-controller") < first(&text, "TROUBLE  c, d:"), "{text}");
    assert!(first(&text, "TROUBLE  c, d:") < first(&text, "notice   b:"), "{text}");
    let (_, table) = text.split_once("STATE\n").unwrap();
    let rows: Vec<&str> = table.lines().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(rows, ["c", "d", "b", "a"], "{text}");

    let filtered = report.clone().only_trouble();
    assert_eq!(filtered.summary, report.summary);
    let names: Vec<&str> = filtered.nodes.iter().map(|line| line.node.as_str()).collect();
    assert_eq!(names, ["c", "d"]);
    let text = filtered.text(Width::Narrow, None).to_string();
    assert!(!text.contains("notice") && text.contains("Lease ferrule-controller"), "{text}");
    assert!(!filtered.is_good());
}

#[test]
fn a_terminal_shows_trouble_in_red() {
    let mut cluster = cluster(&["n1"]);
    cluster.answers.insert("ferrule-n1".to_owned(), status(denied()));
    let ansi = StatusReport::of(&cluster).text(Width::Narrow, None).ansi();
    for red in ["1 with trouble", "TROUBLE", "denied"] {
        assert!(ansi.contains(&format!("\x1b[1m\x1b[31m{red}\x1b[0m")), "{red}: {ansi:?}");
    }
}

#[test]
fn the_same_problem_of_many_nodes_is_shown_once() {
    let names = ["n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let mut cluster = cluster(&names);
    for name in names {
        cluster.answers.insert(format!("ferrule-{name}"), status(denied()));
    }
    let text = StatusReport::of(&cluster).text(Width::Narrow, None).to_string();
    assert_eq!(text.matches("TROUBLE").count(), 1, "{text}");
    assert!(text.contains("TROUBLE  n1, n2, n3, n4, n5 and 2 more: ec2:"), "{text}");
}

#[test]
fn a_daemon_that_does_not_answer_is_in_the_table_with_the_reason() {
    let mut cluster = cluster(&["n1"]);
    let why = DaemonAnswer::Failed("no answer within 10 s".to_owned());
    cluster.answers.insert("ferrule-n1".to_owned(), why);
    let pool = json!({ "type": "IPPoolHealthy", "status": "False", "reason": "starting",
        "message": "waits for EC2" });
    cluster.nodes[0].status.conditions.push(serde_json::from_value(pool).unwrap());
    let status_report = StatusReport::of(&cluster);
    let text = status_report.text(Width::Narrow, None).to_string();
    assert!(text.contains("unreachable"), "{text}");
    assert!(text.contains("ferrule-ipamd: no answer within 10 s"), "{text}");
    assert!(text.contains("IPPoolHealthy: starting: waits for EC2"), "{text}");
    assert!(!status_report.is_good());
    let forbidden = "cannot create pods/portforward".to_owned();
    cluster.answers.insert("ferrule-n1".to_owned(), DaemonAnswer::Failed(forbidden));
    let text = StatusReport::of(&cluster).text(Width::Narrow, None).to_string();
    assert!(text.contains("next: request the role ferrule-viewer"), "{text}");
}

#[test]
fn a_node_without_a_daemon_is_trouble_unless_it_is_to_have_none() {
    let mut cluster = cluster(&["n1"]);
    cluster.pods.clear();
    let status_report = StatusReport::of(&cluster);
    assert_eq!(status_report.nodes[0].troubles[0].kind, "missing");
    let fargate = json!({ "eks.amazonaws.com/compute-type": "fargate" });
    cluster.nodes = vec![node("f", fargate)];
    let status_report = StatusReport::of(&cluster);
    assert!(status_report.is_good(), "{status_report:?}");
    assert!(
        status_report
            .text(Width::Narrow, None)
            .to_string()
            .contains("none: a fargate node has a network of its own")
    );
    let set = json!({ "metadata": { "name": "ferrule" }, "spec": { "template": { "spec": {
        "nodeSelector": { "ferrule.io/network": "ferrule" } } } } });
    cluster.daemon_sets = Some(vec![serde_json::from_value(set).unwrap()]);
    cluster.nodes = vec![node("not-yet", json!({}))];
    let status_report = StatusReport::of(&cluster);
    assert!(status_report.is_good(), "{status_report:?}");
    let text = status_report.text(Width::Narrow, None).to_string();
    assert!(text.contains("the DaemonSet selects nodes with ferrule.io/network=ferrule"), "{text}");
    cluster.daemon_sets = Some(Vec::new());
    let text = StatusReport::of(&cluster).text(Width::Narrow, None).to_string();
    assert!(text.contains("install the chart, or set --ferrule-namespace"), "{text}");
}

#[test]
fn an_expired_lease_is_a_problem_of_the_cluster() {
    let mut cluster = cluster(&[]);
    let lost = Lease { holder: Some("c-1".to_owned()), renewed_seconds_ago: 60, lasts_seconds: 15 };
    cluster.lease = Some(lost);
    assert!(StatusReport::of(&cluster).is_good(), "there is no controller that should hold it");
    cluster.controllers.push(pod("n1"));
    let text = StatusReport::of(&cluster).text(Width::Narrow, None).to_string();
    assert!(text.contains("TROUBLE  Lease ferrule-controller: c-1 lost it"), "{text}");
}

#[test]
fn a_node_that_the_affinity_leaves_out_is_to_have_no_daemon() {
    let mut cluster = cluster(&[]);
    let arch = json!({ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] });
    let set = json!({ "spec": { "template": { "spec": { "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": [arch] }] } } } } } } });
    cluster.daemon_sets = Some(vec![serde_json::from_value(set).unwrap()]);
    cluster.nodes = vec![node("n1", json!({ "kubernetes.io/arch": "s390x" }))];
    assert!(StatusReport::of(&cluster).is_good());
    cluster.nodes = vec![node("n1", json!({ "kubernetes.io/arch": "amd64" }))];
    assert_eq!(StatusReport::of(&cluster).nodes[0].troubles[0].kind, "missing");
}

#[test]
fn missing_rights_on_daemonsets_do_not_suggest_an_installation() {
    let mut cluster = cluster(&["n1"]);
    cluster.pods.clear();
    cluster.daemon_sets = None;
    let status_report = StatusReport::of(&cluster);
    assert!(status_report.is_good(), "{status_report:?}");
    let text = status_report.text(Width::Narrow, None).to_string();
    assert!(text.contains("unknown") && !text.contains("install the chart"), "{text}");
}

#[test]
fn a_daemon_that_is_set_to_be_silent_is_no_trouble() {
    let mut cluster = cluster(&["n1"]);
    let env =
        json!({ "name": "ipamd", "env": [{ "name": "DISABLE_INTROSPECTION", "value": "True" }] });
    cluster.pods[0].spec.containers.push(serde_json::from_value(env).unwrap());
    let why = DaemonAnswer::Failed("cannot forward port".to_owned());
    cluster.answers.insert("ferrule-n1".to_owned(), why);
    let status_report = StatusReport::of(&cluster);
    assert!(status_report.is_good(), "{status_report:?}");
    let text = status_report.text(Width::Narrow, None).to_string();
    assert!(text.contains("notice   n1: ferrule-ipamd: DISABLE_INTROSPECTION is set"), "{text}");
}

#[test]
fn a_node_without_kubelet_status_is_a_problem() {
    let mut cluster = cluster(&["n1"]);
    cluster.nodes[0].status.conditions.clear();
    cluster.answers.insert("ferrule-n1".to_owned(), status(json!([])));
    let status_report = StatusReport::of(&cluster);
    assert_eq!(status_report.nodes[0].troubles[0].kind, "node_not_ready");
    assert!(!status_report.is_good());
}

#[test]
fn with_policy_the_table_has_the_agent_of_each_node() {
    let mut cluster = cluster(&["n1", "n2", "n3", "n4", "n5"]);
    for name in ["n1", "n2", "n3", "n4", "n5"] {
        cluster.answers.insert(format!("ferrule-{name}"), status(json!([])));
    }
    let heads = |cluster: &Cluster| {
        let text = StatusReport::of(cluster).text(Width::Narrow, None).to_string();
        text.lines().find(|line| line.starts_with("NODE")).unwrap().to_owned()
    };
    assert!(!heads(&cluster).contains("AGENT"));
    for pod in &mut cluster.pods {
        pod.spec.containers.push(serde_json::from_value(json!({ "name": "agent" })).unwrap());
    }
    let text_of =
        |cluster: &Cluster| StatusReport::of(cluster).text(Width::Narrow, None).to_string();
    assert!(heads(&cluster).contains("   EC2   AGENT     VERSION"), "{}", text_of(&cluster));
    assert!(StatusReport::of(&cluster).is_good(), "the query had no target");

    let good = Agent {
        reported_seconds_ago: Some(9),
        follows: true,
        policies: 4,
        enforces: true,
        ..Agent::default()
    };
    let stale = Agent { reported_seconds_ago: Some(901), stale: true, ..good.clone() };
    let failing = Agent { failing: 2, ..good.clone() };
    let new = Agent { follows: true, ..Agent::default() };
    let behind = Agent { owed: 3, enforces: false, ..good.clone() };
    let known = [("n1", good), ("n2", stale), ("n3", failing), ("n4", new)];
    let mut known: BTreeMap<String, Agent> =
        known.into_iter().map(|(name, agent)| (name.to_owned(), agent)).collect();
    cluster.agents = Some(known.clone());
    let text = text_of(&cluster);
    let of = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("25%").nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of(&text, "n1"), "good 0.1.0 good");
    assert_eq!(of(&text, "n2"), "silent 0.1.0 agent_silent");
    assert_eq!(of(&text, "n3"), "failing 2 0.1.0 policies_failing");
    assert_eq!(of(&text, "n4"), "new 0.1.0 good");
    assert_eq!(of(&text, "n5"), "silent 0.1.0 agent_silent");
    assert!(text.contains("n2: ferrule-agent: its last report is 901 s old"));
    assert!(text.contains("n5: ferrule-agent: the controller has no report of it"));
    assert!(text.contains("2 policies are not in force\n         next: `ferrule policy status`"));

    known.insert("n5".to_owned(), behind);
    cluster.agents = Some(known);
    // An agent's problem does not explain why the daemon beside it does not answer.
    let answer = cluster
        .answers
        .insert("ferrule-n5".to_owned(), DaemonAnswer::Failed("no answer".to_owned()));
    let silent = StatusReport::of(&cluster);
    let kinds: Vec<_> =
        silent.nodes[4].troubles.iter().map(|it| (&*it.kind, it.severity)).collect();
    assert_eq!(kinds, [("unreachable", Severity::Trouble), ("no_backend", Severity::Notice)]);
    cluster.answers.insert("ferrule-n5".to_owned(), answer.unwrap());
    let text = text_of(&cluster);
    assert_eq!(of(&text, "n5"), "behind 3 0.1.0 good");
    assert!(text.contains("notice   n5: ferrule-agent: it has no backend"), "{text}");
    let line = json!(StatusReport::of(&cluster).nodes[4].agent);
    assert_eq!((&line["state"], &line["owed"]), (&json!("behind"), &json!(3)), "{line}");
}

#[test]
fn a_subnet_that_fills_is_a_problem_of_the_cluster_even_if_each_node_is_good() {
    let mut cluster = cluster(&["n1", "n2"]);
    let samples: Vec<Value> =
        (0..=18).rev().map(|n| json!([n * 1200, 900 + n * 100 / 3])).collect();
    let subnet = json!({ "id": "subnet-1", "zone": "z-1a", "total": 4091, "available": 900,
        "forPods": true, "inUse": true, "samples": samples });
    for name in ["n1", "n2"] {
        let DaemonAnswer::Status(mut answer) = status(json!([])) else { continue };
        answer.subnets = vec![serde_json::from_value(subnet.clone()).unwrap()];
        cluster.answers.insert(format!("ferrule-{name}"), DaemonAnswer::Status(answer));
    }
    let report = StatusReport::of(&cluster);
    assert!(!report.is_good());
    assert_eq!((report.subnets[0].nodes, report.troubles.len()), (2, 1));
    let text = report.text(Width::Narrow, None).to_string();
    let line =
        "TROUBLE  subnet-1: 900 of 4091 addresses are free in z-1a; full in 9 h at this rate";
    assert!(text.contains(line), "{text}");
}
