//! amazon-vpc-cni's own values file, with all its keys, as the values of this chart.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use serde_json::{Value, json};
use tests_chart::{Chart, IMAGE, amazon_values};

fn chart() -> Chart {
    Chart::of_this_clone().unwrap()
}

/// Returns the file's values with one more of `image`.
fn with_image(key: &str, value: &str) -> Value {
    let mut values = amazon_values().unwrap();
    values["image"][key] = json!(value);
    values
}

fn refusal(values: &Value) -> String {
    format!("{:#}", chart().render(values).err().unwrap())
}

#[test]
fn the_images_of_amazon_vpc_cni_are_refused_with_the_next_step() {
    let printed = refusal(&amazon_values().unwrap());
    for words in ["image.account=602401143452", "set image.override to your image of Ferrule"] {
        assert!(printed.contains(words), "{printed}");
    }
    let printed = refusal(&with_image("overrideRepository", "registry.example/ferrule"));
    assert!(printed.contains("image.tag=v1.23.1"), "{printed}");
    assert!(printed.contains("set image.tag to the tag of your image"), "{printed}");
}

#[test]
fn the_whole_file_installs_with_an_image_of_ferrule() {
    let rendered = chart().render(&with_image("override", IMAGE)).unwrap();
    let daemon = rendered.of_kind("DaemonSet").next().unwrap();
    assert_eq!(daemon["metadata"]["name"], "ferrule", "`aws-node` is amazon-vpc-cni's");
    let pod = &daemon["spec"]["template"]["spec"];
    let lists = ["initContainers", "containers"];
    let containers: Vec<&Value> =
        lists.iter().flat_map(|list| pod[list].as_array().unwrap()).collect();
    for container in &containers {
        assert_eq!(container["image"], IMAGE);
        assert_ne!(container["securityContext"]["privileged"], true, "{container}");
    }
    let ipamd = containers.iter().find(|one| one["name"] == "ipamd").unwrap();
    for (probe, check) in [("livenessProbe", "live"), ("readinessProbe", "ready")] {
        assert_eq!(ipamd[probe]["exec"]["command"], json!(["ferrule-ipamd", "health", check]));
    }
    let maps: Vec<&Value> = rendered.of_kind("ConfigMap").collect();
    assert!(maps.is_empty(), "amazon-vpc-cni's chart may own this ConfigMap: {maps:?}");
    assert_eq!(rendered.of_kind("Deployment").count(), 0, "\"false\" disables policy");
}

#[test]
fn the_agents_container_is_not_privileged_either() {
    for backend in ["none", "ebpf"] {
        let mut values = with_image("override", IMAGE);
        values["enableNetworkPolicy"] = json!("true");
        values["policy"] = json!({ "backend": backend });
        let rendered = chart().render(&values).unwrap();
        let pod = &rendered.of_kind("DaemonSet").next().unwrap()["spec"]["template"]["spec"];
        let all = pod["containers"].as_array().unwrap();
        let agent = all.iter().find(|one| one["name"] == "agent").unwrap();
        assert_eq!(agent["securityContext"]["privileged"], false, "{backend}");
    }
}

/// Returns the notes about values without effect, by the value's name.
fn without_effect(values: &Value) -> Vec<String> {
    let notes = chart().notes(values).unwrap();
    let lines = notes.lines().filter_map(|line| line.split_once(" has no effect"));
    lines.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn notes_are_only_about_values_with_another_behavior() {
    let differs = [
        "nameOverride",
        "fullnameOverride",
        "init.securityContext.privileged",
        "nodeAgent.securityContext.privileged",
    ];
    assert_eq!(without_effect(&with_image("override", IMAGE)), differs);
    let values = json!({ "image": { "override": IMAGE } });
    assert_eq!(without_effect(&values), Vec::<String>::new());
}

#[test]
fn each_changed_value_without_effect_has_a_note() {
    let values = json!({
        "init": { "image": { "override": "mirror.example/init:1" } },
        "livenessProbe": { "exec": { "command": ["/bin/true"] } },
        "readinessProbe": { "exec": { "command": ["/bin/true"] } },
        "nodeAgent": {
            "image": { "account": "111122223333" }, "healthProbeBindAddr": ":1", "enableIpv6": "true",
        },
        "eniConfig": { "create": true, "region": "eu-west-1" },
        "cniConfig": { "fileContents": "{}" },
        "branchENICooldown": 30, "enableWindowsIpam": "true",
        "env": { "VPC_CNI_VERSION": "mine", "ENABLE_NFTABLES": "true" },
    });
    let expected = [
        "init.image",
        "livenessProbe.exec",
        "readinessProbe.exec",
        "nodeAgent.image",
        "nodeAgent.healthProbeBindAddr",
        "nodeAgent.enableIpv6",
        "eniConfig.region",
        "cniConfig.fileContents",
        "enableWindowsIpam",
        "branchENICooldown",
        "env.VPC_CNI_VERSION",
        "env.ENABLE_NFTABLES",
    ];
    assert_eq!(without_effect(&values), expected);
}
