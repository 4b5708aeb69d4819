//! Pods with security groups of their own. The lab simulates the VPC resource controller in the cluster.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use config_crds::CniNode;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use tests_lab::{Lab, programs, wait_for};

const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";

impl World {
    /// Creates a pod with the limit that the controller's webhook adds.
    fn make_branch_pod(&self, node: &str, name: &str) -> Result<()> {
        let resources = json!({"requests": {POD_ENI: "1"}, "limits": {POD_ENI: "1"}});
        self.make_pod_with(node, name, &resources)
    }

    fn delete_pod(&self, name: &str) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        // No kubelet runs to stop the pod first.
        let at_once = DeleteParams::default().grace_period(0);
        self.runtime.block_on(api.delete(name, &at_once))?;
        Ok(())
    }

    fn features(&self, node: &str) -> Result<Vec<String>> {
        let api: Api<CniNode> = Api::all(self.client.clone());
        let features = self.runtime.block_on(api.get(node))?.spec.features.unwrap_or_default();
        Ok(features.into_iter().filter_map(|feature| feature.name).collect())
    }

    /// Returns true if the node has the label of a trunk, and the extended resource for the scheduler.
    fn trunk(&self, node: &str) -> Result<(bool, Option<String>)> {
        let node = self.node(node)?;
        let labels = node.metadata.labels.unwrap_or_default();
        let labeled = labels.contains_key("vpc.amazonaws.com/has-trunk-attached");
        let allocatable = node.status.and_then(|status| status.allocatable).unwrap_or_default();
        Ok((labeled, allocatable.get(POD_ENI).map(|quantity| quantity.0.clone())))
    }
}

/// Calls the plugin directly: the lab's runtime sends a DEL after a failed ADD.
fn plugin(lab: &Lab, verb: &str, pod: &str) -> Result<Value> {
    let list = lab.on_node("node1", &["cat", "/etc/cni/net.d/05-ferrule.conflist"])?;
    let list: Value = serde_json::from_str(&list)?;
    let mut conf = list["plugins"][0].clone();
    let object = conf.as_object_mut().context("no plugin in the conflist")?;
    object.remove("capabilities");
    object.insert("name".into(), list["name"].clone());
    object.insert("cniVersion".into(), list["cniVersion"].clone());
    let script = format!(
        "exec 9< <(exec unshare --net sh -c 'echo made; exec sleep 60'); sandbox=$!; read -r _ <&9; \
         CNI_COMMAND={verb} CNI_CONTAINERID=by-hand-{pod} CNI_NETNS=/proc/$sandbox/ns/net \
         CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
         CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}' \
         /opt/cni/bin/ferrule-cni <<'END'\n{conf}\nEND\nkill $sandbox"
    );
    let printed = lab.on_node("node1", &["bash", "-c", &script])?;
    Ok(if printed.trim().is_empty() { Value::Null } else { serde_json::from_str(&printed)? })
}

/// Returns the daemon's document of the pod; `None` if it has no reservation.
fn held(lab: &Lab, pod: &str) -> Result<Option<Value>> {
    let pods: Value = serde_json::from_str(&lab.get("node1", 61679, "/v1/ferrule/pods")?)?;
    let pods = pods.as_array().context("no list of pods")?;
    Ok(pods.iter().find(|held| held["name"] == pod).cloned())
}

/// Returns the IDs of all ENIs of this kind.
fn enis(lab: &Lab, kind: &str) -> Result<Vec<String>> {
    let enis = lab.json(&["eni", "list"])?;
    let enis = enis.as_array().context("no list of ENIs")?.iter();
    let ids = enis.filter(|eni| eni["kind"] == kind).filter_map(|eni| eni["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

fn a_killed_daemon_restores_the_branch_reservation(
    lab: &Lab,
    eni: &str,
    annotation: &Value,
) -> Result<()> {
    let shown = held(lab, "secure")?.context("no reservation")?;
    ensure!(shown["eni"] == eni && shown["confirmed"] == true, "{shown}");
    let of_branch = &shown["branch"];
    ensure!(of_branch["vlan"] == annotation["vlanId"], "{shown}");
    ensure!(of_branch["mac"] == annotation["ifAddress"], "{shown}");
    ensure!(of_branch["ipv4"] == annotation["privateIp"], "{shown}");
    lab.run(&["daemon", "kill", "node1"])?;
    wait_for("the restarted daemon to have the reservation", PATIENCE, || {
        Ok(held(lab, "secure")?.is_some_and(|shown| shown["eni"] == eni))
    })
}

fn a_branch_pod_lives(name: &str, mode: &str, lab_name: &str) -> Result<()> {
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    world.make_node("node1", &json!({}))?;
    let setting = format!("POD_SECURITY_GROUP_ENFORCING_MODE={mode}");
    let controller = world.cluster.kubeconfig().display().to_string();
    let up: Vec<&str> = ["--nodes", "1", "--type", "c5.large", "--env", "ENABLE_POD_ENI=true"]
        .into_iter()
        .chain(["--env", &setting, "--env", "FERRULE_ADD_WAIT=8", "--env", "WARM_IP_TARGET=2"])
        .chain(["--controller-kubeconfig", &controller])
        .collect();
    let lab = world.lab(&bin, lab_name, &up)?;

    wait_for("the daemon to request a trunk", PATIENCE, || {
        Ok(world.features("node1")?.contains(&"SecurityGroupsForPods".to_owned()))
    })?;
    wait_for("the node's trunk label and extended resource", PATIENCE, || {
        Ok(world.trunk("node1")? == (true, Some("9".to_owned())))
    })?;
    let trunks = enis(&lab, "trunk")?;
    ensure!(trunks.len() == 1, "{trunks:?}");
    wait_for("the daemon to list the trunk", PATIENCE, || {
        let explained: Value =
            serde_json::from_str(&lab.get("node1", 61679, "/v1/ferrule/explain")?)?;
        let shown = explained["enis"].as_array().context("no ENIs")?;
        Ok(shown.iter().any(|eni| eni["eni"] == trunks[0].as_str() && eni["kind"] == "trunk"))
    })?;
    world.make_pod("node1", "plain")?;
    lab.run(&["pod", "add", "node1", "--pod", "plain"])?;

    // The controller cannot create a branch. The ADD's refusal names the missing annotation.
    let action = ["--action", "AssociateTrunkInterface"];
    lab.run(&[&["fault", "set", "error", "InternalError"], &action[..]].concat())?;
    world.make_branch_pod("node1", "secure")?;
    let refusal = plugin(&lab, "ADD", "secure")?;
    let printed = refusal["msg"].as_str().unwrap_or_default();
    ensure!(refusal["code"] == 11, "{refusal}");
    ensure!(printed.contains("default/secure") && printed.contains(POD_ENI), "{refusal}");
    let next = refusal["details"].as_str().unwrap_or_default();
    ensure!(next.contains("VPC resource controller"), "{refusal}");
    ensure!(plugin(&lab, "DEL", "secure")?.is_null(), "DEL printed something");
    lab.run(&["fault", "clear"])?;

    let mut annotation = Value::Null;
    wait_for("the pod's annotation", PATIENCE, || {
        let Some(text) = world.annotation("secure", POD_ENI)? else { return Ok(false) };
        annotation = serde_json::from_str(&text)?;
        Ok(true)
    })?;
    // In strict mode the rules of pods are before table local.
    let local = if mode == "strict" { "20:" } else { "0:" };
    wait_for("the priority of table local", PATIENCE, || {
        let rules = lab.on_node("node1", &["ip", "rule"])?;
        let places = rules.lines().filter(|rule| rule.contains(" lookup local"));
        Ok(places.filter_map(|rule| rule.split_whitespace().next()).eq([local]))
    })?;
    let links = lab.on_node("node1", &["ls", "/sys/class/net"])?;
    let mut answer = Value::Null;
    wait_for("the ADD to get the branch", PATIENCE, || {
        answer = plugin(&lab, "ADD", "secure")?;
        Ok(answer["code"] != 11)
    })?;
    let eni = annotation[0]["eniId"].as_str().context("no eniId")?.to_owned();
    if answer["code"].is_null() {
        let prefix = if mode == "strict" { "vlan" } else { "eni" };
        let veth = answer["interfaces"][0]["name"].as_str().unwrap_or_default();
        ensure!(veth.starts_with(prefix), "{answer}");
        a_killed_daemon_restores_the_branch_reservation(&lab, &eni, &annotation[0])?;
    } else {
        // This kernel has no VLANs. The lane `vm` tests a kernel with VLANs.
        let printed = answer["msg"].as_str().unwrap_or_default();
        let vlan = format!("VLAN {} of", annotation[0]["vlanId"]);
        let mac = annotation[0]["ifAddress"].as_str().context("no ifAddress")?;
        ensure!(answer["code"] == 102, "{answer}");
        for part in ["the kernel has no VLANs", &vlan, mac] {
            ensure!(printed.contains(part), "{part} is not in {answer}");
        }
        ensure!(lab.on_node("node1", &["ls", "/sys/class/net"])? == links, "a link is left");
        ensure!(held(&lab, "secure")?.is_none(), "the reservation is left");
    }
    ensure!(enis(&lab, "branch")? == std::slice::from_ref(&eni), "{:?}", enis(&lab, "branch")?);
    plugin(&lab, "DEL", "secure")?;
    wait_for("the reservation to be gone", PATIENCE, || Ok(held(&lab, "secure")?.is_none()))?;

    world.delete_pod("secure")?;
    // The branch cools for a minute.
    wait_for("the branch to be gone", 2 * PATIENCE, || Ok(enis(&lab, "branch")?.is_empty()))?;
    let branches = lab.json(&["branch", "list"])?;
    ensure!(branches.as_array().is_some_and(Vec::is_empty), "{branches}");
    ensure!(enis(&lab, "trunk")? == trunks, "the trunk has changed");
    lab.run(&["pod", "delete", "plain"])?;
    lab.run(&["node", "remove", "node1"])?;
    wait_for("the removal of all ENIs", PATIENCE, || {
        Ok(lab.json(&["eni", "list"])?.as_array().is_some_and(Vec::is_empty))
    })?;
    lab.down()
}

#[test]
fn a_strict_branch_pod_is_built_or_refused_with_the_reason_and_leaves_nothing() -> Result<()> {
    let name = "a_strict_branch_pod_is_built_or_refused_with_the_reason_and_leaves_nothing";
    a_branch_pod_lives(name, "strict", "t-strict")
}

#[test]
fn a_standard_branch_pod_is_built_or_refused_with_the_reason_and_leaves_nothing() -> Result<()> {
    let name = "a_standard_branch_pod_is_built_or_refused_with_the_reason_and_leaves_nothing";
    a_branch_pod_lives(name, "standard", "t-standard")
}
