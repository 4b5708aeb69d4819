//! Late and repeated DELs without namespace and prevResult, as a kubelet causes them.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tests_lab::{Lab, programs};

/// A sandbox for which the test calls the plugin, as a runtime would.
struct Sandbox<'a> {
    lab: &'a Lab,
    pod: &'a str,
    id: String,
    netns: String,
}

impl<'a> Sandbox<'a> {
    fn new(lab: &'a Lab, pod: &'a str, number: u8) -> Result<Self> {
        let netns = format!("late-{number}");
        lab.on_node("node1", &["ip", "netns", "add", &netns])?;
        let netns = format!("/run/netns/{netns}");
        Ok(Self { lab, pod, id: format!("{number:064x}"), netns })
    }

    /// Calls the plugin and returns its standard output.
    fn call(&self, verb: &str, netns: &str, prev_result: &Value) -> Result<String> {
        let netconf = json!({
            "cniVersion": "1.0.0", "name": "aws-cni", "type": "ferrule-cni", "mtu": "9001",
            "vethPrefix": "eni", "addWait": "20", "prevResult": prev_result,
            "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"note": "canary-4711"}},
        });
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={};EXTRA=canary-4711",
            self.pod
        );
        let vars = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &self.id),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        let ended = self.lab.plugin("node1", &vars, &netconf)?;
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
        ensure!(ended.status.success(), "{verb}: {printed}");
        Ok(printed)
    }

    /// Returns the address, and the result that the runtime keeps for the DEL.
    fn add(&self) -> Result<(String, Value)> {
        let result: Value = serde_json::from_str(&self.call("ADD", &self.netns, &Value::Null)?)?;
        let address = result["ips"][0]["address"].as_str().context("a result without address")?;
        Ok((address.trim_end_matches("/32").to_owned(), result))
    }
}

/// Fails if the rules or the route of an address are missing, or if the pod cannot reach its node.
fn ensure_network(lab: &Lab, address: &str, netns: &str) -> Result<()> {
    let rules = lab.on_node("node1", &["ip", "rule"])?;
    ensure!(rules.contains(&format!("to {address} ")), "no rule to {address}:\n{rules}");
    let routes = lab.on_node("node1", &["ip", "route", "show", address])?;
    ensure!(routes.contains("dev eni"), "no route to {address}: {routes}");
    let peer = lab.json(&["node", "list"])?[0]["address"].as_str().context("address")?.to_owned();
    let connect = format!("nsenter --net={netns} bash -c 'exec 3<>/dev/tcp/{peer}/61678'");
    lab.on_node("node1", &["bash", "-c", &connect]).map(drop)
}

fn old_dels_spare_the_new_pod(test: &str, name: &str, daemon_up: bool) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = Lab::up(&bin, name, &["--nodes", "1"])?;
    let old = Sandbox::new(&lab, "web-0", 1)?;
    let (gone, result) = old.add()?;
    let new = Sandbox::new(&lab, "web-0", 2)?;
    let (address, _) = new.add()?;
    ensure!(gone != address, "{address} was assigned twice");
    if !daemon_up {
        lab.run(&["daemon", "stop", "node1"])?;
    }
    old.call("DEL", &old.netns, &result)?;
    lab.on_node("node1", &["ip", "netns", "del", "late-1"])?;
    for _ in 0..3 {
        old.call("DEL", "", &Value::Null)?;
    }
    let rules = lab.on_node("node1", &["ip", "rule"])?;
    if rules.contains(&format!(" {gone} ")) {
        let routes = lab.on_node("node1", &["ip", "route", "show", "table", "all"])?;
        let logs = lab.run(&["logs", "node1", "--lines", "100"])?;
        bail!("rules of {gone} are left:\n{rules}\n{routes}\n{logs}");
    }
    if !daemon_up {
        lab.run(&["daemon", "start", "node1"])?;
        // The daemon has read the tombstones when it answers the next ADD.
        let other = Sandbox::new(&lab, "web-1", 3)?;
        let (third, _) = other.add()?;
        ensure!(third != gone && third != address, "{third} was not free");
    }
    ensure_network(&lab, &address, &new.netns)?;
    let held = lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
    ensure!(held == Some(if daemon_up { 1.0 } else { 2.0 }), "{held:?} assigned");
    let logs = lab.run(&["logs", "node1", "--lines", "10000"])?;
    ensure!(logs.contains("web-0"), "the logs do not name the pod");
    ensure!(!logs.contains("canary-4711"), "a log contains a secret of the netconf");
    lab.down()
}

#[test]
fn old_dels_spare_the_new_pod_while_the_daemon_runs() -> Result<()> {
    old_dels_spare_the_new_pod("old_dels_spare_the_new_pod_while_the_daemon_runs", "t-del-up", true)
}

#[test]
fn old_dels_spare_the_new_pod_while_the_daemon_is_down() -> Result<()> {
    let test = "old_dels_spare_the_new_pod_while_the_daemon_is_down";
    old_dels_spare_the_new_pod(test, "t-del-down", false)
}
