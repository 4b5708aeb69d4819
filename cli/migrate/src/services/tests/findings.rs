//! Each condition that prevents the replacement is a blocker with its object, cause and next step.

use super::{
    cluster::request,
    manifests::set,
    objects::{ferrule, node, served},
};
use crate::services::{
    Finding, Goal, Level, Observation, OtherProxy, ProxyPod, Request, Serving, objects::Objects,
    plan,
};
use serde_json::{Value, json};

/// A cluster without obstacles.
fn good() -> Objects {
    Objects {
        ferrule: Some(ferrule("OnDelete", &served())),
        kube_proxy: Some(set()),
        kube_proxy_config: Some(json!({ "mode": "iptables" })),
        nodes: vec![node("a", &json!({}))],
        services: vec![service(
            "default",
            "kubernetes",
            json!({
                "clusterIP": "172.20.0.1", "clusterIPs": ["172.20.0.1"], "ports": [{ "port": 443 }],
            }),
        )],
        ..Objects::default()
    }
}

fn service(namespace: &str, name: &str, spec: Value) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name }, "spec": spec })
}

fn found(seen: &Observation, level: Level) -> Vec<Finding> {
    let plan = plan(seen, &request(Goal::Ferrule, false));
    assert_eq!(plan.is_blocked(), plan.findings.iter().any(|it| it.level == Level::Blocker));
    for finding in plan.findings.iter().filter(|it| it.level != Level::Ok) {
        assert!(!finding.next.is_empty(), "no next step: {finding:?}");
    }
    plan.findings.into_iter().filter(|it| it.level == level).collect()
}

fn only(seen: &Observation, level: Level) -> String {
    let found = found(seen, level);
    let [one] = found.as_slice() else { panic!("{level}: {found:#?}") };
    format!("{}: {}", one.object, one.cause)
}

#[test]
fn a_cluster_without_obstacles_is_not_blocked() {
    let seen = good().observation();
    assert_eq!(found(&seen, Level::Blocker), []);
    assert_eq!(found(&seen, Level::Warning), []);
}

#[test]
fn an_endpoint_that_needs_a_service_is_a_blocker() {
    let cases = [
        ("", "it is not set"),
        ("https://172.20.0.1:443", "is an address of the Service default/kubernetes"),
        ("172.20.0.1", "is an address of the Service default/kubernetes"),
        ("https://kubernetes.default.svc", "is the name of a Service"),
        ("https://KUBERNETES.default", "is the name of a Service"),
        ("https://api.ops.svc.cluster.local.:6443/x", "is the name of a Service"),
        ("https://", "is not a URL"),
    ];
    for (url, cause) in cases {
        let mut objects = good();
        let mut env = served();
        env[2]["value"] = json!(url);
        objects.ferrule = Some(ferrule("OnDelete", &env));
        let found = only(&objects.observation(), Level::Blocker);
        assert!(found.starts_with("CLUSTER_ENDPOINT: ") && found.contains(cause), "{url}: {found}");
    }
    for url in ["https://[fd00::1]:443", "https://abc.gr7.eu-west-1.eks.amazonaws.com", "10.9.9.9"]
    {
        let mut env = served();
        env[2]["value"] = json!(url);
        let objects = Objects { ferrule: Some(ferrule("OnDelete", &env)), ..good() };
        assert_eq!(found(&objects.observation(), Level::Blocker), [], "{url}");
    }
}

#[test]
fn a_setting_that_serves_no_services_is_a_blocker() {
    let mut env = served();
    env[0]["value"] = json!("none");
    let objects = Objects { ferrule: Some(ferrule("OnDelete", &env)), ..good() };
    assert!(only(&objects.observation(), Level::Blocker).contains("FERRULE_SERVICES is not ebpf"));
    let objects = Objects { ferrule: None, ..good() };
    assert!(only(&objects.observation(), Level::Blocker).contains("the cluster does not have it"));
    let objects = Objects { ferrule: Some(ferrule("RollingUpdate", &served())), ..good() };
    assert!(
        only(&objects.observation(), Level::Warning).contains("update strategy is not OnDelete")
    );
}

#[test]
fn the_mode_ipvs_is_a_blocker() {
    let objects = Objects { kube_proxy_config: Some(json!({ "mode": "ipvs" })), ..good() };
    assert!(only(&objects.observation(), Level::Blocker).contains("its mode is ipvs"));
    let objects = Objects { kube_proxy_config: None, ..good() };
    assert!(only(&objects.observation(), Level::Warning).contains("its mode is unknown"));
}

#[test]
fn an_add_on_is_a_warning_with_the_command_that_keeps_its_daemonset() {
    let mut managed = set();
    managed["metadata"]["managedFields"] = json!([{ "manager": "eks" }]);
    let objects = Objects { kube_proxy: Some(managed), ..good() };
    let found = found(&objects.observation(), Level::Warning);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].next.contains("--preserve"), "{}", found[0].next);
}

#[test]
fn sctp_with_another_port_is_a_blocker() {
    let spec = json!({
        "clusterIP": "172.20.0.8", "type": "NodePort",
        "ports": [{ "name": "s", "port": 3868, "protocol": "SCTP", "nodePort": 30868 }],
    });
    let slice = |port: u16| {
        json!({
            "metadata": {
                "namespace": "core", "name": "diameter-1",
                "labels": { "kubernetes.io/service-name": "diameter" },
            },
            "addressType": "IPv4", "ports": [{ "name": "s", "port": port, "protocol": "SCTP" }],
            "endpoints": [],
        })
    };
    let mut objects = good();
    objects.services.push(service("core", "diameter", spec));
    objects.slices = vec![slice(3869)];
    let blocker = only(&objects.observation(), Level::Blocker);
    assert_eq!(
        blocker,
        "service core/diameter: SCTP port 3868 leads to port 3869, which Ferrule does not serve"
    );
    objects.slices = vec![slice(3868)];
    let seen = objects.observation();
    assert_eq!(found(&seen, Level::Blocker), []);
    assert_eq!(found(&seen, Level::Warning).len(), 2, "the node port, and sockets of the node");
}

#[test]
fn an_address_of_two_services_is_a_warning_if_they_share_a_port() {
    let external = |address: &str, port: u16| json!({ "clusterIP": "172.20.0.9", "externalIPs": [address], "ports": [{ "port": port }] });
    let mut objects = good();
    objects.services.push(service("a", "one", external("192.0.2.1", 80)));
    objects.services.push(service("b", "two", external("192.0.2.1", 80)));
    objects.services.push(service("c", "three", external("192.0.2.1", 81)));
    let warning = only(&objects.observation(), Level::Warning);
    let expected =
        "service b/two: 192.0.2.1 port 80/TCP belongs to a/one too; the older Service is served";
    assert_eq!(warning, expected);
}

#[test]
fn a_load_balancer_needs_the_health_port() {
    let mut objects = good();
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "172.20.0.9",
        "ports": [{ "port": 80, "nodePort": 30080 }],
    });
    objects.services.push(service("shop", "web", spec));
    assert_eq!(found(&objects.observation(), Level::Warning), []);
    let mut env = served();
    env.as_array_mut().unwrap().push(json!({ "name": "FERRULE_AGENT_HEALTHZ", "value": "" }));
    objects.ferrule = Some(ferrule("OnDelete", &env));
    let found = found(&objects.observation(), Level::Warning);
    assert!(found.iter().any(|it| it.object == "service shop/web"), "{found:#?}");
}

#[test]
fn another_proxy_is_a_blocker_and_a_cache_a_warning() {
    let proxy = |conflicts| OtherProxy {
        object: "daemonset net/other".to_owned(),
        reason: "it does".to_owned(),
        conflicts,
    };
    let mut seen = good().observation();
    seen.other_proxies = vec![proxy(true)];
    assert!(only(&seen, Level::Blocker).contains("serves Services as well"));
    seen.other_proxies = vec![proxy(false)];
    assert!(only(&seen, Level::Warning).contains("daemonset net/other"));
    seen.other_proxies.clear();
    seen.static_proxies.insert("a".to_owned(), "kube-system/kube-proxy-a".to_owned());
    assert!(only(&seen, Level::Blocker).contains("without a DaemonSet"));
}

#[test]
fn a_node_that_ferrule_cannot_serve_is_named() {
    let mut seen = good().observation();
    let node = seen.nodes.get_mut("a").unwrap();
    node.kernel = "5.15.0-1".to_owned();
    assert!(only(&seen, Level::Blocker).contains("its kernel is 5.15.0-1"));
    for kernel in ["6.1.0", "6.12.30-1.amzn2023", "7.0", ""] {
        seen.nodes.get_mut("a").unwrap().kernel = kernel.to_owned();
        assert_eq!(found(&seen, Level::Blocker), [], "{kernel}");
    }
    // kube-proxy alone serves the node.
    let pod = ProxyPod { is_ready: true, leaves: false };
    seen.nodes.get_mut("a").unwrap().kube_proxy = Some(pod);
    assert!(only(&seen, Level::Warning).contains("it has no pod of Ferrule"));
    let removal = plan(&seen, &request(Goal::Ferrule, true));
    assert!(removal.is_blocked(), "{:#?}", removal.findings);
}

#[test]
fn a_name_without_a_node_is_a_blocker() {
    let nodes = std::iter::once("z".to_owned()).collect();
    let request = Request { goal: Goal::KubeProxy, remove: false, nodes };
    let plan = plan(&good().observation(), &request);
    assert!(plan.is_blocked());
    assert_eq!(plan.findings[0].object, "node z");
}

#[test]
fn services_that_are_not_in_force_are_named_for_their_node() {
    let mut objects = good();
    let pod = json!({
        "metadata": {
            "name": "ferrule-a", "namespace": "kube-system", "uid": "1",
            "ownerReferences": [{ "kind": "DaemonSet", "uid": "of-ferrule" }],
        },
        "spec": { "nodeName": "a", "containers": [
            { "name": "ipamd" }, { "name": "agent", "env": served() },
        ] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    objects.pods.push(pod);
    let mut seen = objects.observation();
    let state = |seen: &mut Observation, serving| {
        seen.nodes.get_mut("a").unwrap().agent.as_mut().unwrap().serving = serving;
    };
    state(&mut seen, Serving::Known { services: 9, failing: 2, lag: 0 });
    assert!(only(&seen, Level::Warning).contains("2 Services are not in force"));
    let steps = plan(&seen, &request(Goal::Ferrule, false)).steps;
    assert!(steps.iter().any(|step| step.to_string().contains("(2 Services are not in force)")));
    state(&mut seen, Serving::Unknown("no answer within 10 s".to_owned()));
    assert!(only(&seen, Level::Warning).contains("no answer within 10 s"));
}
