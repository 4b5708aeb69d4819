//! Nodes that go wrong, each way brought about for real: what `ferrule status`, `ferrule pod`, events and alerts say
//! names the cause and what to do.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and tells how far it is"
)]

use serde_json::Value;
use std::time::Duration;
use tests_lab::wait_for;
use tests_support::promtool;
use tests_whole::{Given, Hold, Installed, NODE_PODS, Prometheus};

/// A pool without spare parts, on a type with three ENIs of three addresses for pods.
const TYPE: &[&str] = &["--type", "t3.small"];
const SETS: &[&str] =
    &["env.WARM_IP_TARGET=1", "env.FERRULE_ADD_WAIT=10", "env.IP_COOLDOWN_PERIOD=5"];
const NODE: &str = "node1";
const PATIENCE: Duration = Duration::from_secs(150);

struct Scenario<'a> {
    cluster: &'a Installed,
    prometheus: Prometheus<'a>,
}

/// What is to be said of one cause, wherever somebody looks.
struct ExpectedReport<'a> {
    /// The word in the column STATE.
    kind: &'a str,
    /// What names the cause.
    cause: &'a str,
    /// What names the remedy.
    remedy: &'a str,
}

impl Scenario<'_> {
    /// So many pods on the node.
    fn load(&self, replicas: u32) {
        self.cluster.load(replicas, Some(NODE)).unwrap();
    }

    /// No pod is left, and what they held has rested.
    fn unload(&self) {
        self.load(0);
        let gone = ["-n", "default", "wait", "--for=delete", "pod", "-l", "app=load"];
        self.cluster.kubectl(&[&gone[..], &["--timeout=120s"]].concat()).unwrap();
    }

    fn said(&self, args: &[&str]) -> String {
        let said = self.cluster.ferrule(args).unwrap();
        format!(
            "{}{}",
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr)
        )
    }

    /// The node's troubles and notices, as programs read them.
    fn troubles(&self) -> Vec<Value> {
        let said = self.cluster.ferrule(&["status", "-o", "json"]).unwrap();
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        let nodes = said["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["node"] == NODE).unwrap();
        node["troubles"].as_array().unwrap().clone()
    }

    /// Waits until `ferrule status` has it; people are told the same, and that something is to be done.
    fn status_tells(&self, told: &ExpectedReport<'_>) {
        let mut last = Vec::new();
        let waited = wait_for(&format!("status to tell of {}", told.kind), PATIENCE, || {
            last = self.troubles();
            Ok(last.iter().any(|it| {
                let has = |field: &str, word: &str| it[field].to_string().contains(word);
                it["kind"] == told.kind
                    && (has("cause", told.cause) || has("object", told.cause))
                    && has("nextStep", told.remedy)
            }))
        });
        assert!(waited.is_ok(), "{} is not told: {last:#?}", told.kind);
        let text = self.said(&["status"]);
        for word in [told.cause, told.remedy] {
            assert!(text.contains(word), "nothing of {word:?} in:\n{text}");
        }
        println!("{}: ferrule status names cause and remedy", told.kind);
    }

    /// Waits until a pod of the load that does not run has both in its events and in `ferrule pod`.
    fn a_waiting_pod_tells(&self, told: &ExpectedReport<'_>) {
        let mut last = String::new();
        let waited = wait_for(&format!("a pod to tell of {}", told.kind), PATIENCE, || {
            let pods = self.cluster.cluster().json(&[
                "-n",
                "default",
                "get",
                "pods",
                "-l",
                "app=load",
                "--field-selector",
                "status.phase=Pending",
            ])?;
            let bound = pods["items"].as_array().into_iter().flatten();
            let mut bound = bound.filter(|pod| pod["spec"]["nodeName"] == NODE);
            let Some(name) = bound.next().and_then(|pod| pod["metadata"]["name"].as_str()) else {
                return Ok(false);
            };
            let of = format!("involvedObject.name={name}");
            let events = self.cluster.kubectl(&[
                "-n",
                "default",
                "get",
                "events",
                "--field-selector",
                &of,
            ])?;
            let whole = self.said(&["pod", &format!("default/{name}")]);
            last = format!("{events}\n{whole}");
            Ok([&events, &whole].iter().all(|said| {
                said.contains("FailedCreatePodSandBox")
                    && said.contains(told.cause)
                    && said.contains(told.remedy)
            }))
        });
        assert!(waited.is_ok(), "no pod tells of {}: {last}", told.kind);
        println!("{}: events and ferrule pod name cause and remedy", told.kind);
    }

    fn alert_tells(&self, name: &str, of: impl Fn(&Value) -> bool, words: &[&str]) {
        let told = self.prometheus.fires(name, of).unwrap();
        for word in words {
            assert!(told.contains(word), "{name} says nothing of {word:?}: {told}");
        }
        println!("{name} fires: {told}");
    }

    fn event_of_ours(&self, reason: &str, words: &[&str]) {
        let mut last = String::new();
        let waited = wait_for(&format!("event {reason}"), PATIENCE, || {
            let of = format!("reason={reason}");
            last = self.cluster.kubectl(&[
                "-n",
                "kube-system",
                "get",
                "events",
                "--field-selector",
                &of,
            ])?;
            Ok(words.iter().all(|word| last.contains(word)))
        });
        assert!(waited.is_ok(), "event {reason} lacks one of {words:?}: {last}");
    }

    fn in_folder(&self, script: &str) -> String {
        let script = format!("cd /etc/cni/net.d && {script}");
        self.cluster.lab().run(&["cluster", "exec", NODE, "--", "sh", "-c", &script]).unwrap()
    }
}

fn iam_lacks_an_action(scene: &Scenario<'_>) {
    scene.cluster.lab().run(&["iam", "deny", "AssignPrivateIpAddresses"]).unwrap();
    // One more than what new ENIs bring; CoreDNS may be on the node as well.
    scene.load(8);
    let told = ExpectedReport {
        kind: "denied",
        cause: "ec2:AssignPrivateIpAddresses",
        remedy: "allow ec2:AssignPrivateIpAddresses to the node's role",
    };
    scene.status_tells(&told);
    scene.a_waiting_pod_tells(&told);
    scene.event_of_ours("MissingIAMPermissions", &["lacks ec2:AssignPrivateIpAddresses"]);
    let of = |labels: &Value| labels["action"] == "AssignPrivateIpAddresses";
    scene.alert_tells(
        "FerruleEC2Denied",
        of,
        &["Allow ec2:AssignPrivateIpAddresses", "alerts.md#"],
    );
    scene.cluster.lab().run(&["iam", "allow"]).unwrap();
    scene.cluster.loaded().unwrap();
}

fn the_enis_of_the_type_are_full(scene: &Scenario<'_>) {
    // As many as kubelet takes on this type: nine of them get an address.
    scene.load(10);
    let told = ExpectedReport {
        kind: "eni_limit",
        cause: "all ENIs are full, and the node has the 3 that it may have",
        remedy: "use a larger instance type, a higher MAX_ENI, or fewer pods per node",
    };
    scene.status_tells(&told);
    scene.a_waiting_pod_tells(&told);
    let any = |_: &Value| true;
    scene.alert_tells("FerrulePoolExhausted", any, &["no address", "MAX_ENI", "ferrule status"]);
    scene.unload();
}

fn the_conflist_is_overwritten(scene: &Scenario<'_>) {
    let other = "{\\\"cniVersion\\\":\\\"1.0.0\\\",\\\"name\\\":\\\"other\\\",\\\"plugins\\\":[{\\\"type\\\":\\\"loopback\\\"}]}";
    let ours = |name: &str| {
        wait_for(&format!("{name} to be put right"), PATIENCE, || {
            Ok(scene.in_folder("cat *.conflist").contains("ferrule-cni")
                && scene.in_folder("ls *.conflist").trim() == "05-ferrule.conflist")
        })
        .unwrap();
    };
    // Three times within the hour is a habit of somebody's.
    for _ in 0..4 {
        scene.in_folder(&format!("echo \"{other}\" > 05-ferrule.conflist"));
        ours("the overwritten conflist");
    }
    scene.in_folder(&format!("echo \"{other}\" > 00-other.conflist"));
    ours("a foreign one before ours");
    let kept = scene.in_folder("ls");
    assert!(kept.contains("05-ferrule.conflist.ferrule-edited"), "{kept}");
    assert!(kept.contains("00-other.conflist.ferrule-aside"), "{kept}");
    let told = ExpectedReport {
        kind: "repaired",
        cause: "restored 5 times since the installer started, last: put 00-other.conflist aside",
        remedy: "find the other writer",
    };
    scene.status_tells(&told);
    let any = |_: &Value| true;
    scene.alert_tells("FerruleNetworkOverwritten", any, &["Find who writes there", "network"]);
    let log = ["-n", "kube-system", "logs", "-l", NODE_PODS, "-c", "network"];
    let log = scene.cluster.kubectl(&log).unwrap();
    assert!(log.contains("put 00-other.conflist aside"), "{log}");
}

fn the_subnet_is_full(scene: &Scenario<'_>) {
    let lab = scene.cluster.lab();
    let subnets = lab.json(&["status"]).unwrap()["subnets"].as_array().unwrap().clone();
    let (id, free) = (subnets[0]["id"].as_str().unwrap(), subnets[0]["free"].as_u64().unwrap());
    lab.run(&["subnet", "take", "a", &free.to_string()]).unwrap();
    scene.load(9);
    let cause = format!("subnet {id} has no free addresses");
    let told = ExpectedReport {
        kind: "subnet_full",
        cause: &cause,
        remedy: "free addresses in the subnet, or give the nodes a larger one",
    };
    scene.status_tells(&told);
    scene.a_waiting_pod_tells(&told);
    let any = |_: &Value| true;
    scene.alert_tells("FerruleSubnetFull", any, &["Free addresses in it", "ferrule status"]);
    // A node that cannot serve keeps its configuration all the same.
    scene.in_folder("rm 05-ferrule.conflist");
    wait_for("the conflist of a node without addresses", PATIENCE, || {
        Ok(scene.in_folder("ls").contains("05-ferrule.conflist\n"))
    })
    .unwrap();
    lab.run(&["subnet", "free", "a"]).unwrap();
    scene.unload();
}

fn the_image_cannot_be_pulled(scene: &Scenario<'_>) {
    let nowhere = [
        SETS,
        &[
            "image.override=registry.invalid/ferrule:9",
            "updateStrategy.rollingUpdate.maxUnavailable=2",
        ],
    ]
    .concat();
    scene.cluster.upgrade(&nowhere).unwrap();
    let told = ExpectedReport {
        kind: "image",
        cause: "registry.invalid/ferrule:9",
        remedy: "that the image name is right",
    };
    scene.status_tells(&told);
    scene.event_of_ours("Failed", &["Failed to pull image", "registry.invalid/ferrule:9"]);
    let pods = scene.cluster.pods("kube-system", NODE_PODS).unwrap();
    let pod = pods.iter().find(|pod| pod.node == NODE).unwrap();
    let whole = scene.said(&["pod", &format!("kube-system/{}", pod.name)]);
    for word in [told.cause, told.remedy, "Pull"] {
        assert!(whole.contains(word), "nothing of {word:?} in:\n{whole}");
    }
    let any = |_: &Value| true;
    scene.alert_tells("FerruleDaemonDown", any, &["ferrule status", "image cannot be pulled"]);
    scene.cluster.install(SETS).unwrap();
}

#[test]
fn a_fault_of_a_node_is_reported_with_its_cause_and_its_remedy() {
    let test = "a_fault_of_a_node_is_reported_with_its_cause_and_its_remedy";
    let Some(given) = Given::or_skip(test) else { return };
    if !promtool::is_there(test) {
        return;
    }
    let cluster = Installed::bare_with(given, "bad", 2, TYPE).unwrap();
    cluster.install(SETS).unwrap();
    let targets = cluster.targets(SETS).unwrap();
    let prometheus = Prometheus::beside(&cluster, &targets, Hold::Briefly).unwrap();
    let scene = Scenario { cluster: &cluster, prometheus };
    iam_lacks_an_action(&scene);
    the_enis_of_the_type_are_full(&scene);
    the_conflist_is_overwritten(&scene);
    the_subnet_is_full(&scene);
    the_image_cannot_be_pulled(&scene);
}
