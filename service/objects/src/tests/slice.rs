use crate::{Endpoint, Family, ObjectName, Protocol, Slice, SlicePort};
use serde_json::{Value, json};

fn slice(endpoints: &Value) -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "web-x7",
            "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "protocol": "TCP", "port": 8080 }, { "name": "every" }],
        "endpoints": endpoints,
    })
}

fn read(object: &Value) -> Slice {
    Slice::read(object).expect("the slice can be read")
}

#[test]
fn every_field_is_read() {
    let read = read(&slice(&json!([{
        "addresses": ["10.0.0.7"],
        "conditions": { "ready": false, "serving": true, "terminating": true },
        "nodeName": "n1", "zone": "a",
        "hints": { "forZones": [{ "name": "a" }, { "name": "b" }], "forNodes": [{ "name": "n1" }] },
    }])));
    let expected = Endpoint {
        address: "10.0.0.7".parse().expect("an address"),
        ready: false,
        serving: true,
        terminating: true,
        node: Some("n1".to_owned()),
        zone: Some("a".to_owned()),
        zone_hints: vec!["a".to_owned(), "b".to_owned()],
        node_hints: vec!["n1".to_owned()],
    };
    assert_eq!(read.service, ObjectName::new("shop", "web"));
    assert_eq!((read.family, read.endpoints), (Family::V4, vec![expected]));
    let http = SlicePort { name: "http".to_owned(), protocol: Protocol::Tcp, port: 8080 };
    assert_eq!((read.ports, read.problems), (vec![http], Vec::new()));
}

#[test]
fn missing_conditions_are_ready_and_serving() {
    let of = |conditions: Value| {
        let slice = read(&slice(&json!([{ "addresses": ["10.0.0.7"], "conditions": conditions }])));
        let endpoint = &slice.endpoints[0];
        (endpoint.ready, endpoint.serving, endpoint.terminating)
    };
    assert_eq!(of(json!({})), (true, true, false));
    assert_eq!(of(json!({ "ready": false })), (false, false, false));
}

#[test]
fn an_endpoint_that_cannot_be_used_is_left_out_and_reported() {
    let endpoints = json!([
        { "addresses": [] }, { "addresses": ["fd00::7"] }, { "addresses": ["127.0.0.1"] },
        { "addresses": ["169.254.169.254"] }, { "addresses": ["10.0.0.7.1"] }, { "addresses": ["10.0.0.7"] },
    ]);
    let read = read(&slice(&endpoints));
    assert_eq!(read.endpoints.len(), 1);
    let fields: Vec<&str> = read.problems.iter().map(|problem| problem.field.as_str()).collect();
    let expected = [
        "endpoints[0].addresses",
        "endpoints[1].addresses[0]",
        "endpoints[2].addresses[0]",
        "endpoints[3].addresses[0]",
        "endpoints[4].addresses[0]",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn null_lists_are_empty() {
    let mut object = slice(&Value::Null);
    object["ports"] = Value::Null;
    let read = read(&object);
    assert!(read.ports.is_empty() && read.endpoints.is_empty());
}

#[test]
fn slices_without_a_service_or_of_names_are_errors() {
    let mut names = slice(&json!([]));
    names["addressType"] = json!("FQDN");
    let mut alone = slice(&json!([]));
    alone["metadata"]["labels"] = json!({});
    let errors =
        [names, alone].map(|object| Slice::read(&object).expect_err("unusable").to_string());
    let expected =
        ["address type \"FQDN\", which no proxy serves", "no label kubernetes.io/service-name"];
    assert_eq!(errors, expected);
}

#[test]
fn the_time_of_the_change_is_read_from_the_annotation() {
    let mut object = slice(&json!([]));
    assert_eq!(read(&object).triggered_ms, None);
    for (text, expected) in [("1970-01-01T00:01:00.5Z", Some(60_500)), ("yesterday", None)] {
        object["metadata"]["annotations"] =
            json!({ "endpoints.kubernetes.io/last-change-trigger-time": text });
        assert_eq!(read(&object).triggered_ms, expected, "{text}");
    }
}
