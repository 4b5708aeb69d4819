use crate::{
    ClientAffinity, Ingress, IngressMode, ObjectName, Protocol, Service, ServiceKind, ServicePort,
    TrafficPolicy,
};
use serde_json::{Value, json};

fn read(object: &Value) -> Service {
    Service::read(object).expect("the object can be read")
}

fn fields(service: &Service) -> Vec<&str> {
    service.problems.iter().map(|problem| problem.field.as_str()).collect()
}

/// Every field that a proxy reads.
fn load_balancer() -> Value {
    json!({
        "metadata": { "namespace": "shop", "name": "web",
            "creationTimestamp": "2026-11-01T10:00:00Z" },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00::7"],
            "externalIPs": ["192.0.2.7"],
            "loadBalancerSourceRanges": ["198.51.100.7/24", "2001:db8::/32"],
            "ports": [
                { "name": "http", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30080 },
                { "name": "dns", "protocol": "UDP", "port": 53 },
            ],
            "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31007,
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 90 } },
        },
        "status": { "loadBalancer": { "ingress": [
            { "ip": "203.0.113.7", "ipMode": "VIP" },
            { "ip": "203.0.113.8", "ipMode": "Proxy" },
            { "hostname": "lb.example" },
        ] } },
    })
}

#[test]
fn every_field_is_read() {
    let service = read(&load_balancer());
    let address = |text: &str| text.parse().expect("an address");
    let port = |name: &str, protocol, port, node_port| ServicePort {
        name: name.to_owned(),
        protocol,
        port,
        node_port,
    };
    let expected = Service {
        name: ObjectName::new("shop", "web"),
        created: "2026-11-01T10:00:00Z".to_owned(),
        kind: ServiceKind::LoadBalancer,
        other_proxy: None,
        headless: false,
        cluster_ips: vec![address("10.96.0.7"), address("fd00::7")],
        external_ips: vec![address("192.0.2.7")],
        ingress: vec![
            Ingress { address: address("203.0.113.7"), mode: IngressMode::Vip },
            Ingress { address: address("203.0.113.8"), mode: IngressMode::Proxy },
        ],
        source_ranges: Some(
            ["198.51.100.0/24", "2001:db8::/32"].map(|net| net.parse().expect("a range")).into(),
        ),
        ports: vec![
            port("http", Protocol::Tcp, 80, Some(30080)),
            port("dns", Protocol::Udp, 53, None),
        ],
        internal_policy: TrafficPolicy::Local,
        external_policy: TrafficPolicy::Local,
        health_check_node_port: Some(31007),
        affinity: Some(ClientAffinity { timeout_seconds: 90 }),
        problems: Vec::new(),
    };
    assert_eq!(service, expected);
}

#[test]
fn a_headless_service_has_no_cluster_ip() {
    let none = json!({ "metadata": { "namespace": "shop", "name": "db" },
        "spec": { "clusterIP": "None", "clusterIPs": ["None"], "ports": [{ "port": 5432 }] } });
    let labeled = json!({ "metadata": { "namespace": "shop", "name": "db",
        "labels": { "service.kubernetes.io/headless": "" } }, "spec": { "clusterIP": "10.96.0.9" } });
    for object in [none, labeled] {
        let service = read(&object);
        assert!(service.headless && service.cluster_ips.is_empty(), "{service:?}");
        assert_eq!(service.problems, []);
    }
}

#[test]
fn a_part_that_is_not_understood_is_left_out_and_reported() {
    let mut object = load_balancer();
    let spec = &mut object["spec"];
    spec["externalIPs"] = json!(["no address", "127.0.0.1", "192.0.2.7", "192.0.2.7"]);
    spec["loadBalancerSourceRanges"] = json!(["10.0.0.0/33"]);
    spec["ports"] = json!([{ "port": 80, "protocol": "QUIC" }, { "port": 0 }, { "port": 81, "nodePort": 70000 }]);
    spec["internalTrafficPolicy"] = json!("Nearest");
    spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] = json!(0);
    let service = read(&object);
    let expected = [
        "spec.loadBalancerSourceRanges[0]",
        "spec.externalIPs[0]",
        "spec.externalIPs[1]",
        "spec.ports[0].protocol",
        "spec.ports[1].port",
        "spec.ports[2].nodePort",
        "spec.internalTrafficPolicy",
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
    ];
    assert_eq!(fields(&service), expected);
    assert_eq!(service.external_ips.len(), 1);
    // An unreadable range admits no client.
    assert_eq!(service.source_ranges, Some(Vec::new()));
    assert_eq!(service.ports.iter().map(|port| port.port).collect::<Vec<_>>(), [81]);
    assert_eq!(service.affinity, Some(ClientAffinity { timeout_seconds: 10_800 }));
}

#[test]
fn ranges_may_be_an_annotation() {
    let mut object = load_balancer();
    object["spec"]["loadBalancerSourceRanges"] = json!([]);
    object["metadata"]["annotations"] = json!({
        "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8, 172.16.0.0/12",
    });
    let ranges = read(&object).source_ranges.expect("there are ranges");
    assert_eq!(
        ranges.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.0/8", "172.16.0.0/12"]
    );
}

#[test]
fn an_object_without_a_name_is_an_error() {
    let error =
        Service::read(&json!({ "metadata": { "namespace": "shop" } })).expect_err("no name");
    assert_eq!(error.to_string(), "no metadata.name");
}
