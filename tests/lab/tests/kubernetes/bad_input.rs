//! Errors of operators in Kubernetes objects and in IAM. Log, event and condition report each with the next step, and
//! other work continues.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::json;
use tests_lab::{Lab, programs, wait_for};

/// Returns the CRD of amazon-vpc-cni, which accepts any ENIConfig.
fn amazons_crd() -> serde_json::Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "eniconfigs.crd.k8s.amazonaws.com"},
        "spec": {
            "scope": "Cluster", "group": "crd.k8s.amazonaws.com", "preserveUnknownFields": false,
            "names": {"plural": "eniconfigs", "singular": "eniconfig", "kind": "ENIConfig"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Adds a node whose label names this ENIConfig; without a label if `config` is `None`.
fn add_custom_node(world: &World, lab: &Lab, node: &str, config: Option<&str>) -> Result<()> {
    let labels = config.map(|name| json!({"labels": {"k8s.amazonaws.com/eniConfig": name}}));
    world.make_node(node, &json!({"metadata": labels.unwrap_or_else(|| json!({}))}))?;
    let settings = ["AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true", "FERRULE_ADD_WAIT=3"];
    let words = ["node", "add", node, "--subnet", "0"].into_iter();
    let words = words.chain(settings.into_iter().flat_map(|of| ["--env", of]));
    lab.run(&words.collect::<Vec<_>>()).map(drop)
}

/// Waits until the condition contains all of these words, and log and event contain the next step too.
fn wait_for_reports(
    world: &World,
    lab: &Lab,
    (node, pod): (&str, &str),
    words: &[&str],
    next: &str,
) -> Result<()> {
    let with_next = [words, &[next]].concat();
    lab.wait_for_line(node, &[&with_next[..], &["eni_config_invalid"]].concat())?;
    world.wait_for_event(pod, "FailedAddressAssignment", &with_next)?;
    world.wait_for_condition(node, "False", words)?;
    ensure!(lab.is(node, "live")?, "{node}: the daemon is not live");
    ensure!(!lab.is(node, "ready")?, "{node} is ready without addresses");
    Ok(())
}

fn pod_of(node: &str) -> String {
    format!("pod-of-{node}")
}

#[test]
fn invalid_eniconfigs_are_reported_and_other_nodes_serve() -> Result<()> {
    let name = "invalid_eniconfigs_are_reported_and_other_nodes_serve";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let subnets = ["--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"];
    let pods = ["--subnet", "10.0.64.0/24,zone=a"];
    let lab = world.lab(&bin, "t-enicfg", &[&subnets[..], &pods].concat())?;

    let nothing = World::eni_config("nothing", &json!({"securityGroups": []}));
    let refused =
        world.try_apply(&nothing).err().context("an ENIConfig without a subnet was accepted")?;
    ensure!(format!("{refused:#}").contains("spec.subnet"), "{refused:#}");
    world.apply(&World::eni_config("empty", &json!({"subnet": ""})))?;
    world.apply(&amazons_crd())?;
    world.apply(&nothing)?;
    world.apply(&World::eni_config("unknown", &json!({"subnet": "subnet-00000000000000bad"})))?;
    world.apply(&World::eni_config("right", &json!({"subnet": lab.subnet("c")?})))?;

    let nodes = [
        ("node-nothing", Some("nothing"), ["nothing", "spec.subnet"], "create ENIConfig nothing"),
        ("node-empty", Some("empty"), ["empty", "spec.subnet"], "create ENIConfig empty"),
        ("node-none", None, ["default", "does not exist"], "create ENIConfig default"),
        (
            "node-unknown",
            Some("unknown"),
            ["unknown", "subnet-00000000000000bad"],
            "put an existing subnet and groups into ENIConfig unknown",
        ),
    ];
    add_custom_node(&world, &lab, "node-right", Some("right"))?;
    for (node, config, _, _) in nodes {
        add_custom_node(&world, &lab, node, config)?;
    }
    for (node, ..) in nodes {
        world.make_pod(node, &pod_of(node))?;
    }
    let refused: Vec<_> = std::thread::scope(|scope| {
        // An ADD that ends before the ENI's link appears reports that link, and so does its pod's event for some
        // minutes. The next ADD is for another pod.
        let (world, lab) = (&world, &lab);
        let add = |node, words: [&str; 2]| {
            let (mut pod, mut printed) = (pod_of(node), String::new());
            wait_for("an ADD to report the ENIConfig", PATIENCE, || {
                printed = lab.refused(&["pod", "add", node, "--pod", &pod])?;
                if words.iter().all(|word| printed.contains(word)) {
                    return Ok(true);
                }
                pod.push_str("-again");
                world.make_pod(node, &pod)?;
                anyhow::bail!("the plugin printed: {printed}")
            })?;
            anyhow::Ok((pod, printed))
        };
        let adds = nodes.map(|(node, _, words, _)| scope.spawn(move || add(node, words)));
        adds.into_iter().map(|add| add.join()).collect()
    });
    for ((node, _, words, next), refused) in nodes.into_iter().zip(refused) {
        let (pod, printed) = refused.map_err(|_| anyhow!("the thread of {node} panicked"))??;
        ensure!(printed.contains("code 11"), "{node}: the plugin printed: {printed}");
        wait_for_reports(&world, &lab, (node, &pod), &words, next)?;
    }
    // A node with a valid ENIConfig serves.
    lab.run(&["pod", "add", "node-right", "--count", "3"])?;
    world.wait_for_condition("node-right", "True", &[])?;
    // Each node recovers by itself once its ENIConfig is valid.
    for config in ["nothing", "empty", "default", "unknown"] {
        world.apply(&World::eni_config(config, &json!({"subnet": lab.subnet("c")?})))?;
    }
    for (node, ..) in nodes {
        wait_for("a pod to be served", PATIENCE, || {
            lab.run(&["pod", "add", node, "--pod", &pod_of(node)]).map(|_| true)
        })?;
        world.wait_for_condition(node, "True", &[])?;
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn missing_permissions_are_reported_and_other_work_continues() -> Result<()> {
    let name = "missing_permissions_are_reported_and_other_work_continues";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    world.make_node("node1", &json!({}))?;
    let settings = ["WARM_IP_TARGET=2", "FERRULE_ADD_WAIT=5"];
    let settings = settings.into_iter().flat_map(|of| ["--env", of]);
    let up: Vec<&str> = ["--nodes", "1"].into_iter().chain(settings).collect();
    let lab = world.lab(&bin, "t-iam", &up)?;
    lab.run(&["pod", "add", "node1", "--pod", "before"])?;
    wait_for("two free addresses", PATIENCE, || {
        Ok(lab.metric("node1", "awscni_total_ip_addresses", &[])? >= Some(3.0))
    })?;

    let denied = ["AssignPrivateIpAddresses", "CreateNetworkInterface"];
    lab.run(&[&["iam", "deny"], &denied[..]].concat())?;
    // Free addresses are served. The next pod's refusal names the missing permission.
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    world.make_pod("node1", "late")?;
    let printed = lab.refused(&["pod", "add", "node1", "--pod", "late"])?;
    ensure!(
        printed.contains("lacks ec2:AssignPrivateIpAddresses"),
        "the plugin printed: {printed}"
    );
    let action = "ec2:AssignPrivateIpAddresses";
    lab.wait_for_line("node1", &["call_failed", action, &format!("allow {action}")])?;
    world.wait_for_event("node1", "MissingIAMPermissions", &[action])?;
    world.wait_for_event("late", "FailedAddressAssignment", &[action])?;
    world.wait_for_condition("node1", "False", &[action])?;
    ensure!(lab.is("node1", "live")?, "the daemon is not live without a permission");
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;

    // A restarted daemon restores its pods although EC2 denies every call, and serves DELs.
    lab.run(&["iam", "deny", "*"])?;
    lab.run(&["daemon", "kill", "node1"])?;
    world.wait_for_event("node1", "MissingIAMPermissions", &["ec2:DescribeInstanceTypes"])?;
    lab.run(&["pod", "check"])?;
    lab.run(&["pod", "delete", "before"])?;

    lab.run(&["iam", "allow"])?;
    wait_for("the pod to be served", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "late"]).map(|_| true)
    })?;
    world.wait_for_condition("node1", "True", &[])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
