//! Custom networking: the choice of a node's ENIConfig, and ENIs created from it.

use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests_lab::{Lab, programs, spoof::Spoof};

/// Adds a node with this metadata, and 16 pods: more than the addresses of one ENI.
fn add_node(world: &World, lab: &Lab, node: &str, subnet: &str, metadata: &Value) -> Result<()> {
    world.make_node(node, &json!({"metadata": metadata}))?;
    let label = "ENI_CONFIG_LABEL_DEF=topology.kubernetes.io/zone";
    let settings = ["--env", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true", "--env", label];
    lab.run(&[&["node", "add", node, "--subnet", subnet], &settings[..]].concat())?;
    lab.run(&["pod", "add", node, "--count", "16"]).map(drop)
}

#[test]
fn an_eniconfig_is_found_by_zone_or_annotation_and_sets_subnet_and_groups() -> Result<()> {
    let name = "an_eniconfig_is_found_by_zone_or_annotation_and_sets_subnet_and_groups";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let nodes = ["--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"];
    let pods = ["--subnet", "10.0.64.0/24,zone=a", "--subnet", "10.0.65.0/24,zone=b"];
    let special = ["--subnet", "10.0.66.0/24,zone=a"];
    let lab = world.lab(&bin, "t-eniconfig", &[&nodes[..], &pods, &special].concat())?;
    let group = lab.json(&["group", "add", "pods"])?["id"].clone();
    for (config, subnet, groups) in [
        ("eu-west-1a", "c", json!([])),
        ("eu-west-1b", "d", json!([])),
        ("special", "e", json!([group])),
    ] {
        let spec = json!({"subnet": lab.subnet(subnet)?, "securityGroups": groups});
        world.apply(&World::eni_config(config, &spec))?;
    }
    let zone = |zone: &str| json!({"labels": {"topology.kubernetes.io/zone": zone}});
    let mut annotated = zone("eu-west-1a");
    annotated["annotations"] = json!({"k8s.amazonaws.com/eniConfig": "special"});
    add_node(&world, &lab, "in-a", "0", &zone("eu-west-1a"))?;
    add_node(&world, &lab, "in-b", "1", &zone("eu-west-1b"))?;
    add_node(&world, &lab, "annotated", "0", &annotated)?;

    let enis = lab.json(&["eni", "list"])?;
    let enis = enis.as_array().context("no list of ENIs")?;
    for (node, subnet, group) in [
        ("in-a", "10.0.64.", "default"),
        ("in-b", "10.0.65.", "default"),
        ("annotated", "10.0.66.", "pods"),
    ] {
        for pod in lab.pods(node)? {
            let address = pod["address"].as_str().context("a pod without an address")?;
            ensure!(address.starts_with(subnet), "{node}: {address} is not of {subnet}");
        }
        let made = |eni: &&Value| eni["node"] == node && eni["device"].as_u64() > Some(0);
        let groups: Vec<&Value> = enis.iter().filter(made).map(|eni| &eni["groups"]).collect();
        ensure!(groups.len() >= 2, "{node}: {} ENIs beside the primary one", groups.len());
        ensure!(groups.iter().all(|groups| **groups == json!([group])), "{node}: {groups:?}");
    }
    // The default group admits its own members only, so this node's pods would not be reachable.
    lab.run(&["pod", "delete", "--node", "annotated"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn a_pod_of_custom_networking_with_prefixes_cannot_send_with_the_address_of_another() -> Result<()>
{
    let name = "a_pod_of_custom_networking_with_prefixes_cannot_send_with_the_address_of_another";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let subnets = ["--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"];
    let pods = ["--subnet", "10.0.64.0/24,zone=a"];
    let lab = world.lab(&bin, "t-src-custom", &[&subnets[..], &pods].concat())?;
    let spec = json!({"subnet": lab.subnet("c")?, "securityGroups": []});
    world.apply(&World::eni_config("default", &spec))?;
    world.make_node("node1", &json!({}))?;
    let env = [
        "--env",
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true",
        "--env",
        "ENABLE_PREFIX_DELEGATION=true",
    ];
    lab.run(&[&["node", "add", "node1", "--subnet", "0"], &env[..]].concat())?;
    let spoof = Spoof::v4(&lab, "node1", &env);
    spoof.add_pods()?;
    for pod in lab.pods("node1")? {
        let address = pod["address"].as_str().context("a pod without an address")?;
        ensure!(address.starts_with("10.0.64."), "{address} is not of the ENIConfig's subnet");
    }
    let prefixes =
        lab.enis("node1")?.into_iter().filter_map(|eni| eni["prefixes"].as_array().cloned());
    ensure!(prefixes.flatten().count() > 0, "no ENI has a prefix");
    spoof.check_pods()?;
    spoof.test()?;
    lab.down()
}
