//! `ferrule service` for a viewer. No agent runs on a node.

use super::{create, ferrule, text};
use kube::Client;
use serde_json::{Value, json};
use std::path::Path;

pub(super) async fn all(client: &Client, viewer: &Path) {
    create_service(client).await;
    a_report_explains_each_endpoint(viewer);
    a_list_has_each_service(viewer);
    an_unknown_name_is_an_error(viewer);
}

async fn create_service(client: &Client) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "type": "NodePort", "externalTrafficPolicy": "Local",
            "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }],
        },
    });
    create(client, service).await;
    let endpoint = |address: &str, node: &str, is_ready: bool| {
        let conditions = json!({ "ready": is_ready, "serving": is_ready });
        json!({ "addresses": [address], "nodeName": node, "conditions": conditions })
    };
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "web-1", "namespace": "default",
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "endpoints": [
            endpoint("10.0.0.7", "n1", true),
            endpoint("10.0.0.8", "n2", true),
            endpoint("10.0.0.9", "n2", false),
        ],
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    });
    create(client, slice).await;
}

fn a_report_explains_each_endpoint(viewer: &Path) {
    let words = ["web", "-n", "default", "--node", "n1", "-o", "json"];
    let output = ferrule("service", viewer, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["endpoints"], json!({ "ready": 2, "total": 3 }), "{report}");
    assert_eq!(report["inForce"]["state"], "notServed", "no agent runs there: {report}");
    let frontends = report["frontends"].as_array().unwrap();
    let is_node_port = |of: &&Value| of["at"].as_str().unwrap().starts_with("node port ");
    let node_port = frontends.iter().find(is_node_port).unwrap();
    assert_eq!(node_port["outside"]["backends"], json!(["10.0.0.7:8080"]), "{report}");
    let endpoints = node_port["endpoints"].as_array().unwrap();
    let uses: Vec<&Value> = endpoints.iter().map(|of| &of["outside"]).collect();
    assert_eq!(uses, ["in", "other_node", "not_ready"], "{report}");
    let printed = text(&ferrule("service", viewer, &["default/web"]).stdout);
    assert!(printed.starts_with("default/web: NodePort, "), "{printed}");
    assert!(printed.contains("in for its own node only"), "{printed}");
}

fn a_list_has_each_service(viewer: &Path) {
    let printed = text(&ferrule("service", viewer, &[]).stdout);
    assert!(printed.starts_with("SERVICE "), "{printed}");
    for name in ["default/kubernetes ", "default/web "] {
        assert!(printed.lines().any(|line| line.starts_with(name)), "{printed}");
    }
    assert!(!printed.contains("not read:"), "{printed}");
    let output = ferrule("service", viewer, &["-n", "no-such-namespace"]);
    assert_eq!(text(&output.stdout), "no Services\n", "{}", text(&output.stderr));
}

fn an_unknown_name_is_an_error(viewer: &Path) {
    for (words, why) in [
        (&["default/no"][..], "cannot find Service no in namespace default: it does not exist"),
        (&["default/web", "--node", "no"], "cannot find node no: it does not exist"),
        (&["default/web", "-n", "shop"], "it is in namespace default, and -n names shop"),
    ] {
        let output = ferrule("service", viewer, words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(why), "{words:?}: {}", text(&output.stderr));
    }
}
