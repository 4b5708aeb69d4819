//! The choices of an operator, by topic.

use serde_json::{Value, json};

/// A topic, with the names and values of its choices.
pub(crate) type Dimension = (&'static str, Vec<(&'static str, Value)>);

/// Returns all topics. The first choice of each is the default.
pub(crate) fn dimensions() -> Vec<Dimension> {
    vec![
        ("addresses", addresses()),
        ("policy", policy()),
        ("settings", settings()),
        ("image", image()),
        ("scheduling", scheduling()),
        ("monitoring", monitoring()),
        ("rights", rights()),
        ("names", names()),
        ("account", account()),
        ("controller", controller()),
        ("definitions", definitions()),
        ("extras", extras()),
        (
            "migration",
            vec![
                ("off", json!({})),
                ("by label", json!({ "migration": { "byLabel": true } })),
                ("away", json!({ "removal": true })),
            ],
        ),
        (
            "node scope",
            vec![("on", json!({})), ("off", json!({ "nodeScope": { "create": false } }))],
        ),
        ("control plane", control_plane()),
        ("folders", folders()),
    ]
}

/// Returns whole values files of operators, with descriptions.
pub(crate) fn scenarios() -> Vec<(String, Value)> {
    let mut amazon = tests_chart::amazon_values().unwrap();
    amazon["image"]["override"] = json!(tests_chart::IMAGE);
    let mut policed = amazon.clone();
    policed["enableNetworkPolicy"] = json!("true");
    policed["podMonitor"]["create"] = json!(true);
    policed["eniConfig"] =
        json!({ "create": true, "subnets": { "eu-west-1a": { "id": "subnet-1" } } });
    let kept = json!({
        "env": { "FERRULE_POLICY_AGENT": "true", "NETWORK_POLICY_ENFORCING_MODE": "standard" },
        "controlPlaneConfig": { "create": true }, "migration": { "byLabel": true },
    });
    let ipv6 = json!({
        "enableNetworkPolicy": true,
        "env": {
            "ENABLE_IPv4": "false", "ENABLE_IPv6": "true", "ENABLE_PREFIX_DELEGATION": "true",
            "ENABLE_V4_EGRESS": "true",
        },
    });
    [
        ("the defaults with an image", json!({})),
        ("the values file of amazon-vpc-cni", amazon),
        ("the values file of amazon-vpc-cni, with policy", policed),
        ("the policy agent of amazon-vpc-cni is kept", kept),
        ("IPv6 with policy", ipv6),
    ]
    .map(|(description, values)| (description.to_owned(), values))
    .to_vec()
}

fn addresses() -> Vec<(&'static str, Value)> {
    let configs = json!({ "create": true, "subnets": {
        "us-west-2a": { "id": "subnet-1", "securityGroups": ["sg-1", "sg-2"] },
        "us-west-2b": { "id": "subnet-2" },
    }});
    let custom = json!({
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true",
        "ENI_CONFIG_LABEL_DEF": "topology.kubernetes.io/zone",
    });
    vec![
        ("secondary", json!({})),
        (
            "prefixes",
            json!({ "env": { "ENABLE_PREFIX_DELEGATION": true, "WARM_PREFIX_TARGET": 2 } }),
        ),
        (
            "IPv6",
            json!({ "env": {
                "ENABLE_IPv4": "false", "ENABLE_IPv6": "true", "ENABLE_PREFIX_DELEGATION": "true",
            }}),
        ),
        ("custom networking", json!({ "env": custom, "eniConfig": configs })),
        (
            "security groups for pods",
            json!({
                "env": { "ENABLE_POD_ENI": "true", "POD_SECURITY_GROUP_ENFORCING_MODE": "standard" },
                "init": { "env": { "DISABLE_TCP_EARLY_DEMUX": true } },
            }),
        ),
        (
            "targets",
            json!({ "env": { "WARM_IP_TARGET": 4, "MINIMUM_IP_TARGET": "10", "MAX_ENI": "-1" } }),
        ),
    ]
}

fn policy() -> Vec<(&'static str, Value)> {
    let on = json!({ "enableNetworkPolicy": true, "policy": { "backend": "none" } });
    let mut other_agent = on.clone();
    other_agent["nodeAgent"] = json!({ "enabled": false });
    other_agent["env"] = json!({ "FERRULE_POLICY_AGENT": "true" });
    let mut set = on.clone();
    set["nodeAgent"] = json!({
        "metricsBindAddr": "127.0.0.1:9090", "logLevel": "debug",
        "networkPolicyAgentLogFileLocation": "stderr",
        "resources": { "limits": { "memory": "128Mi" } },
    });
    set["env"] = json!({ "NETWORK_POLICY_ENFORCING_MODE": "standard" });
    let mut strict = on.clone();
    strict["enableNetworkPolicy"] = json!("true");
    strict["nodeAgent"] = json!({ "metricsBindAddr": 9090 });
    strict["env"] = json!({ "NETWORK_POLICY_ENFORCING_MODE": "strict" });
    let strict_without_agent = json!({
        "nodeAgent": { "enabled": false }, "env": { "NETWORK_POLICY_ENFORCING_MODE": "strict" },
    });
    let mut ebpf = on.clone();
    ebpf["policy"] = json!({ "backend": "ebpf" });
    let mut served = ebpf.clone();
    served["env"] = json!({
        "FERRULE_SERVICES": "ebpf", "CLUSTER_ENDPOINT": "https://api.example",
    });
    vec![
        ("off", json!({})),
        ("on", on),
        ("on, ebpf", ebpf),
        ("on, ebpf, Services", served),
        ("on, the agent of amazon-vpc-cni", other_agent),
        ("on, set", set),
        ("on, strict", strict),
        ("strict, without agent", strict_without_agent),
    ]
}

fn settings() -> Vec<(&'static str, Value)> {
    vec![
        ("none", json!({})),
        (
            "numbers and booleans",
            json!({ "env": {
                "AWS_VPC_ENI_MTU": 9001, "AWS_VPC_K8S_CNI_CONNMARK": 128, "ANNOTATE_POD_IP": true,
                "HTTP_TIMEOUT": 1_000_000_000, "CLUSTER_NAME": "blue",
            }}),
        ),
        (
            "of amazon-vpc-cni alone",
            json!({ "env": {
                "AWS_EC2_ENDPOINT": "https://ec2.example", "VPC_CNI_VERSION": "v1.23.1",
                "DISABLE_POD_V6": "true", "ENABLE_NFTABLES": "true",
                "AWS_VPC_K8S_CNI_LOGLEVEL": "Debug",
            }}),
        ),
        (
            "own",
            json!({ "env": {
                "FERRULE_RULES": "compact", "FERRULE_NODE_GROUP": "blue", "DISABLE_METRICS": "true",
                "FERRULE_CHAINED_PLUGINS": r#"[{"type":"bandwidth"}]"#, "DISABLE_INTROSPECTION": true,
                "AWS_VPC_K8S_CNI_LOG_FILE": "stdout",
            }}),
        ),
    ]
}

fn image() -> Vec<(&'static str, Value)> {
    vec![
        (
            "whole",
            json!({ "image": { "override": "registry.example/f:1", "pullPolicy": "Always" } }),
        ),
        (
            "repository",
            json!({ "image": { "overrideRepository": "registry.example/f", "tag": "2" } }),
        ),
        ("account", json!({ "image": { "account": "111122223333", "region": "eu-west-1" } })),
    ]
}

fn scheduling() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        (
            "some nodes",
            json!({
                "nodeSelector": { "pool": "blue" },
                "tolerations": [{ "key": "blue", "operator": "Exists", "effect": "NoSchedule" }],
                "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 1,
                    "preference": { "matchExpressions": [{ "key": "pool", "operator": "Exists" }] },
                }]}},
            }),
        ),
        ("by hand", json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } })),
    ]
}

fn monitoring() -> Vec<(&'static str, Value)> {
    vec![
        ("off", json!({})),
        ("pods", json!({ "podMonitor": { "create": true } })),
        (
            "all",
            json!({
                "podMonitor": {
                    "create": true, "interval": "15s", "scrapeTimeout": "10s",
                    "labels": { "release": "prometheus" }, "annotations": { "a": "b" },
                    "relabelings": [{ "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node" }],
                },
                "prometheusRule": {
                    "create": true, "labels": { "release": "prometheus" },
                    "runbookUrl": "https://docs.example/alerts.html",
                },
                "dashboards": { "create": true, "annotations": { "folder": "nodes" } },
            }),
        ),
    ]
}

fn rights() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        (
            "given",
            json!({
                "securityContext": {
                    "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] },
                    "seLinuxOptions": { "level": "s0" }, "privileged": false,
                },
                "init": { "securityContext": { "appArmorProfile": { "type": "RuntimeDefault" } } },
                "podSecurityContext": { "supplementalGroups": [1000] },
            }),
        ),
    ]
}

fn names() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        ("other", json!({ "nameOverride": "vpc-network" })),
        (
            "whole",
            json!({ "fullnameOverride": "pods-network-of-a-very-long-name-indeed-and-more" }),
        ),
    ]
}

fn account() -> Vec<(&'static str, Value)> {
    let role = json!({ "eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/ferrule" });
    vec![
        ("made", json!({})),
        ("given", json!({ "serviceAccount": { "create": false, "name": "network-of-nodes" } })),
        ("with a role", json!({ "serviceAccount": { "annotations": role } })),
    ]
}

fn controller() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        (
            "in pods' network",
            json!({ "controller": {
                "hostNetwork": false, "replicas": 3,
                "topologySpreadConstraints": [{
                    "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                }],
            }}),
        ),
        (
            "with view",
            json!({ "controller": {
                "view": true, "networkPolicy": false, "logLevel": "debug",
                "extraEnv": [{ "name": "FERRULE_CONTROLLER_GRACE", "value": "10s" }],
                "podLabels": { "team": "blue" }, "podAnnotations": { "a": "b" },
            }}),
        ),
    ]
}

fn definitions() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        (
            "all",
            json!({ "crds": {
                "cniNode": true, "upstreamPolicies": true, "antreaPolicies": true, "awsPolicies": true,
            }}),
        ),
        ("none", json!({ "crds": { "realizations": false } })),
    ]
}

fn extras() -> Vec<(&'static str, Value)> {
    vec![
        ("none", json!({})),
        (
            "given",
            json!({
                "extraVolumes": [{ "name": "more", "emptyDir": {} }],
                "extraVolumeMounts": [{ "name": "more", "mountPath": "/more" }],
                "extraEnv": [{ "name": "AWS_PROFILE", "value": "x" }],
                "podAnnotations": { "a": "b" }, "podLabels": { "team": "blue" },
                "commonLabels": { "team": "red", "release": "network" },
                "extraObjects": [{
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": { "name": "more", "namespace": "kube-system" },
                    "data": { "text": "{{ .Values }}" },
                }],
                "imagePullSecrets": [{ "name": "registry" }],
                "resources": { "limits": { "memory": "256Mi" } },
                "livenessProbe": { "initialDelaySeconds": 90, "failureThreshold": 5 },
            }),
        ),
    ]
}

fn control_plane() -> Vec<(&'static str, Value)> {
    vec![
        ("nothing", json!({})),
        (
            "given",
            json!({
                "controlPlaneConfig": { "create": true },
                "enableWindowsIpam": true, "branchENICooldown": 60, "warmWindowsIPTarget": "1",
                "minimumWindowsIPTarget": 3,
            }),
        ),
    ]
}

fn folders() -> Vec<(&'static str, Value)> {
    vec![
        ("default", json!({})),
        (
            "values",
            json!({ "cni": {
                "binPath": "/var/lib/rancher/k3s/data/cni",
                "confPath": "/var/lib/rancher/k3s/agent/etc/cni/net.d",
            }}),
        ),
        (
            "of amazon-vpc-cni",
            json!({ "env": {
                "HOST_CNI_BIN_PATH": "/host/home/kubernetes/bin",
                "HOST_CNI_CONFDIR_PATH": "/host/etc/cni/net.d",
            }}),
        ),
    ]
}
