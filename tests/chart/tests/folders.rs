//! The CNI folders of the host: mounts, the installer's environment, and a real installation into the rendered folders.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]
#![expect(clippy::print_stdout, reason = "a skip is reported on standard output")]

use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tests_chart::Chart;

const BIN: &str = "/var/lib/rancher/k3s/data/cni";
const CONF: &str = "/var/lib/rancher/k3s/agent/etc/cni/net.d";

fn by_values() -> Value {
    json!({ "cni": { "binPath": BIN, "confPath": CONF } })
}

fn by_variables() -> Value {
    json!({
        "env": { "HOST_CNI_BIN_PATH": format!("/host{BIN}/") },
        "init": { "env": { "HOST_CNI_CONFDIR_PATH": format!("/host{CONF}") } },
    })
}

fn pod(values: &Value) -> Value {
    let rendered = Chart::of_this_clone().unwrap().render(values).unwrap();
    rendered.of_kind("DaemonSet").next().unwrap()["spec"]["template"]["spec"].clone()
}

/// Returns the init container and the container `network`, which is missing in the removal.
fn installers(pod: &Value) -> Vec<Value> {
    let all = pod["containers"].as_array().unwrap();
    let network = all.iter().filter(|one| one["name"] == "network");
    pod["initContainers"].as_array().unwrap().iter().chain(network).cloned().collect()
}

fn variable(container: &Value, name: &str) -> String {
    let all = container["env"].as_array().unwrap();
    let mut found = all.iter().filter(|one| one["name"] == name);
    let value = found.next().unwrap()["value"].as_str().unwrap().to_owned();
    assert!(found.next().is_none(), "{name} is set twice");
    value
}

/// Returns the folder of the host at a path of the container.
fn folder_of_host(pod: &Value, container: &Value, path: &str) -> String {
    let mounts = container["volumeMounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountPath"] == path).unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
    volume["hostPath"]["path"].as_str().unwrap().to_owned()
}

fn folders(values: &Value) -> Vec<[String; 2]> {
    let pod = pod(values);
    let of =
        |container: &Value, name: &str| folder_of_host(&pod, container, &variable(container, name));
    let names = ["HOST_CNI_BIN_PATH", "HOST_CNI_CONFDIR_PATH"];
    installers(&pod).iter().map(|one| names.map(|name| of(one, name))).collect()
}

#[test]
fn the_installer_and_the_removal_have_the_folders_of_the_values() {
    let set = [BIN, CONF].map(str::to_owned);
    for values in [by_values(), by_variables()] {
        assert_eq!(folders(&values), [set.clone(), set.clone()]);
        let mut removal = values;
        removal["removal"] = json!(true);
        assert_eq!(folders(&removal), std::slice::from_ref(&set));
    }
    let default = ["/opt/cni/bin", "/etc/cni/net.d"].map(str::to_owned);
    assert_eq!(folders(&json!({})), [default.clone(), default]);
}

/// Runs the command of the init container with its environment. `root` is the root of the host's files.
fn run(values: &Value, program: &Path, root: &Path) {
    let container = installers(&pod(values)).swap_remove(0);
    let words: Vec<&str> = container["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let [name, words @ ..] = &words[..] else { panic!("no command") };
    assert_eq!(program.file_name().unwrap(), *name);
    let mut command = Command::new(program);
    command.args(words).env_clear().env("FERRULE_STATE_DIR", root.join("state"));
    command.env("AWS_VPC_K8S_CNI_BACKING_STORE", root.join("aws-node/ipam.json"));
    for name in ["HOST_CNI_BIN_PATH", "HOST_CNI_CONFDIR_PATH"] {
        let path = variable(&container, name);
        command.env(name, root.join(path.strip_prefix("/host/").unwrap()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_real_installation_and_removal_use_the_rendered_folders() {
    let Some(programs) = std::env::var_os("FERRULE_BIN_DIR").map(PathBuf::from) else {
        println!(
            "SKIP a_real_installation_and_removal_use_the_rendered_folders: FERRULE_BIN_DIR is not \
             set; `cargo xtask test` sets it"
        );
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let at = |folder: &str| root.path().join(folder.trim_start_matches('/'));
    for folder in [BIN, CONF, "/state", "/aws-node"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    let program = programs.join("ferrule-ipamd");
    run(&by_values(), &program, root.path());
    let plugin = at(BIN).join("ferrule-cni");
    assert_eq!(fs::read(&plugin).unwrap(), fs::read(programs.join("ferrule-cni")).unwrap());

    let ours = at(CONF).join("05-ferrule.conflist");
    let theirs = at(CONF).join("10-flannel.conflist");
    fs::write(&ours, "{}").unwrap();
    fs::write(at(CONF).join("10-flannel.conflist.ferrule-aside"), "{}").unwrap();
    let mut removal = by_variables();
    removal["removal"] = json!(true);
    run(&removal, &program, root.path());
    assert!(!ours.exists() && theirs.exists() && plugin.exists(), "the plugin serves DELs");
}
