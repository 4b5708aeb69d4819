//! `ferrule ip` and `ferrule ip check` on a whole cluster, for an account with viewer rights. A healthy cluster has no
//! finding. Each planted fault is found, and its finding ends with the fault.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use serde_json::{Value, json};
use std::{path::PathBuf, process::Output, time::Duration};
use tests_lab::wait_for;
use tests_whole::{Installed, LaneInputs, Pod};

const PATIENCE: Duration = Duration::from_secs(120);
const NODE: &str = "node1";
/// A node without kubelet: its pods have the status that the test writes.
const PAPER: &str = "paper";

struct Scene {
    cluster: Installed,
    viewer: PathBuf,
    pods: Vec<Pod>,
}

#[test]
fn a_viewer_finds_each_planted_fault_of_addresses_and_no_other() {
    let test = "a_viewer_finds_each_planted_fault_of_addresses_and_no_other";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "addresses", 2).unwrap();
    cluster.install(&["env.ENABLE_PREFIX_DELEGATION=true"]).unwrap();
    let pods = cluster.probes("seen").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let viewer = cluster.viewer(folder.path()).unwrap();
    let scene = Scene { cluster, viewer, pods };
    scene.the_tree_has_each_pod();
    scene.is_healthy();
    println!("a leak");
    scene.a_lost_del_is_a_leak();
    scene.is_healthy();
    println!("one address in two pods");
    scene.an_address_in_two_pods_is_found();
    scene.is_healthy();
    println!("a fragmented subnet");
    scene.a_fragmented_subnet_is_found();
}

impl Scene {
    fn ask(&self, args: &[&str]) -> Output {
        self.cluster.ferrule_as(&self.viewer, &[&["ip"], args].concat()).output().unwrap()
    }

    /// Runs the check. Returns its findings as pairs of kind and object, and its exit code.
    fn findings(&self) -> (Vec<(String, String)>, Option<i32>) {
        let output = self.ask(&["check", "-o", "json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        let report: Value = serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        (
            findings.map(|it| (text(&it["kind"]), text(&it["object"]))).collect(),
            output.status.code(),
        )
    }

    fn is_healthy(&self) {
        wait_for("a check without findings", PATIENCE, || {
            Ok(self.findings() == (Vec::new(), Some(0)))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", self.findings()));
    }

    /// The check has this finding and no other one.
    fn has_only(&self, kind: &str, object: &str) {
        let (findings, code) = self.findings();
        assert_eq!(findings, [(kind.to_owned(), object.to_owned())]);
        assert_eq!(code, Some(1));
    }

    fn the_tree_has_each_pod(&self) {
        let output = self.ask(&["-o", "wide"]);
        let tree = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{tree}");
        for pod in &self.pods {
            let line = format!("{}  default/{}\n", pod.address, pod.name);
            assert!(tree.contains(&line), "{line} is not in {tree}");
        }
        let output = self.ask(&["-o", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["unasked"], json!([]), "{report}");
        let subnets = report["subnets"].as_array().unwrap();
        let assigned: u64 = subnets.iter().filter_map(|subnet| subnet["assigned"].as_u64()).sum();
        // Further pods, such as those of DNS, have addresses too.
        assert!(assigned >= self.pods.len() as u64, "{report}");
    }

    /// A sandbox whose pod the API server does not have, as after a DEL that the runtime never sent.
    fn a_lost_del_is_a_leak(&self) {
        let lab = self.cluster.lab();
        lab.on_node(NODE, &["ip", "netns", "add", "ghost"]).unwrap();
        let added = self.plugin("ADD", &Value::Null);
        let address = added["ips"][0]["address"].as_str().unwrap().trim_end_matches("/32");
        self.has_only("address_leaked", address);
        let printed = self.ask(&["check"]);
        let printed = String::from_utf8_lossy(&printed.stdout);
        assert!(printed.contains("default/ghost"), "{printed}");
        assert!(printed.contains("crictl pods --name ghost"), "{printed}");
        self.plugin("DEL", &added);
        lab.on_node(NODE, &["ip", "netns", "del", "ghost"]).unwrap();
    }

    /// Calls the plugin with the node's conflist, as the runtime does.
    fn plugin(&self, verb: &str, prev_result: &Value) -> Value {
        let lab = self.cluster.lab();
        let list = lab.on_node(NODE, &["cat", "/etc/cni/net.d/05-ferrule.conflist"]).unwrap();
        let list: Value = serde_json::from_str(&list).unwrap();
        let mut netconf = list["plugins"][0].clone();
        netconf["cniVersion"] = list["cniVersion"].clone();
        netconf["name"] = list["name"].clone();
        netconf["prevResult"] = prev_result.clone();
        let id = "9".repeat(64);
        let vars = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", &id),
            ("CNI_NETNS", "/run/netns/ghost"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=ghost"),
        ];
        let ended = lab.plugin(NODE, &vars, &netconf).unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{verb}: {printed}");
        if printed.trim().is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&printed).unwrap()
        }
    }

    fn an_address_in_two_pods_is_found(&self) {
        let address = &self.pods[0].address;
        let run = |words: &[&str]| self.cluster.kubectl(words).unwrap();
        // No DaemonSet runs there: `paper` is no node of Ferrule, so nothing is missing.
        let labels = json!({ "eks.amazonaws.com/compute-type": "fargate" });
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": PAPER, "labels": labels },
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "twin", "namespace": "default" },
            "spec": {
                "nodeName": PAPER,
                "containers": [{ "name": "none", "image": "localhost/none:1" }],
            },
        });
        self.cluster.cluster().apply(&[node, pod]).unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let running = json!({
            "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
        });
        for (object, status) in [(["node", PAPER], ready), (["pod", "twin"], running)] {
            let patch = ["patch", object[0], object[1], "--subresource=status", "--type=merge"];
            run(&[&patch[..], &["-p", &status.to_string()]].concat());
        }
        self.has_only("address_twice", address);
        run(&["delete", "pod", "twin", "--force", "--grace-period=0"]);
        run(&["delete", "node", PAPER]);
    }

    /// The node needs another prefix and gets single addresses.
    fn a_fragmented_subnet_is_found(&self) {
        let lab = self.cluster.lab();
        lab.run(&["subnet", "fragment", "a"]).unwrap();
        let subnet = lab.subnet("a").unwrap();
        self.cluster.load(20, Some(NODE)).unwrap();
        self.cluster.loaded().unwrap();
        let expected = ("subnet_fragmented".to_owned(), subnet);
        wait_for("the fragmented subnet", PATIENCE, || {
            let (findings, code) = self.findings();
            Ok(findings.contains(&expected) && code == Some(1))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {:?}", self.findings()));
    }
}
