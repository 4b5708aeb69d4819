//! A canary in every input. It must not appear in an answer, a log or a tombstone.

use crate::{
    binary::{Call, Ended},
    daemon::{Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use ipamd_rpc::Reason;
use serde_json::{Value, json};
use std::{fs, path::Path};

const CANARY: &str = "canary-7f3a";

/// Returns a runtime's configuration with a secret in every possible place.
fn conf_with_secrets(node: &Node) -> Value {
    let mut conf = node.conf();
    conf["runtimeConfig"] = json!({
        "io.kubernetes.cri.pod-annotations": {"token": CANARY, (CANARY): "x"},
        "portMappings": [{"HostIP": CANARY}],
    });
    conf["args"] = json!({"cni": {"labels": [{"key": CANARY, "value": CANARY}]}});
    conf["capabilities"] = json!({(CANARY): true});
    conf["unknownToUs"] = json!({"deep": [CANARY]});
    conf["pluginLogLevel"] = json!(CANARY);
    conf["prevResult"] = json!({"cniVersion": "1.0.0", (CANARY): CANARY, "cookie": CANARY});
    conf
}

fn call_with_secrets(node: &Node, verb: &str, conf: &Value) -> Call {
    let call = node.call_with(verb, &node.sandbox("c1", "web-0"), conf);
    let args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0";
    call.var("CNI_ARGS", &format!("{args};Token={CANARY};{CANARY}=1"))
        .var("TRACEPARENT", CANARY)
        .var("SECRET", CANARY)
        .var("RUST_LOG", CANARY)
}

#[track_caller]
fn is_clean(ended: &Ended) {
    assert!(!ended.stdout.contains(CANARY), "{ended:?}");
    assert!(!ended.stderr.contains(CANARY), "{ended:?}");
}

/// Fails if a file below the folder contains the canary.
fn are_clean(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            are_clean(&path);
        } else if path.is_file() && !path.starts_with(folder.join("netns")) {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
            assert!(!text.contains(CANARY), "{}: {text}", path.display());
        }
    }
}

#[test]
fn a_secret_in_any_input_appears_nowhere() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let conf = conf_with_secrets(node);
        let added = call_with_secrets(node, "ADD", &conf).run();
        is_clean(&added);
        let mut after = conf.clone();
        let result = added.result();
        for (key, value) in result.as_object().unwrap() {
            after["prevResult"][key] = value.clone();
        }
        let checked = call_with_secrets(node, "CHECK", &after).run();
        checked.is_silent_success();
        node.ip("rule del pref 512");
        is_clean(&call_with_secrets(node, "CHECK", &after).run());
        is_clean(&call_with_secrets(node, "DEL", &after).run());
        for behavior in [DaemonBehavior::Empty(Reason::Exhausted), DaemonBehavior::Forgetful] {
            daemon.book(|book| book.behavior = behavior);
            let failed = call_with_secrets(node, "ADD", &conf).run();
            assert_eq!(failed.code, Some(1));
            is_clean(&failed);
        }
        daemon.kill();
        is_clean(&call_with_secrets(node, "DEL", &after).run());
        assert!(node.path("state").is_dir(), "no tombstone");

        are_clean(node.folder.path());
        are_clean(Path::new("/var/log"));
        assert!(node.log().lines().count() >= 6, "too few lines: {}", node.log());
    });
}

#[test]
fn a_secret_in_the_wrong_place_appears_nowhere_either() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        for key in [
            "cniVersion",
            "name",
            "mtu",
            "vethPrefix",
            "addWait",
            "ipamdSocket",
            "stateDir",
            "pluginLogFile",
            "prevResult",
        ] {
            let value = if key == "name" { format!("{CANARY} with spaces") } else { CANARY.into() };
            for value in [json!(value), json!({"x": CANARY}), json!([CANARY])] {
                let mut conf = node.conf();
                conf[key] = value;
                for verb in ["ADD", "DEL", "CHECK", "VERSION"] {
                    is_clean(&call_with_secrets(node, verb, &conf).run());
                }
            }
        }
        let call = || node.call("ADD", &node.sandbox("c2", "web-1"));
        for broken in [
            call().stdin(format!("{CANARY} is not json")),
            call().stdin(format!("{{\"{CANARY}\":")),
            call().stdin(format!("\"{CANARY}\"")),
            call().var("CNI_COMMAND", CANARY),
            call().var("CNI_CONTAINERID", &format!("{CANARY}/..")),
            call().var("CNI_IFNAME", &format!("{CANARY}/0")),
            call().var("CNI_ARGS", CANARY),
            call().var("CNI_ARGS", &format!("Token={CANARY}")),
            call().var("CNI_ARGS", &format!("{CANARY}=1")),
            call().var("CNI_ARGS", &format!("IgnoreUnknown={CANARY}")),
        ] {
            let ended = broken.run();
            assert_eq!(ended.code, Some(1), "{broken:?}");
            is_clean(&ended);
        }
        are_clean(node.folder.path());
        are_clean(Path::new("/var/log"));
        assert!(Path::new("/var/log/aws-routed-eni/plugin.log").is_file());
    });
}
