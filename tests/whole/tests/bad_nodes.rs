//! Faults of nodes, each caused for real. `ferrule status`, `ferrule pod`, events and alerts name the cause and the
//! next step.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use serde_json::Value;
use std::time::Duration;
use tests_lab::wait_for;
use tests_support::promtool;
use tests_whole::{Hold, Installed, LaneInputs, NODE_PODS, Prometheus};

/// A small type: three ENIs with three addresses each for pods.
const TYPE: &[&str] = &["--type", "t3.small"];
const SETS: &[&str] =
    &["env.WARM_IP_TARGET=1", "env.FERRULE_ADD_WAIT=10", "env.IP_COOLDOWN_PERIOD=5"];
const NODE: &str = "node1";
const PATIENCE: Duration = Duration::from_secs(150);

struct Scenario<'a> {
    cluster: &'a Installed,
    prometheus: Prometheus<'a>,
}

/// The expected report of a fault in every place.
struct ExpectedReport<'a> {
    /// The kind of the problem in `ferrule status`.
    kind: &'a str,
    /// A part of the cause or of the object.
    cause: &'a str,
    /// A part of the next step.
    remedy: &'a str,
}

impl Scenario<'_> {
    /// Scales the load on the node.
    fn load(&self, replicas: u32) {
        self.cluster.load(replicas, Some(NODE)).unwrap();
    }

    /// Deletes all pods of the load.
    fn unload(&self) {
        self.load(0);
        let gone = ["-n", "default", "wait", "--for=delete", "pod", "-l", "app=load"];
        self.cluster.kubectl(&[&gone[..], &["--timeout=120s"]].concat()).unwrap();
    }

    fn printed(&self, args: &[&str]) -> String {
        let printed = self.cluster.ferrule(args).unwrap();
        format!(
            "{}{}",
            String::from_utf8_lossy(&printed.stdout),
            String::from_utf8_lossy(&printed.stderr)
        )
    }

    /// Returns the node's problems and notices from `ferrule status -o json`.
    fn troubles(&self) -> Vec<Value> {
        let printed = self.cluster.ferrule(&["status", "-o", "json"]).unwrap();
        let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let nodes = printed["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["node"] == NODE).unwrap();
        node["troubles"].as_array().unwrap().clone()
    }

    /// Waits until `ferrule status` reports the fault, as JSON and as text.
    fn wait_for_status(&self, expected: &ExpectedReport<'_>) {
        let mut last = Vec::new();
        let waited = wait_for(&format!("the status to report {}", expected.kind), PATIENCE, || {
            last = self.troubles();
            Ok(last.iter().any(|it| {
                let has = |field: &str, word: &str| it[field].to_string().contains(word);
                it["kind"] == expected.kind
                    && (has("cause", expected.cause) || has("object", expected.cause))
                    && has("nextStep", expected.remedy)
            }))
        });
        assert!(waited.is_ok(), "{} is not reported: {last:#?}", expected.kind);
        let text = self.printed(&["status"]);
        for word in [expected.cause, expected.remedy] {
            assert!(text.contains(word), "{word:?} is not in:\n{text}");
        }
        println!("{}: ferrule status names cause and next step", expected.kind);
    }

    /// Waits until a pending pod of the load has cause and next step in its events and in `ferrule pod`.
    fn wait_for_pending_pod(&self, expected: &ExpectedReport<'_>) {
        let mut last = String::new();
        let waited = wait_for(&format!("a pod to report {}", expected.kind), PATIENCE, || {
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
            let whole = self.printed(&["pod", &format!("default/{name}")]);
            last = format!("{events}\n{whole}");
            Ok([&events, &whole].iter().all(|printed| {
                printed.contains("FailedCreatePodSandBox")
                    && printed.contains(expected.cause)
                    && printed.contains(expected.remedy)
            }))
        });
        assert!(waited.is_ok(), "no pod reports {}: {last}", expected.kind);
        println!("{}: events and ferrule pod name cause and next step", expected.kind);
    }

    fn wait_for_alert(&self, name: &str, of: impl Fn(&Value) -> bool, words: &[&str]) {
        let annotations = self.prometheus.fires(name, of).unwrap();
        for word in words {
            assert!(annotations.contains(word), "{name}: {word:?} is not in {annotations}");
        }
        println!("{name} fires: {annotations}");
    }

    fn wait_for_event(&self, reason: &str, words: &[&str]) {
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

    fn in_conf_folder(&self, script: &str) -> String {
        let script = format!("cd /etc/cni/net.d && {script}");
        self.cluster.lab().run(&["cluster", "exec", NODE, "--", "sh", "-c", &script]).unwrap()
    }
}

fn deny_an_action(scene: &Scenario<'_>) {
    scene.cluster.lab().run(&["iam", "deny", "AssignPrivateIpAddresses"]).unwrap();
    // More pods than the addresses of new ENIs. CoreDNS may be on the node too.
    scene.load(8);
    let expected = ExpectedReport {
        kind: "denied",
        cause: "ec2:AssignPrivateIpAddresses",
        remedy: "allow ec2:AssignPrivateIpAddresses to the node's role",
    };
    scene.wait_for_status(&expected);
    scene.wait_for_pending_pod(&expected);
    scene.wait_for_event("MissingIAMPermissions", &["lacks ec2:AssignPrivateIpAddresses"]);
    let of = |labels: &Value| labels["action"] == "AssignPrivateIpAddresses";
    scene.wait_for_alert(
        "FerruleEC2Denied",
        of,
        &["Allow ec2:AssignPrivateIpAddresses", "alerts.md#"],
    );
    scene.cluster.lab().run(&["iam", "allow"]).unwrap();
    scene.cluster.loaded().unwrap();
}

fn fill_the_enis(scene: &Scenario<'_>) {
    // The kubelet's limit for this type. Nine pods get an address.
    scene.load(10);
    let expected = ExpectedReport {
        kind: "eni_limit",
        cause: "all ENIs are full, and the node has the 3 that it may have",
        remedy: "use a larger instance type, a higher MAX_ENI, or fewer pods per node",
    };
    scene.wait_for_status(&expected);
    scene.wait_for_pending_pod(&expected);
    let any = |_: &Value| true;
    scene.wait_for_alert("FerrulePoolExhausted", any, &["no address", "MAX_ENI", "ferrule status"]);
    scene.unload();
}

fn overwrite_the_conflist(scene: &Scenario<'_>) {
    let other = "{\\\"cniVersion\\\":\\\"1.0.0\\\",\\\"name\\\":\\\"other\\\",\\\"plugins\\\":[{\\\"type\\\":\\\"loopback\\\"}]}";
    let wait_for_ours = |name: &str| {
        wait_for(&format!("the repair of {name}"), PATIENCE, || {
            Ok(scene.in_conf_folder("cat *.conflist").contains("ferrule-cni")
                && scene.in_conf_folder("ls *.conflist").trim() == "05-ferrule.conflist")
        })
        .unwrap();
    };
    // The alert fires after more than two repairs in an hour.
    for _ in 0..4 {
        scene.in_conf_folder(&format!("echo \"{other}\" > 05-ferrule.conflist"));
        wait_for_ours("an overwritten conflist");
    }
    scene.in_conf_folder(&format!("echo \"{other}\" > 00-other.conflist"));
    wait_for_ours("a foreign conflist before ours");
    let kept = scene.in_conf_folder("ls");
    assert!(kept.contains("05-ferrule.conflist.ferrule-edited"), "{kept}");
    assert!(kept.contains("00-other.conflist.ferrule-aside"), "{kept}");
    let expected = ExpectedReport {
        kind: "repaired",
        cause: "restored 5 times since the installer started, last: put 00-other.conflist aside",
        remedy: "find the other writer",
    };
    scene.wait_for_status(&expected);
    let any = |_: &Value| true;
    scene.wait_for_alert("FerruleNetworkOverwritten", any, &["Find the other writer", "network"]);
    let log = ["-n", "kube-system", "logs", "-l", NODE_PODS, "-c", "network"];
    let log = scene.cluster.kubectl(&log).unwrap();
    assert!(log.contains("put 00-other.conflist aside"), "{log}");
}

fn fill_the_subnet(scene: &Scenario<'_>) {
    let lab = scene.cluster.lab();
    let subnets = lab.json(&["status"]).unwrap()["subnets"].as_array().unwrap().clone();
    let (id, free) = (subnets[0]["id"].as_str().unwrap(), subnets[0]["free"].as_u64().unwrap());
    lab.run(&["subnet", "take", "a", &free.to_string()]).unwrap();
    scene.load(9);
    let cause = format!("subnet {id} has no free addresses");
    let expected = ExpectedReport {
        kind: "subnet_full",
        cause: &cause,
        remedy: "free addresses in the subnet, or give the nodes a larger one",
    };
    scene.wait_for_status(&expected);
    scene.wait_for_pending_pod(&expected);
    let any = |_: &Value| true;
    scene.wait_for_alert("FerruleSubnetFull", any, &["Free addresses in it", "ferrule status"]);
    // The installer restores the conflist also on a node without free addresses.
    scene.in_conf_folder("rm 05-ferrule.conflist");
    wait_for("the conflist of a node without free addresses", PATIENCE, || {
        Ok(scene.in_conf_folder("ls").contains("05-ferrule.conflist\n"))
    })
    .unwrap();
    lab.run(&["subnet", "free", "a"]).unwrap();
    scene.unload();
}

fn use_a_missing_image(scene: &Scenario<'_>) {
    let nowhere = [
        SETS,
        &[
            "image.override=registry.invalid/ferrule:9",
            "updateStrategy.rollingUpdate.maxUnavailable=2",
        ],
    ]
    .concat();
    scene.cluster.upgrade(&nowhere).unwrap();
    let expected = ExpectedReport {
        kind: "image",
        cause: "registry.invalid/ferrule:9",
        remedy: "that the image name is right",
    };
    scene.wait_for_status(&expected);
    scene.wait_for_event("Failed", &["Failed to pull image", "registry.invalid/ferrule:9"]);
    let pods = scene.cluster.pods("kube-system", NODE_PODS).unwrap();
    let pod = pods.iter().find(|pod| pod.node == NODE).unwrap();
    let whole = scene.printed(&["pod", &format!("kube-system/{}", pod.name)]);
    for word in [expected.cause, expected.remedy, "Pull"] {
        assert!(whole.contains(word), "{word:?} is not in:\n{whole}");
    }
    let any = |_: &Value| true;
    scene.wait_for_alert("FerruleDaemonDown", any, &["ferrule status", "a failed image pull"]);
    scene.cluster.install(SETS).unwrap();
}

#[test]
fn a_fault_of_a_node_is_reported_with_its_cause_and_its_remedy() {
    let test = "a_fault_of_a_node_is_reported_with_its_cause_and_its_remedy";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    if !promtool::is_there(test) {
        return;
    }
    let cluster = Installed::bare_with(inputs, "bad", 2, TYPE).unwrap();
    cluster.install(SETS).unwrap();
    let targets = cluster.targets(SETS).unwrap();
    let prometheus = Prometheus::beside(&cluster, &targets, Hold::Briefly).unwrap();
    let scene = Scenario { cluster: &cluster, prometheus };
    deny_an_action(&scene);
    fill_the_enis(&scene);
    overwrite_the_conflist(&scene);
    fill_the_subnet(&scene);
    use_a_missing_image(&scene);
}
