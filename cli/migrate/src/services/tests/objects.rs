//! Objects of the API server as an observation.

use super::manifests::set;
use crate::services::{
    Cleaner, Mode, Observation, Serving, TargetKind, manifest,
    objects::{Objects, config_maps, image, metrics_port, services_with_sctp},
};
use serde_json::{Value, json};
use service_objects::ObjectName;

pub(super) fn ferrule(strategy: &str, env: &Value) -> Value {
    json!({
        "metadata": { "name": "ferrule", "namespace": "kube-system", "uid": "of-ferrule" },
        "spec": { "updateStrategy": { "type": strategy }, "template": { "spec": { "containers": [
            { "name": "ipamd", "image": "ferrule:1" }, { "name": "agent", "env": env },
        ] } } },
    })
}

pub(super) fn served() -> Value {
    json!([
        { "name": "FERRULE_SERVICES", "value": "ebpf" },
        { "name": "FERRULE_AGENT_BACKEND", "value": "ebpf" },
        { "name": "CLUSTER_ENDPOINT", "value": "https://10.9.9.9:443" },
    ])
}

pub(super) fn node(name: &str, labels: &Value) -> Value {
    json!({
        "metadata": { "name": name, "labels": labels },
        "status": { "nodeInfo": { "kernelVersion": "6.12.30-1.amzn2023" } },
    })
}

fn pod(name: &str, node: &str, containers: &Value, ready: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "kube-system", "uid": name,
            "ownerReferences": [{ "kind": "DaemonSet", "name": "any" }],
        },
        "spec": { "nodeName": node, "containers": containers },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
    })
}

fn agent_pod(name: &str, node: &str, services: &str) -> Value {
    let agent = json!({
        "name": "agent", "env": [{ "name": "FERRULE_SERVICES", "value": services }],
        "ports": [{ "name": "agent-metrics", "containerPort": 8162 }],
    });
    pod(name, node, &json!([{ "name": "ipamd" }, agent]), "True")
}

#[test]
fn pods_are_the_state_of_their_nodes() {
    let proxy = json!([{ "name": "kube-proxy" }]);
    let rules = json!([{ "name": "rules" }]);
    let mut leaving = agent_pod("ferrule-old", "a", "none");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
    let mut evicted = pod("kube-proxy-old", "c", &proxy, "False");
    evicted["status"]["phase"] = json!("Failed");
    let mut starting = pod("rules-b", "b", &rules, "False");
    starting["status"]["phase"] = json!("Pending");
    let mut unscheduled = agent_pod("ferrule-c", "c", "ebpf");
    unscheduled["spec"]["nodeName"] = Value::Null;
    unscheduled["spec"]["affinity"] = json!({ "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
            { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["d"] }] },
        ] },
    } });
    let objects = Objects {
        nodes: vec![
            node("a", &json!({ "ferrule.io/services": "ebpf" })),
            node("b", &json!({ "ferrule.io/services": "other" })),
            node("c", &json!({})),
            node("d", &json!({})),
            node("windows", &json!({ "kubernetes.io/os": "windows" })),
        ],
        pods: vec![
            agent_pod("ferrule-new", "a", "ebpf"),
            leaving,
            agent_pod("ferrule-b", "b", "none"),
            pod("kube-proxy-b", "b", &proxy, "False"),
            pod("rules-a", "a", &rules, "True"),
            starting,
            pod("rules-c", "c", &rules, "False"),
            evicted,
            unscheduled,
            pod("kube-proxy-windows", "windows", &proxy, "True"),
        ],
        ..Objects::default()
    };
    let seen = objects.observation();
    let names: Vec<&String> = seen.nodes.keys().collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    assert!(seen.nodes["d"].agent.is_some(), "a pod that is not scheduled yet");
    let (a, b, c) = (&seen.nodes["a"], &seen.nodes["b"], &seen.nodes["c"]);
    let agent = a.agent.as_ref().unwrap();
    assert_eq!((agent.pod.as_str(), agent.serves, agent.leaves), ("ferrule-new", true, false));
    assert_eq!(agent.serving, Serving::NotAsked);
    assert!(a.is_switched && !b.is_switched && !c.is_switched);
    assert!(!b.agent.as_ref().unwrap().serves);
    assert!(b.kube_proxy.is_some() && !b.has_kube_proxy());
    assert_eq!((a.kube_proxy, c.kube_proxy, c.agent.as_ref()), (None, None, None));
    let cleaners = [a.cleaner, b.cleaner, c.cleaner];
    assert_eq!(cleaners, [Cleaner::Clean, Cleaner::Starting, Cleaner::Waiting].map(Some));
    assert_eq!(metrics_port(&objects.pods[0]), Some(8162));
    assert_eq!(metrics_port(&objects.pods[3]), None);
}

#[test]
fn a_kube_proxy_without_a_daemonset_is_found() {
    let mut of_kubelet = pod("kube-proxy-a", "a", &json!([{ "name": "kube-proxy" }]), "True");
    of_kubelet["metadata"]["ownerReferences"][0]["kind"] = json!("Node");
    let seen = Objects {
        nodes: vec![node("a", &json!({}))],
        pods: vec![of_kubelet],
        ..Objects::default()
    }
    .observation();
    assert_eq!(seen.static_proxies["a"], "kube-system/kube-proxy-a");
    assert_eq!(seen.nodes["a"].kube_proxy, None);
}

#[test]
fn pods_are_those_of_their_daemonsets() {
    let owned = |set: &str, mut pod: Value| {
        pod["metadata"]["ownerReferences"][0]["uid"] = json!(set);
        pod
    };
    let with_uid = |uid: &str, mut set: Value| {
        set["metadata"]["uid"] = json!(uid);
        set
    };
    let leaving = |mut pod: Value| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-11-29T12:00:00Z");
        pod
    };
    let proxy = |node: &str, container: &str| {
        pod(&format!("proxy-{node}"), node, &json!([{ "name": container }]), "True")
    };
    let rules = json!([{ "name": "rules" }]);
    let objects = Objects {
        ferrule: Some(with_uid("ours", ferrule("OnDelete", &served()))),
        kube_proxy: Some(with_uid("theirs", set())),
        cleaner: Some(with_uid("rules", set())),
        nodes: ["a", "b", "c", "d"].map(|name| node(name, &json!({}))).to_vec(),
        pods: vec![
            // Another name of the container.
            owned("theirs", proxy("a", "proxy")),
            owned("other", proxy("b", "kube-proxy")),
            leaving(owned("deleted", proxy("c", "kube-proxy"))),
            owned("ours", agent_pod("ferrule-a", "a", "ebpf")),
            owned("copy", agent_pod("ferrule-b", "b", "ebpf")),
            owned("rules", pod("rules-a", "a", &rules, "True")),
            owned("other", pod("rules-d", "d", &rules, "True")),
        ],
        ..Objects::default()
    };
    let seen = objects.observation();
    let view = |name: &str| {
        let node = &seen.nodes[name];
        (node.kube_proxy.is_some(), node.agent.is_some(), node.cleaner.is_some())
    };
    let expected = [(true, true, true), (false, false, false), (true, false, false)];
    assert_eq!(["a", "b", "c"].map(view), expected);
    assert_eq!(view("d"), (false, false, false));
    assert!(seen.static_proxies.is_empty());
}

#[test]
fn the_setting_of_new_pods_comes_from_the_daemonset() {
    let set = ferrule("RollingUpdate", &served());
    let seen = Objects { ferrule: Some(set.clone()), ..Objects::default() }.observation();
    let found = seen.ferrule.unwrap();
    assert!(found.serves && found.has_ebpf && found.replaces_pods);
    assert_eq!(found.endpoint.as_deref(), Some("https://10.9.9.9:443"));
    assert_eq!(image(&set), Some("ferrule:1"));
    let off = ferrule("OnDelete", &json!([{ "name": "CLUSTER_ENDPOINT", "value": "" }]));
    let seen = Objects { ferrule: Some(off), ..Objects::default() }.observation();
    let found = seen.ferrule.unwrap();
    assert!(!found.serves && !found.has_ebpf && !found.replaces_pods && found.endpoint.is_none());
}

fn kube_proxy(objects: Objects) -> crate::services::KubeProxySet {
    objects.observation().kube_proxy.unwrap()
}

#[test]
fn the_mode_of_kube_proxy_comes_from_its_flag_or_its_configuration() {
    let mode = |set: Value, config: Option<Value>| {
        kube_proxy(Objects {
            kube_proxy: Some(set),
            kube_proxy_config: config,
            ..Objects::default()
        })
        .mode
    };
    assert_eq!(mode(set(), None), None);
    assert_eq!(mode(set(), Some(json!({ "mode": "" }))), Some(Mode::Iptables));
    assert_eq!(mode(set(), Some(json!({ "mode": "nftables" }))), Some(Mode::Nftables));
    for args in [json!(["--proxy-mode=ipvs", "--v=2"]), json!(["--proxy-mode", "ipvs"])] {
        let mut with_flag = set();
        with_flag["spec"]["template"]["spec"]["containers"][0]["command"] = args;
        let found = mode(with_flag, Some(json!({ "mode": "nftables" })));
        assert_eq!(found, Some(Mode::Other("ipvs".to_owned())));
    }
    // kube-proxy does not use the flag beside a configuration file.
    let config = "--config=/var/lib/kube-proxy/config.conf";
    for args in [json!([config, "--proxy-mode=ipvs"]), json!(["--proxy-mode=ipvs", config])] {
        let mut with_both = set();
        with_both["spec"]["template"]["spec"]["containers"][0]["command"] = args;
        let found = mode(with_both.clone(), Some(json!({ "mode": "nftables" })));
        assert_eq!(found, Some(Mode::Nftables));
        assert_eq!(mode(with_both, None), None, "the file is unknown");
    }
}

#[test]
fn differences_from_the_defaults_of_kube_proxy_are_named() {
    let config = json!({
        "nodePortAddresses": ["primary"],
        "conntrack": {
            "maxPerCore": 0, "min": 131_072, "tcpEstablishedTimeout": "24h0m0s",
            "tcpCloseWaitTimeout": "5m0s", "tcpBeLiberal": false, "udpTimeout": null,
        },
    });
    let found = kube_proxy(Objects {
        kube_proxy: Some(set()),
        kube_proxy_config: Some(config),
        ..Objects::default()
    });
    assert_eq!(found.node_port_addresses, ["primary"]);
    assert_eq!(found.conntrack, ["maxPerCore=0", "tcpCloseWaitTimeout=5m0s"]);
}

#[test]
fn the_manager_of_kube_proxy_is_named() {
    let manager = |change: &dyn Fn(&mut Value)| {
        let mut set = set();
        change(&mut set);
        kube_proxy(Objects { kube_proxy: Some(set), ..Objects::default() }).manager
    };
    assert_eq!(manager(&|_| {}), None);
    let eks = manager(&|set| set["metadata"]["managedFields"] = json!([{ "manager": "eks" }]));
    assert_eq!(eks.as_deref(), Some("the EKS add-on kube-proxy"));
    let helm = manager(&|set| {
        set["metadata"]["annotations"]["meta.helm.sh/release-name"] = json!("base");
    });
    assert_eq!(helm.as_deref(), Some("the Helm release base"));
}

#[test]
fn a_saved_manifest_is_current_until_the_daemonset_changes() {
    let seen = |kube_proxy: Value, saved: Option<Value>| -> Observation {
        Objects { kube_proxy: Some(kube_proxy), saved, ..Objects::default() }.observation()
    };
    let saved = manifest::saved(&set());
    let current = seen(manifest::keep_off(&set()), Some(saved.clone()));
    assert!(current.is_saved && current.is_saved_current);
    assert!(current.kube_proxy.unwrap().is_kept_off);
    let mut other = set();
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("kube-proxy:v1.37.0");
    let older = seen(other, Some(saved));
    assert!(older.is_saved && !older.is_saved_current);
    assert!(!seen(set(), None).is_saved);
}

#[test]
fn other_networks_that_serve_services_are_found() {
    let daemon_set = |name: &str, containers: Value| {
        json!({
            "metadata": { "name": name, "namespace": "net" },
            "spec": { "template": { "spec": { "containers": containers } } },
        })
    };
    let sets = vec![
        daemon_set("antrea", json!([{ "name": "antrea-agent" }])),
        daemon_set("cache", json!([{ "name": "node-cache" }])),
        daemon_set(
            "calico",
            json!([{ "name": "calico-node", "env": [{ "name": "FELIX_BPFENABLED", "value": "true" }] }]),
        ),
        daemon_set("calico-off", json!([{ "name": "calico-node" }])),
        daemon_set("cilium", json!([{ "name": "cilium-agent" }])),
        daemon_set("logs", json!([{ "name": "fluent-bit" }])),
        daemon_set("router", json!([{ "name": "kube-router", "args": ["--run-router=true"] }])),
        daemon_set(
            "router-off",
            json!([{ "name": "kube-router", "args": ["--run-service-proxy=false"] }]),
        ),
        daemon_set("second", json!([{ "name": "kube-proxy" }])),
        set(),
    ];
    let found = |cilium: Option<&str>| -> Vec<(String, bool)> {
        let config = |value| json!({ "data": { "kube-proxy-replacement": value } });
        let objects = Objects {
            daemon_sets: sets.clone(),
            kube_proxy: Some(set()),
            cilium: cilium.map(config),
            ..Objects::default()
        };
        let others = objects.observation().other_proxies.into_iter();
        others.map(|it| (it.object.replace("daemonset net/", ""), it.conflicts)).collect()
    };
    let expected = |cilium: bool| -> Vec<(String, bool)> {
        ["antrea", "cache", "calico", "cilium", "router", "second"]
            .into_iter()
            .filter(|name| cilium || *name != "cilium")
            .map(|name| (name.to_owned(), name != "cache"))
            .collect()
    };
    assert_eq!(found(None), expected(true));
    assert_eq!(found(Some("true")), expected(true));
    assert_eq!(found(Some("false")), expected(false));
}

#[test]
fn targets_of_load_balancers_are_pods_or_node_ports() {
    let service = |name: &str, kind: &str, annotations: Value| {
        json!({
            "metadata": { "name": name, "namespace": "shop", "annotations": annotations },
            "spec": { "type": kind, "clusterIP": "172.20.0.9", "ports": [{ "port": 80 }] },
        })
    };
    let target = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type";
    let group = json!({
        "metadata": { "namespace": "shop" },
        "spec": { "serviceRef": { "name": "ingress" }, "targetType": "instance" },
    });
    let objects = Objects {
        services: vec![
            service("plain", "ClusterIP", json!({})),
            service("classic", "LoadBalancer", json!({})),
            service("pods", "LoadBalancer", json!({ target: "ip" })),
            service("ingress", "NodePort", json!({})),
            json!({ "metadata": { "namespace": "shop" } }),
        ],
        target_groups: vec![group],
        ..Objects::default()
    };
    let seen = objects.observation();
    let targets = |name: &str| seen.services[&ObjectName::new("shop", name)].targets;
    assert_eq!(targets("plain"), None);
    assert_eq!(targets("classic"), Some(TargetKind::Instance));
    assert_eq!(targets("pods"), Some(TargetKind::Ip));
    assert_eq!(targets("ingress"), Some(TargetKind::Instance));
    assert_eq!(seen.unread.len(), 1, "a Service without a name: {:?}", seen.unread);
}

#[test]
fn slices_are_needed_for_sctp_only() {
    let service = |name: &str, protocol: &str| {
        json!({
            "metadata": { "name": name, "namespace": "shop" },
            "spec": { "clusterIP": "172.20.0.9", "ports": [{ "port": 80, "protocol": protocol }] },
        })
    };
    let found = services_with_sctp(&[service("web", "TCP"), service("core", "SCTP")]);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [ObjectName::new("shop", "core")]);
    let volumes = json!([
        { "name": "config", "configMap": { "name": "kube-proxy-config" } },
        { "name": "lib-modules", "hostPath": { "path": "/lib/modules" } },
    ]);
    let mut with_volumes = set();
    with_volumes["spec"]["template"]["spec"]["volumes"] = volumes;
    assert_eq!(config_maps(&with_volumes).into_iter().collect::<Vec<_>>(), ["kube-proxy-config"]);
}
