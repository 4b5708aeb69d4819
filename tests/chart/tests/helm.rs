//! What Helm says of the chart without a cluster.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use serde_json::{Value, json};
use std::fs;
use tests_chart::Chart;

fn chart() -> Chart {
    Chart::of_this_clone().unwrap()
}

/// Values with all of it: policy, monitoring, definitions.
fn whole() -> Value {
    json!({
        "enableNetworkPolicy": true, "policy": { "backend": "none" },
        "podMonitor": { "create": true }, "prometheusRule": { "create": true },
        "dashboards": { "create": true },
        "env": { "ENABLE_POD_ENI": "true", "ANNOTATE_POD_IP": true, "WARM_IP_TARGET": 5 },
    })
}

#[test]
fn the_linter_is_content_in_its_strictest_form() {
    for values in [json!({}), whole()] {
        let said = chart().lint(&values).unwrap();
        assert!(said.contains("0 chart(s) failed"), "{said}");
    }
}

/// Who errs is told which value it is, and why it cannot be where there is a reason.
#[test]
fn what_is_misspelt_or_does_not_fit_is_refused_by_its_name() {
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
        (json!({ "init": { "env": { "ENABLE_IPV6": "true" } } }), &["/init/env", "ENABLE_IPV6"]),
        (json!({ "image": { "pullPolicy": "Sometimes" } }), &["/image/pullPolicy"]),
        (json!({ "controller": { "replicas": 0 } }), &["/controller/replicas"]),
        (json!({ "resources": { "limit": {} } }), &["/resources", "limit"]),
        (json!({ "init": { "securityContext": { "privileged": true } } }), &["privileged"]),
        (json!({ "securityContext": { "allowPrivilegeEscalation": true } }), &["allowPrivilege"]),
        (json!({ "cniConfig": { "enabled": true } }), &["/cniConfig/enabled", "CHAINED_PLUGINS"]),
        (json!({ "originalMatchLabels": true }), &["/originalMatchLabels", "ferrule migrate"]),
        (
            json!({ "nodeAgent": { "enablePolicyEventLogs": "true" } }),
            &["/nodeAgent/enablePolicyEventLogs", "because"],
        ),
        (json!({ "livenessProbe": { "exec": {} } }), &["/livenessProbe", "exec"]),
        (json!({ "enableNetworkPolicy": true }), &["/policy/backend", "none"]),
        (
            json!({ "eniConfig": { "create": true, "region": "x", "subnets": { "a": "subnet-1" } } }),
            &["/eniConfig/subnets/a"],
        ),
    ];
    for (values, words) in rows {
        let said = match chart.render(&values) {
            Ok(_) => panic!("{values} is taken"),
            Err(error) => format!("{error:#}"),
        };
        for word in words {
            assert!(said.contains(word), "{values}: {word:?} is not in\n{said}");
        }
    }
}

/// What the templates themselves refuse, since it takes two values to see it.
#[test]
fn what_does_not_fit_together_is_refused_by_both_names() {
    let chart = chart();
    let rows = [
        (json!({ "serviceAccount": { "create": false } }), "serviceAccount.name"),
        (json!({ "image": { "account": "111122223333" } }), "image.region"),
        (json!({ "image": { "account": "602401143452", "region": "us-west-2" } }), "image.account"),
        (json!({ "image": { "override": "r.example/amazon-k8s-cni:v1.23.1" } }), "image.override"),
        (json!({ "eniConfig": { "create": true } }), "eniConfig.region"),
        (
            json!({ "env": { "DISABLE_POD_V6": "true", "FERRULE_CHAINED_PLUGINS": "[{}]" } }),
            "FERRULE_CHAINED_PLUGINS",
        ),
    ];
    for (values, word) in rows {
        let said = format!("{:#}", chart.render(&values).err().unwrap());
        assert!(said.contains(word), "{values}: {said}");
    }
}

/// What the release's own values file of amazon-vpc-cni has, as far as it is of any use here.
#[test]
fn values_of_amazon_vpc_cni_mean_what_they_meant() {
    let values = json!({
        "nameOverride": "aws-node",
        "init": {
            "image": { "tag": "v1.23.1", "region": "us-west-2", "account": "602401143452" },
            "env": { "DISABLE_TCP_EARLY_DEMUX": "true", "ENABLE_IPv6": "false" },
            "resources": { "requests": { "cpu": "10m" } },
        },
        "nodeAgent": {
            "enabled": true, "enableCloudWatchLogs": "false", "enablePolicyEventLogs": "false",
            "enableIpv6": "false", "metricsBindAddr": ":8162", "healthProbeBindAddr": ":8163",
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
            "subnets": { "a": { "id": "subnet-1", "securityGroups": ["sg-1"] } },
        },
        "branchENICooldown": "60", "enableWindowsIpam": "false",
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
    assert_eq!(env("DISABLE_TCP_EARLY_DEMUX"), text("true"), "it stood at the init container");
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
    let rendered = chart().render(&whole()).unwrap();
    let lines: Vec<&str> = rendered.text.lines().collect();
    let (mut capabilities, mut folders) = (0, 0);
    for (at, line) in lines.iter().enumerate() {
        if let Some(rest) = line.trim().strip_prefix("- NET_") {
            assert!(rest.contains(" # "), "no reason beside {line:?}");
            capabilities += 1;
        }
        if line.contains("hostPath:") {
            let name = lines.get(at - 1).unwrap();
            let before = lines.get(at - 2).unwrap().trim();
            assert!(before.starts_with('#'), "no reason above {name:?}");
            folders += 1;
        }
    }
    assert_eq!((capabilities, folders), (2, 9));
}

#[test]
fn on_its_way_out_it_takes_the_configuration_away_and_writes_none() {
    let rendered = chart().render(&json!({ "removal": true })).unwrap();
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    let pod = &daemon["spec"]["template"]["spec"];
    let command = &pod["initContainers"][0]["command"];
    assert_eq!(*command, json!(["ferrule-ipamd", "uninstall", "--keep-programs"]));
    let all = pod["containers"].as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ipamd"], "pods that are still to be deleted need the daemon");
}

/// Add-ons of EKS are rendered without a cluster to look at and without hooks.
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
