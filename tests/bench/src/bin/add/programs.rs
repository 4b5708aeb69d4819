//! The measured programs: plugin and floor, spawned in the same way.

use crate::sandbox::{Pod, Sandbox};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Add,
    Del,
}

/// The production plugin and its network configuration.
pub(crate) struct Plugin {
    path: PathBuf,
    netconf: String,
}

impl Plugin {
    /// Uses the first plugin of the conflist, as libcni does.
    pub(crate) fn new(path: &Path, conflist: &Path) -> Result<Self> {
        let context = || format!("read {}", conflist.display());
        let list: Value = serde_json::from_slice(&std::fs::read(conflist).with_context(context)?)
            .with_context(context)?;
        let mut netconf = list["plugins"][0].clone();
        ensure!(netconf.is_object(), "{} has no plugins", conflist.display());
        netconf["name"] = list["name"].clone();
        netconf["cniVersion"] = list["cniVersion"].clone();
        Ok(Self { path: path.to_owned(), netconf: netconf.to_string() })
    }

    /// One call, from exec to exit.
    pub(crate) fn call(&self, verb: Verb, pod: &Sandbox) -> Result<()> {
        let verb = match verb {
            Verb::Add => "ADD",
            Verb::Del => "DEL",
        };
        let id = container(pod);
        let Pod { namespace, name, uid } = &pod.pod;
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};\
             K8S_POD_INFRA_CONTAINER_ID={id};K8S_POD_UID={uid}"
        );
        let mut command = Command::new(&self.path);
        command
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", &id)
            .env("CNI_NETNS", &pod.path)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("start the plugin")?;
        let mut stdin = child.stdin.take().context("the plugin's stdin")?;
        stdin.write_all(self.netconf.as_bytes()).context("write the netconf")?;
        drop(stdin);
        let output = child.wait_with_output().context("wait for the plugin")?;
        if !output.status.success() {
            bail!("{verb} of {name}: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(())
    }

    /// True if the node still has a host veth of this pod.
    pub(crate) fn has_link(&self, pod: &Sandbox) -> bool {
        let id = container(pod);
        std::fs::read_dir("/sys/class/net").is_ok_and(|links| {
            links.flatten().any(|link| {
                std::fs::read_to_string(link.path().join("ifalias"))
                    .is_ok_and(|alias| alias.contains(&id))
            })
        })
    }
}

/// The ID of a sandbox. Other programs that start pods on the node use other numbers.
fn container(pod: &Sandbox) -> String {
    format!("b{:063x}", pod.number)
}

/// The static program that only sends the netlink messages.
pub(crate) struct Floor {
    path: PathBuf,
}

impl Floor {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn address(pod: &Sandbox) -> String {
        // From the benchmarking range of RFC 2544, which no network uses.
        format!("198.18.{}.{}", pod.number / 250, pod.number % 250 + 1)
    }

    pub(crate) fn add(&self, pod: &Sandbox) -> Result<()> {
        let mut command = Command::new(&self.path);
        command.env_clear().arg("add").arg(&pod.path).arg(format!("fl{}", pod.number));
        command.arg(Self::address(pod)).arg("2");
        exec(command)
    }

    pub(crate) fn del(&self, pod: &Sandbox) -> Result<()> {
        let mut command = Command::new(&self.path);
        command.env_clear().args(["del", &Self::address(pod), "2"]);
        exec(command)
    }
}

/// Runs a program and waits for its exit.
pub(crate) fn exec(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Destination addresses of the rules of priority 512.
pub(crate) fn rules_to_pods() -> Result<Vec<String>> {
    let output = Command::new("ip")
        .args(["-j", "rule", "show", "priority", "512"])
        .output()
        .context("run ip rule")?;
    let rules: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!([]));
    let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(rules.iter().filter_map(|rule| Some(rule["dst"].as_str()?.to_owned())).collect())
}

/// Deletes the rule of priority 512 to this address, as another program on the node might.
pub(crate) fn delete_rule_to(address: &str) -> Result<()> {
    let mut command = Command::new("ip");
    command.args(["rule", "del", "priority", "512", "to", address]);
    exec(command)
}
