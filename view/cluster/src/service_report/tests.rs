#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::ServiceList;
use serde_json::{Value, json};
use service_core::NodeView;
use service_objects::Slice;
use std::sync::Arc;

/// A Service as an API server returns it.
fn web() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "5d1c5a0e-6a3a-4d0e-9b6e-0d2b8f6f9a11",
            "resourceVersion": "8124", "creationTimestamp": "2026-11-01T10:00:00Z",
        },
        "spec": {
            "type": "NodePort", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "selector": { "app": "web" },
            "ports": [
                { "name": "http", "protocol": "TCP", "port": 80, "targetPort": "http", "nodePort": 30080 },
                { "name": "metrics", "protocol": "TCP", "port": 9090, "targetPort": 9090, "nodePort": 30090 },
            ],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10800 } },
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Local",
        },
        "status": { "loadBalancer": {} },
    })
}

fn endpoint(address: &str, node: &str, zone: &str, conditions: [bool; 3]) -> Value {
    let [ready, serving, terminating] = conditions;
    json!({
        "addresses": [address], "nodeName": node, "zone": zone,
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
        "targetRef": { "kind": "Pod", "namespace": "shop", "name": format!("web-{address}") },
    })
}

const READY: [bool; 3] = [true, true, false];

fn slice(name: &str, endpoints: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": name, "namespace": "shop", "generateName": "web-",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": "web",
            },
        },
        "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    })
}

fn slices() -> Vec<Value> {
    vec![slice(
        "web-x7k2p",
        &json!([
            endpoint("10.0.1.7", "n1", "a", READY),
            endpoint("10.0.2.8", "n2", "b", READY),
            endpoint("10.0.2.9", "n2", "b", [false, true, true]),
            endpoint("10.0.1.10", "n1", "a", [false, false, false]),
        ]),
    )]
}

fn world(node: &str, services: &[Value], slices: &[Value]) -> World {
    let services = services.iter().map(|of| Arc::new(Service::read(of).unwrap()));
    let slices = slices.iter().map(|of| Arc::new(Slice::read(of).unwrap()));
    let zone = (!node.is_empty()).then(|| "a".to_owned());
    World {
        node: NodeView { name: node.to_owned(), zone, addresses: BTreeSet::new() },
        services: services.map(|of| (of.name.clone(), of)).collect(),
        slices: slices.map(|of| (of.name.clone(), of)).collect(),
    }
}

fn name() -> ObjectName {
    ObjectName::new("shop", "web")
}

fn report(node: &str, services: &[Value], slices: &[Value]) -> ServiceReport {
    ServiceReport::of(&ServiceData::of(world(node, services, slices)), &name()).unwrap()
}

fn kinds(report: &ServiceReport) -> Vec<(Severity, &str)> {
    report.troubles.iter().map(|of| (of.severity, of.kind.as_str())).collect()
}

#[test]
fn the_text_has_each_frontend_with_the_reason_of_each_endpoint() {
    let mut data = ServiceData::of(world("n1", &[web()], &slices()));
    data.serving = Some(Serving::Agent(AgentServices { services: 9, ..AgentServices::default() }));
    let report = ServiceReport::of(&data, &name()).unwrap();
    let expected = "\
shop/web: NodePort, port metrics: no EndpointSlice has the name and protocol of the port
TROUBLE  port metrics: no EndpointSlice has the name and protocol of the port
         next: kubectl -n shop get endpointslices -l kubernetes.io/service-name=web; check the selector and the pods behind it
notice   2 of 4 endpoints are not ready
         next: kubectl -n shop get endpointslices -l kubernetes.io/service-name=web; check the pods behind it
  cluster IP 10.96.0.7
  ports      http 80/TCP (node port 30080), metrics 9090/TCP (node port 30090)
  policies   internal Cluster, external Local
  affinity   a client keeps its backend 10800 s
  endpoints  2 of 4 ready
  seen from  n1 in zone a
  in force on n1

10.96.0.7:80/TCP (http)
  all clients: policy Cluster: 2 backends
ENDPOINT         NODE   ZONE   STATE                  USE
10.0.2.9:8080    n2     b      serving, terminating   out: terminating, and others are ready
10.0.1.10:8080   n1     a      not ready              out: not ready
10.0.1.7:8080    n1     a      ready                  in
10.0.2.8:8080    n2     b      ready                  in
";
    let text = report.text(None).to_string();
    assert!(text.starts_with(expected), "{text}");
    let node_port = "
node port 30080/TCP (IPv4) (http)
  clients on the node: policy Cluster: 2 backends
  outside: policy Local: 1 backend
ENDPOINT         NODE   ZONE   STATE                  ON THE NODE                            OUTSIDE
10.0.2.9:8080    n2     b      serving, terminating   out: terminating, and others are ready   out: other node, policy Local
";
    let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(squeeze(&text).contains(&squeeze(node_port)), "{text}");
    assert!(text.contains("\nother ports of 10.96.0.7\n  all clients: rejected\n"), "{text}");
}

#[test]
fn frontends_with_equal_answers_are_one_group() {
    let mut service = web();
    service["spec"]["externalTrafficPolicy"] = json!("Cluster");
    let text = report("n1", &[service], &slices()).text(None).to_string();
    assert!(text.contains("\n10.96.0.7:80/TCP, node port 30080/TCP (IPv4) (http)\n"), "{text}");
}

#[test]
fn a_document_has_a_word_for_each_use() {
    let document = json!(report("n2", &[web()], &slices()));
    assert_eq!(document["type"], "NodePort");
    assert_eq!(document["ports"][0]["nodePort"], 30080);
    assert_eq!(document["endpoints"], json!({ "ready": 2, "total": 4 }));
    let frontends = document["frontends"].as_array().unwrap();
    let at = "node port 30080/TCP (IPv4)";
    let node_port = frontends.iter().find(|of| of["at"] == at).unwrap();
    assert_eq!(node_port["outside"]["backends"], json!(["10.0.2.8:8080"]));
    let endpoints = node_port["endpoints"].as_array().unwrap();
    let uses: Vec<_> = endpoints.iter().map(|of| (&of["inside"], &of["outside"])).collect();
    let expected =
        [("in", "other_node"), ("in", "in"), ("draining", "draining"), ("not_ready", "not_ready")];
    assert_eq!(uses, expected.map(|(a, b)| (json!(a), json!(b))).each_ref().map(|(a, b)| (a, b)));
}

#[test]
fn without_a_node_an_endpoint_of_policy_local_is_in_on_its_node() {
    let report = report("", &[web()], &slices());
    let text = report.text(None).to_string();
    assert!(text.contains("outside: policy Local: the endpoints of the node"), "{text}");
    let outside = |address: &str| {
        let of_local = text.split("outside: policy Local").nth(1).unwrap();
        let line = of_local.lines().find(|line| line.starts_with(address)).unwrap();
        line.split("   ").last().unwrap().trim().to_owned()
    };
    assert_eq!(outside("10.0.1.7:"), "in for its own node only");
    // Another endpoint of its node is ready.
    assert_eq!(outside("10.0.2.9:"), "out: terminating, and others are ready");
    assert!(text.contains("seen from  no node: hints are not applied"), "{text}");
    assert!(kinds(&report).iter().all(|(_, kind)| *kind != "no_local_endpoints"));
    assert_eq!(report.in_force, None);
}

#[test]
fn hints_and_an_empty_node_are_explained() {
    let hinted = |address, node, zone: &str, to: &str| {
        let mut endpoint = endpoint(address, node, zone, READY);
        endpoint["hints"] = json!({ "forZones": [{ "name": to }] });
        endpoint
    };
    let slices = [slice(
        "web-1",
        &json!([hinted("10.0.1.7", "n1", "a", "a"), hinted("10.0.2.8", "n2", "b", "b")]),
    )];
    let text = report("n1", &[web()], &slices).text(None).to_string();
    assert!(text.contains("10.0.2.8:8080   n2     b      ready   out: hint for zone b"), "{text}");
    let report = report("n9", &[web()], &slices);
    let text = report.text(None).to_string();
    assert!(text.contains("outside: policy Local: dropped: n9 has no endpoint"), "{text}");
    assert!(kinds(&report).contains(&(Severity::Notice, "no_local_endpoints")), "{report:?}");
}

#[test]
fn hints_that_count_for_no_client_of_the_node_are_a_notice() {
    let hinted = |zones: [Option<&str>; 2]| {
        let endpoints = zones.map(|zone| {
            let mut endpoint = endpoint("10.0.1.7", "n1", "a", READY);
            if let Some(zone) = zone {
                endpoint["hints"] = json!({ "forZones": [{ "name": zone }] });
            }
            endpoint
        });
        let mut endpoints = json!(endpoints);
        endpoints[1]["addresses"] = json!(["10.0.2.8"]);
        report("n1", &[web()], &[slice("web-1", &endpoints)])
    };
    let unknown = hinted([Some("nowhere"), Some("x")]);
    assert!(kinds(&unknown).contains(&(Severity::Notice, "hints_not_used")), "{unknown:?}");
    let text = unknown.text(None).to_string();
    let notice = "notice   port http: hints of endpoints are not used: they are for nowhere, x, and n1 is in zone a\n";
    assert!(text.contains(notice), "{text}");
    for used in [[Some("a"), Some("nowhere")], [None, None]] {
        let report = hinted(used);
        assert!(kinds(&report).iter().all(|(_, kind)| *kind != "hints_not_used"), "{used:?}");
    }
}

#[test]
fn an_address_of_another_service_is_taken() {
    let mut other = web();
    other["metadata"] =
        json!({ "name": "old", "namespace": "shop", "creationTimestamp": "2026-01-01T10:00:00Z" });
    other["spec"]["clusterIP"] = json!("10.96.0.8");
    other["spec"]["clusterIPs"] = json!(["10.96.0.8"]);
    let mut service = web();
    service["spec"]["externalIPs"] = json!(["10.96.0.8"]);
    let report = report("n1", &[service, other], &slices());
    let text = report.text(None).to_string();
    assert!(
        text.contains("TROUBLE  node port 30080/TCP (IPv4) belongs to Service shop/old"),
        "{text}"
    );
    assert!(text.contains("TROUBLE  10.96.0.8:80/TCP belongs to Service shop/old"), "{text}");
    assert!(text.contains("  not of this Service: it belongs to shop/old\n"), "{text}");
}

#[test]
fn a_part_that_is_not_understood_is_a_notice() {
    let mut service = web();
    service["spec"]["internalTrafficPolicy"] = json!("Nearest");
    let mut data = ServiceData::of(world("n1", &[service], &slices()));
    data.unread.push("cannot list services".to_owned());
    let names = Problem { field: "EndpointSlice web-names".into(), cause: "host names".into() };
    data.unusable.insert(name(), vec![names]);
    let report = ServiceReport::of(&data, &name()).unwrap();
    let text = report.text(None).to_string();
    assert!(text.contains("notice   spec.internalTrafficPolicy is not used: "), "{text}");
    assert!(text.contains("notice   EndpointSlice web-names is not used: host names\n"), "{text}");
    assert!(text.contains("not read: cannot list services\n"), "{text}");
}

#[test]
fn the_state_on_a_node_is_that_of_its_agent() {
    let agent = |agent| Serving::Agent(agent).of(&name());
    let serves = AgentServices { services: 3, ..AgentServices::default() };
    let failing = BTreeMap::from([(name(), "the map backends is full".to_owned())]);
    let no = |why: &str| InForce::No(why.to_owned());
    assert_eq!(agent(serves.clone()), InForce::Yes(None));
    assert_eq!(
        agent(AgentServices { failing: failing.clone(), ..serves.clone() }),
        no("the map backends is full")
    );
    let fault = Some("no BPF".to_owned());
    assert_eq!(agent(AgentServices { fault, ..serves.clone() }), no("no BPF"));
    let others = BTreeMap::from([(ObjectName::new("a", "b"), "full".to_owned())]);
    let cut = AgentServices { failing: others.clone(), is_cut: true, ..serves.clone() };
    assert!(matches!(agent(cut), InForce::Unknown(_)));
    assert_eq!(agent(AgentServices { failing: others, ..serves.clone() }), InForce::Yes(None));
    assert!(matches!(agent(AgentServices { lag: 1, ..serves.clone() }), InForce::Unknown(_)));
    let alone = AgentServices { disconnected: Some("no replica".to_owned()), ..serves };
    assert!(matches!(agent(alone), InForce::Yes(Some(_))));
    assert!(matches!(agent(AgentServices::default()), InForce::NotServed(_)));
    assert!(matches!(Serving::Absent("none".to_owned()).of(&name()), InForce::NotServed(_)));

    let page = |services, failing, lag| {
        let page = format!(
            "# TYPE ferrule_agent_held gauge\nferrule_agent_held{{kind=\"pod\"}} 7\n\
             ferrule_agent_held{{kind=\"service\"}} {services}\n\
             ferrule_agent_failing_services {failing}\nferrule_agent_backend_lag {lag}\n"
        );
        Serving::of_metrics(&page).unwrap().of(&name())
    };
    assert_eq!(page(3, 0, 0), InForce::Yes(None));
    assert!(matches!(page(0, 0, 0), InForce::NotServed(_)));
    assert!(matches!(page(3, 1, 0), InForce::Unknown(_)));
    assert!(matches!(page(3, 0, 1), InForce::Unknown(_)));
    assert_eq!(Serving::of_metrics("ferrule_build_info 1\n"), None);
}

#[test]
fn a_service_that_is_not_in_force_is_a_problem() {
    let mut data = ServiceData::of(world("n1", &[web()], &slices()));
    let failing = BTreeMap::from([(name(), "the map backends is full".to_owned())]);
    let agent = AgentServices { services: 1, failing, ..AgentServices::default() };
    data.serving = Some(Serving::Agent(agent));
    let report = ServiceReport::of(&data, &name()).unwrap();
    assert!(kinds(&report).contains(&(Severity::Trouble, "not_in_force")), "{report:?}");
    assert!(!report.is_good());
    let text = report.text(None).to_string();
    assert!(text.contains("  NOT IN FORCE on n1: the map backends is full\n"), "{text}");
    assert_eq!(json!(report)["inForce"]["state"], "no");
}

#[test]
fn a_list_has_the_worst_services_first() {
    let named = |name: &str, address: &str| {
        let mut service = web();
        service["metadata"]["name"] = json!(name);
        service["spec"]["type"] = json!("ClusterIP");
        service["spec"]["clusterIP"] = json!(address);
        service["spec"]["clusterIPs"] = json!([address]);
        service["spec"]["ports"] = json!([{ "name": "http", "port": 80 }]);
        service["spec"].as_object_mut().unwrap().remove("externalTrafficPolicy");
        service
    };
    let headless = named("db", "None");
    let ready = slice("web-1", &json!([endpoint("10.0.1.7", "n1", "a", READY)]));
    let services = [named("empty", "10.96.0.1"), headless, named("web", "10.96.0.7")];
    let mut data = ServiceData::of(world("", &services, &[ready]));
    data.unread.push("cannot list services".to_owned());
    let list = ServiceList::of(&data, None);
    assert!(!list.is_good());
    let expected = "\
SERVICE      TYPE        FRONTENDS          READY   STATE
shop/empty   ClusterIP   10.96.0.1:80/TCP   0/0     port http: the Service has no EndpointSlice
shop/web     ClusterIP   10.96.0.7:80/TCP   1/1     good
shop/db      ClusterIP   -                  0/0     headless: clients use the endpoints themselves
not read: cannot list services
";
    assert_eq!(list.text(None).to_string(), expected);
    assert!(ServiceList::of(&data, Some("pay")).services.is_empty());
    assert_eq!(ServiceList::default().text(None).to_string(), "no Services\n");
}
