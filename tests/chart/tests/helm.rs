//! The chart's rendered objects and refused values, without a cluster.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use serde_json::{Value, json};
use std::{collections::BTreeMap, fs, path::Path};
use tests_chart::{Chart, Rendered};

fn chart() -> Chart {
    Chart::of_this_clone().unwrap()
}

/// Returns values that enable policy and monitoring.
fn whole() -> Value {
    json!({
        "enableNetworkPolicy": true, "policy": { "backend": "none" },
        "podMonitor": { "create": true }, "prometheusRule": { "create": true },
        "dashboards": { "create": true },
        "env": { "ENABLE_POD_ENI": "true", "ANNOTATE_POD_IP": true, "WARM_IP_TARGET": 5 },
    })
}

/// Returns the same values with the backend `ebpf`.
fn enforced() -> Value {
    let mut values = whole();
    values["policy"]["backend"] = json!("ebpf");
    values
}

#[test]
fn the_strict_linter_reports_nothing() {
    for values in [json!({}), whole(), enforced()] {
        let printed = chart().lint(&values).unwrap();
        assert!(printed.contains("0 chart(s) failed"), "{printed}");
    }
}

/// The error names the value, and the reason if there is one.
#[test]
fn an_unknown_or_invalid_value_is_refused_by_its_name() {
    let chart = chart();
    let rows = [
        (json!({ "enabelNetworkPolicy": true }), &["enabelNetworkPolicy"][..]),
        (json!({ "image": { "tga": "1" } }), &["/image", "tga"]),
        (json!({ "env": { "WARM_ENI_TARGT": "2" } }), &["/env", "WARM_ENI_TARGT"]),
        (json!({ "env": { "WARM_ENI_TARGET": "two" } }), &["/env/WARM_ENI_TARGET"]),
        (json!({ "env": { "AWS_VPC_ENI_MTU": 90001 } }), &["/env/AWS_VPC_ENI_MTU", "9,001"]),
        (json!({ "env": { "ENABLE_IPv6": "yes" } }), &["/env/ENABLE_IPv6"]),
        (json!({ "env": { "FERRULE_RULES": "compcat" } }), &["/env/FERRULE_RULES", "compact"]),
        (json!({ "env": { "FERRULE_SOCKET": "/tmp/s" } }), &["/env", "FERRULE_SOCKET"]),
        (json!({ "cni": { "binDir": "/b" } }), &["/cni", "binDir"]),
        (json!({ "cni": { "binPath": 1 } }), &["/cni/binPath"]),
        (json!({ "init": { "env": { "ENABLE_IPV6": "true" } } }), &["/init/env", "ENABLE_IPV6"]),
        (json!({ "image": { "pullPolicy": "Sometimes" } }), &["/image/pullPolicy"]),
        (json!({ "controller": { "replicas": 0 } }), &["/controller/replicas"]),
        (json!({ "resources": { "limit": {} } }), &["/resources", "limit"]),
        (json!({ "securityContext": { "privileged": true } }), &["/securityContext", "privileged"]),
        (json!({ "securityContext": { "allowPrivilegeEscalation": true } }), &["allowPrivilege"]),
        (
            json!({ "podSecurityContext": { "runAsNonRoot": true } }),
            &["/podSecurityContext/runAsNonRoot", "runs as uid 0; remove"],
        ),
        (
            json!({ "podSecurityContext": { "runAsUser": 1000 } }),
            &["/podSecurityContext/runAsUser", "runs as uid 0; remove"],
        ),
        (
            json!({ "securityContext": { "runAsNonRoot": true } }),
            &["/securityContext/runAsNonRoot"],
        ),
        (
            json!({ "init": { "securityContext": { "runAsUser": 1000 } } }),
            &["/init/securityContext/runAsUser", "runs as uid 0"],
        ),
        (
            json!({ "nodeAgent": { "securityContext": { "runAsNonRoot": true } } }),
            &["/nodeAgent/securityContext/runAsNonRoot", "runs as uid 0"],
        ),
        (json!({ "cniConfig": { "enabled": true } }), &["/cniConfig/enabled", "CHAINED_PLUGINS"]),
        (json!({ "originalMatchLabels": true }), &["/originalMatchLabels", "ferrule migrate"]),
        (
            json!({ "nodeAgent": { "enableCloudWatchLogs": "true" } }),
            &["/nodeAgent/enableCloudWatchLogs", "because"],
        ),
        (json!({ "livenessProbe": { "httpGet": {} } }), &["/livenessProbe", "httpGet"]),
        (json!({ "policy": { "backend": "magic" } }), &["/policy/backend", "ebpf"]),
        (json!({ "policy": { "backend": "" } }), &["/policy/backend", "none"]),
        (json!({ "nodeAgent": { "metricsBindAddr": "/a.sock" } }), &["/nodeAgent/metricsBindAddr"]),
        (
            json!({ "eniConfig": { "create": true, "subnets": { "a": "subnet-1" } } }),
            &["/eniConfig/subnets/a"],
        ),
        (
            json!({ "commonLabels": { "app.kubernetes.io/name": "x" } }),
            &["/commonLabels/app.kubernetes.io", "because the chart"],
        ),
        (
            json!({ "commonLabels": { "helm.sh/chart": "x" } }),
            &["/commonLabels/helm.sh", "because"],
        ),
        (json!({ "commonLabels": { "team": "two words" } }), &["/commonLabels/team", "two words"]),
        (json!({ "commonLabels": { "two words": "x" } }), &["/commonLabels", "two words"]),
        (json!({ "commonLabels": { "a/b/c": "x" } }), &["/commonLabels", "a/b/c"]),
        (json!({ "extraEnv": [{ "nam": "A" }] }), &["/extraEnv/0", "name"]),
        (json!({ "extraObjects": [{ "kind": "ConfigMap" }] }), &["/extraObjects/0", "apiVersion"]),
        // Helm removes a group that is null.
        (json!({ "controller": null }), &["missing property 'controller'"]),
        (json!({ "nodeAgent": null }), &["missing property 'nodeAgent'"]),
        (
            json!({ "extraObjects": [
                { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "x" } },
            ] }),
            &["/extraObjects/0/metadata", "name"],
        ),
        (
            json!({ "extraObjects": [
                { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x", "labels": [] } },
            ] }),
            &["/extraObjects/0/metadata/labels", "array"],
        ),
    ];
    for (values, words) in rows {
        let printed = match chart.render(&values) {
            Ok(_) => panic!("{values} is accepted"),
            Err(error) => format!("{error:#}"),
        };
        for word in words {
            assert!(printed.contains(word), "{values}: {word:?} is not in\n{printed}");
        }
    }
}

#[test]
fn an_empty_value_is_a_value_without_entries() {
    let chart = chart();
    let rows = [
        json!({ "env": null }),
        json!({ "init": { "env": null, "resources": null, "securityContext": null } }),
        json!({ "nodeAgent": { "resources": null, "securityContext": null } }),
        json!({ "resources": null, "securityContext": null, "podSecurityContext": null }),
        json!({ "livenessProbe": null, "readinessProbe": null }),
        json!({ "podSecurityContext": { "runAsNonRoot": false, "runAsUser": 0 } }),
    ];
    for mut values in rows {
        for policy in [false, true] {
            values["enableNetworkPolicy"] = json!(policy);
            let rendered = chart.render(&values);
            assert!(rendered.is_ok(), "{values}: {:#}", rendered.err().unwrap());
        }
    }
}

#[test]
fn common_labels_are_on_each_object_and_pod_and_in_no_selector() {
    let mut values = whole();
    values["commonLabels"] = json!({ "team": "blue", "costs": "12" });
    values["podLabels"] = json!({ "team": "green" });
    values["controller"] = json!({ "view": true, "podLabels": { "team": "red" } });
    values["podMonitor"]["labels"] = json!({ "team": "observers" });
    values["controlPlaneConfig"] = json!({ "create": true });
    values["eniConfig"] = json!({ "create": true, "subnets": { "a": { "id": "subnet-1" } } });
    values["crds"] = json!({
        "cniNode": true, "upstreamPolicies": true, "antreaPolicies": true, "awsPolicies": true,
    });
    let rendered = chart().render(&values).unwrap();
    let (mut objects, mut pods) = (0, Vec::new());
    for object in &rendered.objects {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        // Helm installs the folder crds as it is.
        if name == "eniconfigs.crd.k8s.amazonaws.com" {
            continue;
        }
        let labels = &object["metadata"]["labels"];
        let team = if kind == "PodMonitor" { "observers" } else { "blue" };
        assert_eq!(
            (&labels["team"], &labels["costs"]),
            (&json!(team), &json!("12")),
            "{kind} {name}"
        );
        let pod = &object["spec"]["template"]["metadata"]["labels"];
        if pod.is_object() {
            assert_eq!(object["spec"]["selector"]["matchLabels"]["costs"], Value::Null, "{kind}");
            assert_eq!(pod["costs"], "12", "{kind}");
            pods.push((kind.as_str().unwrap(), pod["team"].as_str().unwrap()));
        }
        objects += 1;
    }
    assert!(objects > 40, "{objects} objects");
    assert_eq!(pods, [("DaemonSet", "green"), ("Deployment", "red")]);
}

/// Prometheus evaluates the text between double braces.
#[test]
fn extra_objects_get_the_common_labels_and_no_other_change() {
    let object = |name: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "kube-system", "labels": labels },
            "data": { "alert": "{{ $labels.node }}", "file": "a: 1\nb: 2\n" },
        })
    };
    let mut values = json!({
        "commonLabels": { "team": "blue", "costs": "12" },
        "extraObjects": [object("first", json!({ "team": "red" })), object("second", json!({}))],
    });
    let of = |values: &Value| {
        let rendered = chart().render(values).unwrap();
        rendered.of_kind("ConfigMap").cloned().collect::<Vec<Value>>()
    };
    let labeled = [
        object("first", json!({ "team": "red", "costs": "12" })),
        object("second", json!({ "team": "blue", "costs": "12" })),
    ];
    assert_eq!(of(&values), labeled);
    values["commonLabels"] = json!({});
    assert_eq!(json!(of(&values)), values["extraObjects"]);
}

#[test]
fn a_replica_that_is_not_ready_does_not_block_a_drain() {
    let rendered = chart().render(&whole()).unwrap();
    let mut budgets = rendered.of_kind("PodDisruptionBudget");
    let spec = &budgets.next().unwrap()["spec"];
    assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow");
    assert_eq!(spec["maxUnavailable"], 1);
    let deployment = rendered.of_kind("Deployment").next().unwrap();
    assert_eq!(spec["selector"], deployment["spec"]["selector"]);
    assert!(budgets.next().is_none(), "a DaemonSet needs none");
}

/// Installations without the chart have the same admission policies.
#[test]
fn the_manifests_have_the_admission_policies_of_the_chart() {
    let policies = |objects: Vec<Value>| -> BTreeMap<String, Value> {
        let kind = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
        let is_policy = |object: &Value| kind(object).starts_with("ValidatingAdmissionPolicy");
        let named = |object: Value| {
            let name = format!("{} {}", kind(&object), object["metadata"]["name"]);
            (name, object["spec"].clone())
        };
        objects.into_iter().filter(is_policy).map(named).collect()
    };
    let mut manifests = Vec::new();
    for name in ["rbac", "rbac-controller"] {
        let path = Chart::path().join(format!("../../config/manifests/{name}.yaml"));
        let text = fs::read_to_string(path).unwrap();
        manifests.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    let manifests = policies(manifests);
    assert_eq!(manifests.len(), 4);
    // The manifests give each account its own name.
    let mut values = whole();
    values["fullnameOverride"] = json!("ferrule-ipamd");
    let text = chart().render(&values).unwrap().text;
    let text = text.replace("ferrule-ipamd-controller", "ferrule-controller");
    let rendered: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let rendered = policies(rendered);
    assert!(rendered.keys().eq(manifests.keys()), "{:?}", rendered.keys());
    for (name, spec) in &manifests {
        assert_eq!(rendered[name], *spec, "{name}");
    }
}

/// Values with a memory limit of the agent, and one of its maps in MiB.
fn limited(memory: &str, maps: Option<&str>) -> Value {
    let mut values = json!({
        "enableNetworkPolicy": true,
        "nodeAgent": { "resources": { "limits": { "memory": memory } } },
    });
    if let Some(maps) = maps {
        values["env"] = json!({ "FERRULE_AGENT_MAP_MEMORY": maps });
    }
    values
}

#[test]
fn a_memory_limit_has_room_for_maps() {
    let chart = chart();
    for values in [limited("176Mi", None), limited("1Gi", None), limited("100Mi", Some("52"))] {
        assert!(chart.render(&values).is_ok(), "{values}");
    }
    let mut without_maps = limited("64Mi", None);
    without_maps["policy"] = json!({ "backend": "none" });
    assert!(chart.render(&without_maps).is_ok());
}

#[test]
fn a_memory_request_of_the_agent_stays_as_given() {
    let requests = |values: &Value| {
        let (_, agent) = agent(&chart().render(values).unwrap());
        agent["resources"]["requests"].clone()
    };
    for memory in ["32Mi", "64Mi", "1Gi"] {
        for mut values in [whole(), enforced()] {
            values["nodeAgent"] = json!({ "resources": { "requests": { "memory": memory } } });
            assert_eq!(requests(&values), json!({ "cpu": "25m", "memory": memory }), "{values}");
        }
    }
    let below_the_limit = requests(&limited("100Mi", Some("52")));
    assert_eq!(below_the_limit, json!({ "cpu": "25m", "memory": "52Mi" }));
    let mut none = enforced();
    none["nodeAgent"] = json!({ "resources": null });
    assert_eq!(requests(&none), Value::Null, "an empty value has no entries");
}

/// Returns values with which the agents serve Services.
fn served(endpoint: Option<&str>) -> Value {
    let mut values = enforced();
    values["env"]["FERRULE_SERVICES"] = json!("ebpf");
    if let Some(endpoint) = endpoint {
        values["env"]["CLUSTER_ENDPOINT"] = json!(endpoint);
    }
    values
}

/// No program of the node's network depends on a Service that nodes serve.
#[test]
fn with_services_the_controller_has_the_api_servers_own_url() {
    let chart = chart();
    let env = |values: &Value| {
        let rendered = chart.render(values).unwrap();
        let controller = rendered.of_kind("Deployment").next().unwrap();
        let all = &controller["spec"]["template"]["spec"]["containers"][0]["env"];
        let all = all.as_array().unwrap().iter();
        let pairs = all.map(|one| (one["name"].as_str().unwrap(), one["value"].as_str()));
        pairs.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))).collect()
    };
    let with: BTreeMap<String, Option<String>> = env(&served(Some("https://10.0.0.1")));
    assert_eq!(with["FERRULE_CONTROLLER_API_SERVER"].as_deref(), Some("https://10.0.0.1"));
    assert_eq!(with["FERRULE_CONTROLLER_SERVICES"].as_deref(), Some("ebpf"));
    let without: BTreeMap<String, Option<String>> = env(&enforced());
    let names = ["FERRULE_CONTROLLER_API_SERVER", "FERRULE_CONTROLLER_SERVICES"];
    assert!(names.iter().all(|name| !without.contains_key(*name)), "{without:?}");
}

/// A replica with an address of its own cannot connect to a name that it cannot resolve.
#[test]
fn the_policy_of_the_controller_allows_dns_if_the_api_server_has_a_name() {
    let chart = chart();
    let dns = [json!({ "port": 53, "protocol": "UDP" }), json!({ "port": 53, "protocol": "TCP" })];
    for (endpoint, has_name) in [
        (None, false),
        (Some("https://10.0.0.1"), false),
        (Some("https://10.0.0.1:443/"), false),
        (Some("https://[2001:db8::1]:443"), false),
        (Some("https://0123.gr7.eu-west-1.eks.amazonaws.com"), true),
        (Some("https://api.example:6443"), true),
    ] {
        let mut values = whole();
        values["controller"] = json!({ "hostNetwork": false });
        if let Some(endpoint) = endpoint {
            values["env"]["CLUSTER_ENDPOINT"] = json!(endpoint);
        }
        let rendered = chart.render(&values).unwrap();
        let egress = &rendered.of_kind("NetworkPolicy").next().unwrap()["spec"]["egress"];
        let ports = egress.as_array().unwrap().iter().map(|rule| rule["ports"].as_array().unwrap());
        let ports: Vec<&Value> = ports.flatten().collect();
        assert!(ports.contains(&&json!({ "port": 443, "protocol": "TCP" })), "{endpoint:?}");
        for port in &dns {
            assert_eq!(ports.contains(&port), has_name, "{endpoint:?}: {ports:?}");
        }
    }
}

/// The programs that serve processes of the node are attached at the node's cgroups.
#[test]
fn an_agent_that_serves_services_sees_the_cgroups_of_the_node() {
    let chart = chart();
    let of = |rendered: &Rendered| {
        let (pod, agent) = agent(rendered);
        let of = |list: &Value| {
            list.as_array().unwrap().iter().find(|one| one["name"] == "cgroup").cloned()
        };
        let path = variable(rendered, "FERRULE_AGENT_CGROUP");
        (of(&pod["volumes"]), of(&agent["volumeMounts"]), path)
    };
    let (volume, mount, path) = of(&chart.render(&served(Some("https://10.0.0.1"))).unwrap());
    let folder = json!({ "path": "/sys/fs/cgroup", "type": "Directory" });
    assert_eq!(volume.unwrap()["hostPath"], folder);
    let at = "/host/sys/fs/cgroup";
    assert_eq!(mount.unwrap(), json!({ "name": "cgroup", "mountPath": at, "readOnly": true }));
    assert_eq!(path.as_deref(), Some(at));
    assert_eq!(of(&chart.render(&enforced()).unwrap()), (None, None, None));
}

/// An agent with the backend `ebpf` reserves ports of the node, or releases those of an earlier agent.
#[test]
fn an_agent_with_programs_writes_settings_of_the_nodes_network() {
    let chart = chart();
    let mount = |rendered: &Rendered| {
        let (pod, agent) = agent(rendered);
        let of = |list: &Value| {
            list.as_array().unwrap().iter().find(|one| one["name"] == "proc-sys-net").cloned()
        };
        assert_eq!(of(&pod["volumes"]).unwrap()["hostPath"]["path"], "/proc/sys/net");
        of(&agent["volumeMounts"])
    };
    let expected = json!({ "name": "proc-sys-net", "mountPath": "/host/proc/sys/net" });
    for given in [served(Some("https://10.0.0.1")), enforced()] {
        assert_eq!(mount(&chart.render(&given).unwrap()), Some(expected.clone()));
    }
}

/// The templates refuse these values, because the schema cannot compare two values.
#[test]
fn a_contradiction_of_two_values_is_refused_by_name() {
    let chart = chart();
    let rows = [
        (json!({ "serviceAccount": { "create": false } }), "serviceAccount.name"),
        (json!({ "cni": { "binPath": "opt/cni/bin" } }), "cannot use cni.binPath=opt/cni/bin"),
        (json!({ "cni": { "binPath": "/" } }), "cannot use cni.binPath=/:"),
        (json!({ "cni": { "confPath": "/etc/../net.d" } }), "cni.confPath=/etc/../net.d"),
        (json!({ "cni": { "confPath": "/etc/cni, net" } }), "absolute path of a folder"),
        (json!({ "env": { "HOST_CNI_BIN_PATH": "/opt/bin" } }), "set cni.binPath to the folder"),
        (
            json!({ "cni": { "binPath": "/a" }, "env": { "HOST_CNI_BIN_PATH": "/host/b" } }),
            "between cni.binPath=/a and env.HOST_CNI_BIN_PATH=/host/b",
        ),
        (json!({ "image": { "account": "111122223333" } }), "image.region"),
        (json!({ "image": { "account": "602401143452", "region": "us-west-2" } }), "image.account"),
        (json!({ "image": { "pullPolicy": "Always" } }), "set image.override to your image"),
        (json!({ "image": { "override": "r.example/amazon-k8s-cni:v1.23.1" } }), "image.override"),
        (json!({ "image": { "account": 602_401_143_452_u64, "region": "r" } }), "image.account"),
        (json!({ "image": { "override": "r.example/ferrule" } }), "has no tag and no digest"),
        (json!({ "image": { "override": "r.example:5000/f" } }), "example r.example:5000/f:0"),
        (
            json!({ "image": { "overrideRepository": "r.example/f:1" } }),
            "image.overrideRepository=r.example/f:1: it ends with a tag",
        ),
        (
            json!({ "enableNetworkPolicy": true, "env": { "FERRULE_POLICY_AGENT": "true" } }),
            "two agents would enforce network policies on each pod",
        ),
        (
            json!({
                "enableNetworkPolicy": true,
                "controller": { "extraEnv": [{ "name": "POD_IP", "value": "10.0.0.1" }] },
            }),
            "cannot set POD_IP in controller.extraEnv",
        ),
        (
            json!({ "serviceAccount": { "create": false, "name": "aws-node" } }),
            "serviceAccount.name=aws-node",
        ),
        (json!({ "serviceAccount": { "name": "aws-node" } }), "serviceAccount.name=aws-node"),
        (
            json!({ "podLabels": { "app.kubernetes.io/part-of": "shop" } }),
            "cannot use podLabels.app.kubernetes.io/part-of",
        ),
        (
            json!({
                "enableNetworkPolicy": true,
                "controller": { "podLabels": { "app.kubernetes.io/name": "x" } },
            }),
            "cannot use controller.podLabels.app.kubernetes.io/name",
        ),
        (json!({ "env": { "NETWORK_POLICY_ENFORCING_MODE": "strict" } }), "enableNetworkPolicy"),
        (json!({ "env": { "FERRULE_SERVICES": "ebpf" } }), "set enableNetworkPolicy=true"),
        (served(None), "env.CLUSTER_ENDPOINT is not set"),
        (
            json!({ "enableNetworkPolicy": true, "nodeAgent": { "enabled": false } }),
            "enableNetworkPolicy=true with nodeAgent.enabled=false: no agent would enforce",
        ),
        (json!({ "prometheusRule": { "create": true } }), "set podMonitor.create=true"),
        (limited("175Mi", None), "set 176Mi at least"),
        (limited("0.1Gi", None), "nodeAgent.resources.limits.memory=0.1Gi"),
        (limited("256M", Some("200")), "set 248Mi at least"),
        (
            json!({ "init": { "env": { "NETWORK_POLICY_ENFORCING_MODE": "Strict" } } }),
            "enableNetworkPolicy",
        ),
        (
            json!({ "env": { "DISABLE_POD_V6": "true", "FERRULE_CHAINED_PLUGINS": "[{}]" } }),
            "FERRULE_CHAINED_PLUGINS",
        ),
    ];
    for (values, word) in rows {
        let printed = format!("{:#}", chart.render(&values).err().unwrap());
        assert!(printed.contains(word), "{values}: {printed}");
    }
}

/// Templates read `env` only, and a second entry of a name would replace the first one silently.
#[test]
fn a_name_of_extra_env_that_has_another_place_is_refused_with_that_place() {
    let chart = chart();
    let with = |name: &str, mut values: Value| {
        values["extraEnv"] = json!([{ "name": "A", "value": "1" }, { "name": name, "value": "2" }]);
        values
    };
    let refusal = |name: &str, values: Value| {
        format!("{:#}", chart.render(&with(name, values)).err().unwrap())
    };
    for name in [
        "CLUSTER_ENDPOINT",
        "CLUSTER_NAME",
        "ENABLE_POD_ENI",
        "FERRULE_AGENT_MAP_MEMORY",
        "FERRULE_SERVICES",
        "HOST_CNI_BIN_PATH",
    ] {
        let printed = refusal(name, json!({}));
        let sentence = format!("cannot set {name} in extraEnv: templates of the chart read it;");
        assert!(printed.contains(&format!("{sentence} set env.{name}")), "{printed}");
    }
    let printed = refusal("FERRULE_POLICY", json!({}));
    assert!(printed.contains("enableNetworkPolicy sets it; remove it from extraEnv"), "{printed}");
    let ec2 = json!({ "env": { "AWS_EC2_ENDPOINT": "https://ec2.example" } });
    for (name, values, place) in [
        ("WARM_IP_TARGET", json!({ "env": { "WARM_IP_TARGET": 1 } }), "env.WARM_IP_TARGET"),
        ("MAX_ENI", json!({ "init": { "env": { "MAX_ENI": 1 } } }), "init.env.MAX_ENI"),
        ("AWS_ENDPOINT_URL_EC2", ec2, "the chart or another entry of extraEnv"),
        ("A", json!({}), "the chart or another entry of extraEnv"),
    ] {
        let printed = refusal(name, values);
        let words = format!("cannot set {name} in extraEnv: {place} sets it too");
        assert!(printed.contains(&words), "{printed}");
    }
    let rendered = chart.render(&with("AWS_PROFILE", json!({}))).unwrap();
    assert_eq!(variable(&rendered, "AWS_PROFILE").as_deref(), Some("2"));
}

/// Values of amazon-vpc-cni's own values file that the chart uses.
#[test]
fn values_of_amazon_vpc_cni_keep_their_meaning() {
    let values = json!({
        "init": {
            "image": { "tag": "v1.23.1", "region": "us-west-2", "account": "602401143452" },
            "env": { "DISABLE_TCP_EARLY_DEMUX": "true", "ENABLE_IPv6": "false" },
            "resources": { "requests": { "cpu": "10m" } },
        },
        "nodeAgent": {
            "enabled": true, "enableCloudWatchLogs": "false", "enablePolicyEventLogs": "false",
            "enableIpv6": "false", "metricsBindAddr": "8162", "healthProbeBindAddr": "8163",
            "conntrackCacheCleanupPeriod": 300,
        },
        "image": { "override": "registry.example/ferrule:1" },
        "env": {
            "WARM_IP_TARGET": "4", "MINIMUM_IP_TARGET": 10, "AWS_VPC_K8S_CNI_CONNMARK": "0x80",
            "AWS_VPC_K8S_CNI_EXTERNALSNAT": false, "AWS_EC2_ENDPOINT": "https://ec2.example",
            "ADDITIONAL_ENI_TAGS": "{}", "VPC_CNI_VERSION": "v1.23.1",
            "AWS_VPC_K8S_PLUGIN_LOG_LEVEL": "DEBUG",
        },
        "originalMatchLabels": false,
        "cniConfig": { "enabled": false, "fileContents": "" },
        "securityContext": { "capabilities": { "add": ["NET_ADMIN", "NET_RAW"] } },
        "eniConfig": {
            "create": true, "region": "us-west-2",
            "subnets": { "us-west-2a": { "id": "subnet-1", "securityGroups": ["sg-1"] } },
        },
        "branchENICooldown": "60", "enableWindowsIpam": "false", "controlPlaneConfig": { "create": true },
        "tolerations": [{ "operator": "Exists" }],
        "livenessProbeTimeoutSeconds": 20,
    });
    let rendered = chart().render(&values).unwrap();
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    let pod = &daemon["spec"]["template"]["spec"];
    let ipamd = &pod["containers"][0];
    assert_eq!(ipamd["image"], "registry.example/ferrule:1");
    let env = |name: &str| {
        let all = ipamd["env"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).map(|one| one["value"].clone())
    };
    let text = |text: &str| Some(json!(text));
    assert_eq!(env("WARM_IP_TARGET"), text("4"));
    assert_eq!(env("MINIMUM_IP_TARGET"), text("10"));
    assert_eq!(env("AWS_VPC_K8S_CNI_EXTERNALSNAT"), text("false"));
    assert_eq!(env("DISABLE_TCP_EARLY_DEMUX"), text("true"), "a value of `init.env`");
    assert_eq!(env("AWS_ENDPOINT_URL_EC2"), text("https://ec2.example"));
    assert_eq!(env("VPC_CNI_VERSION"), None);
    assert_eq!(ipamd["livenessProbe"]["timeoutSeconds"], 20);
    assert_eq!(ipamd["securityContext"]["capabilities"]["add"], json!(["NET_ADMIN", "NET_RAW"]));
    let config = rendered.of_kind("ENIConfig").next().unwrap();
    assert_eq!(config["metadata"]["name"], "us-west-2a");
    assert_eq!(config["spec"], json!({ "subnet": "subnet-1", "securityGroups": ["sg-1"] }));
    let map = rendered.of_kind("ConfigMap").find(|map| map["metadata"]["name"] == "amazon-vpc-cni");
    assert_eq!(map.unwrap()["data"]["branch-eni-cooldown"], "60");
}

#[test]
fn every_capability_and_every_folder_of_the_host_has_its_reason() {
    let chart = chart();
    for (values, expected) in [(whole(), (2, 11)), (enforced(), (6, 12))] {
        let rendered = chart.render(&values).unwrap();
        let lines: Vec<&str> = rendered.text.lines().collect();
        let (mut capabilities, mut folders) = (0, 0);
        for (at, line) in lines.iter().enumerate() {
            if ["- NET_", "- BPF", "- PERFMON"].iter().any(|name| line.trim().starts_with(name)) {
                assert!(line.contains(" # "), "no reason beside {line:?}");
                capabilities += 1;
            }
            if line.contains("hostPath:") {
                let name = lines.get(at - 1).unwrap();
                let before = lines.get(at - 2).unwrap().trim();
                assert!(before.starts_with('#'), "no reason above {name:?}");
                folders += 1;
            }
        }
        assert_eq!((capabilities, folders), expected);
    }
}

/// Returns the DaemonSet's pod and its container `agent`.
fn agent(rendered: &Rendered) -> (Value, Value) {
    let pod = &rendered.of_kind("DaemonSet").next().unwrap()["spec"]["template"]["spec"];
    let all = pod["containers"].as_array().unwrap();
    let agent = all.iter().find(|one| one["name"] == "agent").unwrap();
    (pod.clone(), agent.clone())
}

#[test]
fn an_agent_has_capabilities_and_the_bpffs_with_the_backend_ebpf_only() {
    let chart = chart();
    let bpffs = |rendered: &Rendered| {
        let (pod, agent) = agent(rendered);
        let of = |list: &Value| {
            list.as_array().unwrap().iter().find(|one| one["name"] == "bpffs").cloned()
        };
        (of(&pod["volumes"]), of(&agent["volumeMounts"]))
    };
    let without = chart.render(&whole()).unwrap();
    let (_, open) = agent(&without);
    assert_eq!(open["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
    assert_eq!(bpffs(&without), (None, None));
    assert_eq!(open["resources"]["requests"]["memory"], "32Mi");
    assert_eq!(variable(&without, "FERRULE_AGENT_BPF_PINS"), None);

    let with = chart.render(&enforced()).unwrap();
    let (pod, closed) = agent(&with);
    assert_eq!(
        closed["securityContext"],
        json!({
            "privileged": false, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "runAsUser": 0,
            "capabilities": { "drop": ["ALL"], "add": ["BPF", "NET_ADMIN", "NET_RAW", "PERFMON"] },
        })
    );
    assert_eq!((&pod["hostNetwork"], &pod["hostPID"]), (&json!(true), &Value::Null));
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let (volume, mount) = bpffs(&with);
    let folder = json!({ "path": "/sys/fs/bpf", "type": "Directory" });
    assert_eq!(volume.unwrap()["hostPath"], folder);
    let mount = mount.unwrap();
    assert_eq!(mount, json!({ "name": "bpffs", "mountPath": "/host/sys/fs/bpf" }));
    let pins = variable(&with, "FERRULE_AGENT_BPF_PINS").unwrap();
    assert_eq!(pins, "/host/sys/fs/bpf/ferrule/maps", "below the mount");
    let default = "/host".to_owned()
        + config_settings::table()
            .find(|one| one.name == "FERRULE_AGENT_BPF_PINS")
            .unwrap()
            .default;
    assert_eq!(pins, default, "the default's folder of the host");
    assert_eq!(closed["resources"]["requests"], json!({ "cpu": "25m", "memory": "128Mi" }));
}

/// A compromised agent must not reach the daemon's socket or its rights in Kubernetes.
#[test]
fn an_agent_has_neither_the_daemons_socket_nor_its_token() {
    let (pod, agent) = agent(&chart().render(&enforced()).unwrap());
    assert_eq!(pod["automountServiceAccountToken"], false);
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &Value| volumes.iter().find(|one| one["name"] == *name).unwrap();
    let mut run = Vec::new();
    for mount in agent["volumeMounts"].as_array().unwrap() {
        let volume = volume(&mount["name"]);
        for source in volume["projected"]["sources"].as_array().into_iter().flatten() {
            assert_eq!(source["serviceAccountToken"]["audience"], "ferrule-controller", "{volume}");
        }
        let path = volume["hostPath"]["path"].as_str().unwrap_or_default();
        if path.starts_with("/run") {
            run.push((path, mount["readOnly"] == true));
        }
    }
    assert_eq!(run, [("/run/ferrule/agent", false), ("/run/ferrule/controller", true)]);
    let folder = |name: &str| {
        let default = config_settings::table().find(|one| one.name == name).unwrap().default;
        Path::new(default).parent().unwrap().to_owned()
    };
    assert_eq!(folder("FERRULE_AGENT_SOCKET"), Path::new("/run/ferrule/agent"));
    assert_eq!(folder("FERRULE_CONTROLLER_REPLICAS"), Path::new("/run/ferrule/controller"));
}

/// EKS's webhook gives the role of the account to each container that the annotation does not name. The webhook does not
/// remove spaces.
#[test]
fn the_daemon_alone_has_the_role_of_the_account() {
    let key = "eks.amazonaws.com/skip-containers";
    let mut removal = enforced();
    removal["removal"] = json!(true);
    let mut more = enforced();
    more["podAnnotations"] = json!({ "a": "b", key: "sidecar, agent" });
    for (values, expected) in [
        (json!({}), "agent,install,network,uninstall"),
        (enforced(), "agent,install,network,uninstall"),
        (removal, "agent,install,network,uninstall"),
        (more, "agent,install,network,uninstall,sidecar"),
    ] {
        let rendered = chart().render(&values).unwrap();
        let template = &rendered.of_kind("DaemonSet").next().unwrap()["spec"]["template"];
        let annotations = &template["metadata"]["annotations"];
        assert_eq!(annotations[key], expected, "{values}");
        assert_eq!(annotations["a"], values["podAnnotations"]["a"], "{values}");
        let lists = ["initContainers", "containers"].map(|list| &template["spec"][list]);
        let all = lists.into_iter().flat_map(|list| list.as_array().unwrap());
        let with_role = all.map(|one| one["name"].as_str().unwrap());
        let with_role = with_role.filter(|name| !expected.split(',').any(|other| other == *name));
        assert_eq!(with_role.collect::<Vec<_>>(), ["ipamd"], "{values}");
    }
}

#[test]
fn the_connections_of_the_agent_are_those_of_the_values() {
    let of = |values: &Value| {
        let rendered = chart().render(values).unwrap();
        let names = ["FERRULE_AGENT_CONNECTIONS", "FERRULE_AGENT_CONNECTION_SWEEP"];
        names.map(|name| variable(&rendered, name))
    };
    let mut values = enforced();
    assert_eq!(of(&values), [None, None], "the defaults of the settings");
    values["nodeAgent"] =
        json!({ "conntrackCacheTableSize": 1_048_576, "conntrackCacheCleanupPeriod": "300" });
    assert_eq!(of(&values), ["1048576", "300"].map(|value| Some(value.to_owned())));
}

/// amazon-vpc-cni's own default of `nodeAgent.securityContext` adds NET_ADMIN.
#[test]
fn values_of_the_agent_keep_the_capabilities_of_the_backend_ebpf() {
    let mut values = enforced();
    values["nodeAgent"] = json!({
        "securityContext": {
            "capabilities": { "add": ["NET_ADMIN", "SYS_PTRACE"] }, "seLinuxOptions": { "level": "s0" },
        },
        "resources": { "requests": { "memory": "64Mi" }, "limits": { "memory": "256Mi" } },
    });
    let (_, agent) = agent(&chart().render(&values).unwrap());
    let context = &agent["securityContext"];
    let added = json!(["BPF", "NET_ADMIN", "NET_RAW", "PERFMON", "SYS_PTRACE"]);
    assert_eq!(context["capabilities"], json!({ "drop": ["ALL"], "add": added }));
    assert_eq!(context["seLinuxOptions"]["level"], "s0");
    let memory = |kind: &str| agent["resources"][kind]["memory"].clone();
    assert_eq!((memory("requests"), memory("limits")), (json!("64Mi"), json!("256Mi")));
}

#[test]
fn removal_mode_removes_the_configuration_and_writes_none() {
    let rendered = chart().render(&json!({ "removal": true })).unwrap();
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    let pod = &daemon["spec"]["template"]["spec"];
    let command = &pod["initContainers"][0]["command"];
    assert_eq!(*command, json!(["ferrule-ipamd", "uninstall", "--keep-programs"]));
    let all = pod["containers"].as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ipamd"], "DELs of running pods need the daemon");
}

/// EKS renders add-ons without access to a cluster and without hooks.
#[test]
fn the_form_for_addons_has_neither_hooks_nor_lookups() {
    let templates = fs::read_dir(Chart::path().join("templates")).unwrap();
    for entry in templates {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for word in
            ["lookup ", "helm.sh/hook", ".Capabilities", ".Release.Revision", "randAlpha", "genCA"]
        {
            assert!(!text.contains(word), "{word} in {}", path.display());
        }
    }
}

#[test]
fn the_notes_name_the_image_in_use() {
    let digest = format!("r.example:5000/f@sha256:{}", "0".repeat(64));
    for (image, name) in [
        (json!({ "override": "r.example/f:1" }), "r.example/f:1"),
        (json!({ "override": digest }), digest.as_str()),
        (json!({ "overrideRepository": "r.example/f", "tag": "2" }), "r.example/f:2"),
    ] {
        let notes = chart().notes(&json!({ "image": image })).unwrap();
        assert!(notes.contains(&format!("from {name}.")), "{notes}");
    }
}

/// An image of the lab would be the nodes' own loopback on EKS.
#[test]
fn an_unset_image_is_refused_in_one_sentence_and_no_file_names_that_of_the_lab() {
    let unset = json!({ "image": {} });
    let printed = format!("{:#}", chart().render(&unset).err().unwrap());
    let sentence = printed.lines().find(|line| line.contains("cannot choose an image")).unwrap();
    for words in ["image.override", "image.overrideRepository", "image.account are not set; set"] {
        assert!(sentence.contains(words), "{sentence}");
    }
    let mut folders = vec![Chart::path()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            assert!(
                !fs::read_to_string(&path).unwrap().contains("localhost/"),
                "{}",
                path.display()
            );
        }
    }
    assert!(files > 20, "{files} files");
}

/// Returns an environment variable of the daemon's container; `None` if it is not set.
fn variable(rendered: &Rendered, name: &str) -> Option<String> {
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    let all = daemon["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name)?;
    Some(one["value"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn policy_accepts_text_booleans_and_the_mode_of_amazon_vpc_cni() {
    let chart = chart();
    let mode = |values: Value| {
        let rendered = chart.render(&values).unwrap();
        (
            variable(&rendered, "FERRULE_POLICY"),
            variable(&rendered, "NETWORK_POLICY_ENFORCING_MODE"),
        )
    };
    let some = |text: &str| Some(text.to_owned());
    for on in [json!(true), json!("true")] {
        let mut values = json!({ "enableNetworkPolicy": on, "policy": { "backend": "none" } });
        assert_eq!(mode(values.clone()), (some("true"), some("standard")));
        values["env"] = json!({ "NETWORK_POLICY_ENFORCING_MODE": "strict" });
        assert_eq!(mode(values), (some("true"), some("strict")));
    }
    let strict = json!({ "NETWORK_POLICY_ENFORCING_MODE": "strict" });
    let without = json!({ "nodeAgent": { "enabled": false }, "env": strict });
    assert_eq!(mode(without), (None, None), "no agent");
    let mut other = json!({ "env": strict });
    other["env"]["FERRULE_POLICY_AGENT"] = json!("true");
    assert_eq!(mode(other.clone()), (None, some("strict")), "of aws-network-policy-agent");
    other["enableNetworkPolicy"] = json!("true");
    other["nodeAgent"] = json!({ "enabled": false });
    assert_eq!(mode(other), (None, some("strict")), "as in values of amazon-vpc-cni");
}

#[test]
fn a_port_without_address_binds_all_addresses() {
    let chart = chart();
    for (given, rendered) in [
        (json!("8162"), ":8162"),
        (json!(":8162"), ":8162"),
        (json!(9090), ":9090"),
        (json!("127.0.0.1:9090"), "127.0.0.1:9090"),
    ] {
        let mut values = whole();
        values["nodeAgent"] = json!({ "metricsBindAddr": given });
        let found = chart.render(&values).unwrap();
        assert_eq!(variable(&found, "FERRULE_AGENT_METRICS").as_deref(), Some(rendered));
        let daemon = found.of_kind("DaemonSet").next().unwrap();
        let all = daemon["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let agent = all.iter().find(|one| one["name"] == "agent").unwrap();
        let port: u64 = rendered.rsplit(':').next().unwrap().parse().unwrap();
        assert_eq!(agent["ports"][0]["containerPort"], port);
    }
}

#[test]
fn an_account_may_be_a_number_and_false_is_a_value() {
    let values = json!({
        "image": { "account": 111_122_223_333_u64, "region": "eu-west-1" },
        "env": { "ENABLE_IPv6": false }, "init": { "env": { "ENABLE_IPv6": "true" } },
    });
    let rendered = chart().render(&values).unwrap();
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    let image = daemon["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    assert!(image.starts_with("111122223333.dkr.ecr.eu-west-1.amazonaws.com/ferrule:"), "{image}");
    let ipv6 = variable(&rendered, "ENABLE_IPv6");
    assert_eq!(ipv6.as_deref(), Some("false"), "`env` has priority over `init.env`");
}

#[test]
fn the_control_plane_configmap_is_rendered_on_request() {
    let chart = chart();
    let data = |values: Value| {
        let rendered = chart.render(&values).unwrap();
        let mut maps = rendered.of_kind("ConfigMap").cloned();
        maps.find(|map| map["metadata"]["name"] == "amazon-vpc-cni").map(|map| map["data"].clone())
    };
    assert_eq!(data(json!({ "branchENICooldown": 60 })), None);
    let mut values = json!({ "branchENICooldown": 60, "controlPlaneConfig": { "create": true } });
    let all = json!({ "branch-eni-cooldown": "60", "enable-network-policy-controller": "false" });
    assert_eq!(data(values.clone()), Some(all));
    values["migration"] = json!({ "byLabel": true });
    let less = json!({ "branch-eni-cooldown": "60" });
    assert_eq!(data(values), Some(less), "nodes of amazon-vpc-cni may still use policies");
    let kept = json!({
        "env": { "FERRULE_POLICY_AGENT": "true" }, "controlPlaneConfig": { "create": true },
    });
    for by_label in [false, true] {
        let mut values = kept.clone();
        values["migration"] = json!({ "byLabel": by_label });
        let all = json!({ "enable-network-policy-controller": "true" });
        assert_eq!(data(values), Some(all), "the agent that is kept needs its controller");
    }
}

/// The EKS control plane does not read a ConfigMap of another namespace.
#[test]
fn the_control_plane_configmap_is_refused_outside_kube_system() {
    let chart = chart();
    let values = json!({ "controlPlaneConfig": { "create": true } });
    let printed = format!("{:#}", chart.render_in("network", &values).err().unwrap());
    for words in [
        "cannot use controlPlaneConfig.create=true in namespace network:",
        "install the release in kube-system",
    ] {
        assert!(printed.contains(words), "{printed}");
    }
    assert!(chart.render_in("network", &json!({})).is_ok());
}

#[test]
fn runbooks_are_links_if_the_url_of_the_pages_is_set() {
    let chart = chart();
    let annotations = |values: Value| {
        let rendered = chart.render(&values).unwrap();
        let rule = rendered.of_kind("PrometheusRule").next().unwrap();
        rule["spec"]["groups"][0]["rules"][0]["annotations"].clone()
    };
    let mut values =
        json!({ "podMonitor": { "create": true }, "prometheusRule": { "create": true } });
    let plain = annotations(values.clone());
    let text = plain["runbook"].as_str().unwrap();
    assert!(text.starts_with("The daemon does not run"), "the section of the page: {text}");
    assert!(text.contains("logs POD -c ipamd --previous") && !text.contains("]("), "{text}");
    assert_eq!(plain["runbook_url"], Value::Null, "a path is not a URL");
    values["prometheusRule"]["runbookUrl"] = json!("https://docs.example/guide/alerts.html");
    let linked = annotations(values);
    assert_eq!(linked["runbook_url"], "https://docs.example/guide/alerts.html#ferruledaemondown");
}

/// Alerts on `up` select targets by this label.
#[test]
fn targets_have_the_label_that_alerts_select() {
    let more = json!({ "targetLabel": "cluster", "replacement": "blue" });
    let mut values = whole();
    values["podMonitor"]["relabelings"] = json!([more]);
    let rendered = chart().render(&values).unwrap();
    let mut monitors = 0;
    for monitor in rendered.of_kind("PodMonitor") {
        assert_eq!(monitor["spec"]["podTargetLabels"], json!(["app.kubernetes.io/part-of"]));
        let node =
            json!({ "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node" });
        for endpoint in monitor["spec"]["podMetricsEndpoints"].as_array().unwrap() {
            assert_eq!(endpoint["relabelings"], json!([node, more]));
        }
        monitors += 1;
    }
    assert_eq!(monitors, 2);
    for (kind, component) in [("DaemonSet", "node"), ("Deployment", "controller")] {
        let object = rendered.of_kind(kind).next().unwrap();
        let part = &object["spec"]["template"]["metadata"]["labels"];
        assert_eq!(part["app.kubernetes.io/part-of"], "ferrule");
        for labels in [part, &object["metadata"]["labels"]] {
            assert_eq!(labels["app.kubernetes.io/component"], component);
        }
        let selector = &object["spec"]["selector"]["matchLabels"];
        assert_eq!(selector["app.kubernetes.io/component"], Value::Null, "selectors are immutable");
    }
}

#[test]
fn a_second_release_has_names_of_its_own_and_none_is_too_long() {
    let name = "n".repeat(63);
    let mut values = whole();
    values["fullnameOverride"] = json!("blue");
    values["nameOverride"] = json!(name);
    let rendered = chart().render(&values).unwrap();
    for kind in ["ClusterRole", "Role"] {
        let names: Vec<&str> =
            rendered.of_kind(kind).map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"blue-viewer"), "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("blue")), "{names:?}");
    }
    let deployment = rendered.of_kind("Deployment").next().unwrap();
    let label = &deployment["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"];
    assert!(label.as_str().unwrap().len() <= 63, "{label}");
}

/// The API server's certificates are in kube-system in every installation.
#[test]
fn the_controller_may_read_the_aggregation_client_ca() {
    let mut values = whole();
    assert_eq!(chart().render(&values).unwrap().of_kind("APIService").count(), 0, "off by default");
    values["controller"] = json!({ "view": true });
    let rendered = chart().render(&values).unwrap();
    let mut bindings = rendered.of_kind("RoleBinding");
    let reader = "extension-apiserver-authentication-reader";
    let binding = bindings.find(|binding| binding["roleRef"]["name"] == reader).unwrap();
    assert_eq!(binding["metadata"]["namespace"], "kube-system");
    assert_eq!(binding["subjects"][0]["name"], "ferrule-controller");
}

/// The pods of `kubectl debug` have the account `default`.
#[test]
fn a_takeover_may_get_the_compared_objects_only() {
    let chart = chart();
    let of_migration = |values: Value, kind: &str| {
        let rendered = chart.render(&values).unwrap();
        let mut all = rendered.of_kind(kind).cloned();
        all.find(|object| object["metadata"]["name"] == "ferrule-migration")
    };
    assert_eq!(of_migration(json!({}), "Role"), None);
    let values = json!({ "migration": { "byLabel": true } });
    let role = of_migration(values.clone(), "Role").unwrap();
    let rule = |group: &str, resource: &str| {
        json!({
            "apiGroups": [group], "resources": [resource], "verbs": ["get"],
            "resourceNames": ["aws-node", "ferrule"],
        })
    };
    assert_eq!(role["rules"], json!([rule("apps", "daemonsets"), rule("", "serviceaccounts")]));
    let binding = of_migration(values, "RoleBinding").unwrap();
    let account =
        json!([{ "kind": "ServiceAccount", "name": "default", "namespace": "kube-system" }]);
    assert_eq!(binding["subjects"], account);
}

#[test]
fn a_node_may_remove_the_taint_of_the_setting_only() {
    let chart = chart();
    let mut settings = config_settings::table();
    let default = settings.find(|one| one.name == "FERRULE_STARTUP_TAINT").unwrap().default;
    let given = json!({ "env": { "FERRULE_STARTUP_TAINT": "example.com/starting" } });
    for (values, taint) in [(json!({}), default), (given, "example.com/starting")] {
        let rendered = chart.render(&values).unwrap();
        let policy = rendered.of_kind("ValidatingAdmissionPolicy").next().unwrap().to_string();
        assert!(policy.contains(&format!("taint.key == '{taint}'")), "{policy}");
    }
}
