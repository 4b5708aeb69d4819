//! A lab whose first node runs containerd. The second node is a host that calls the pods.

use crate::{
    client::Cri,
    containerd::Containerd,
    program::Program,
    wire::{LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PodSandboxState},
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, time::Duration};
use tests_lab::{Lab, wait_for};

/// A node of the lab with a container runtime.
pub struct Node {
    // The order matters: the runtime must end before its node does.
    pub containerd: Containerd,
    pub lab: Lab,
}

/// A sandbox that was created.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sandbox {
    /// Name and host name of the pod.
    pub name: String,
    /// The runtime's ID.
    pub id: String,
    /// The address in the runtime's status.
    pub address: String,
}

impl Node {
    /// Starts a lab of two nodes, with `args` for `ferrule-lab up`, and a runtime in the first one. Its
    /// conflist is the lab's, in this version of CNI and after `change`.
    ///
    /// # Errors
    /// The error of the failed step.
    pub fn up(
        programs: &Path,
        name: &str,
        args: &[&str],
        program: Program,
        version: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        let lab = Lab::up(programs, name, &[&["--nodes", "2"], args].concat())?;
        Self::in_lab(lab, program, version, change)
    }

    /// As `up`, in a running lab with its current conflist.
    ///
    /// # Errors
    /// As [`Node::up`].
    pub fn in_lab(
        lab: Lab,
        program: Program,
        version: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Self> {
        let text = lab.on_node(NODE, &["cat", "/etc/cni/net.d/05-ferrule.conflist"])?;
        let mut conflist: Value = serde_json::from_str(&text).context("the lab's conflist")?;
        conflist["cniVersion"] = json!(version);
        // Otherwise the runtime would use the newest version that it knows.
        conflist.as_object_mut().context("the lab's conflist")?.remove("cniVersions");
        conflist["plugins"][0]["capabilities"]["portMappings"] = json!(true);
        change(&mut conflist);
        // Every runtime calls the loopback plugin, which is part of a node's image.
        lab.on_node(NODE, &["cp", LOOPBACK, "/opt/cni/bin/"])?;
        let containerd = Containerd::start(&lab, NODE, program, &conflist)?;
        Ok(Self { containerd, lab })
    }

    /// The configuration of a pod's sandbox as a kubelet would send it.
    pub fn pod(&self, name: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-of-{name}"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.containerd.cgroup().to_owned(),
            }),
            ..PodSandboxConfig::default()
        }
    }

    /// Creates a sandbox.
    ///
    /// # Errors
    /// If the runtime refuses, or the sandbox is not ready or has no address. The error contains the
    /// end of the runtime's log.
    pub fn make(&self, cri: &Cri, pod: &PodSandboxConfig) -> Result<Sandbox> {
        let id = cri.run(pod).with_context(|| self.containerd.log_tail())?;
        let name = pod.hostname.clone();
        Ok(Sandbox { address: self.address(cri, &id)?, name, id })
    }

    /// The address of a ready sandbox.
    ///
    /// # Errors
    /// If the sandbox is not ready or has no address.
    pub fn address(&self, cri: &Cri, id: &str) -> Result<String> {
        let status = cri.status(id)?;
        ensure!(status.state() == PodSandboxState::SandboxReady, "sandbox {id} is not ready");
        let address = status.network.map(|network| network.ip).unwrap_or_default();
        ensure!(!address.is_empty(), "sandbox {id} has no address");
        Ok(address)
    }

    /// Stops a sandbox twice, as a kubelet may, and removes it.
    ///
    /// # Errors
    /// If the runtime refuses.
    pub fn remove(&self, cri: &Cri, sandbox: &Sandbox) -> Result<()> {
        let context = || format!("sandbox of {}; {}", sandbox.name, self.containerd.log_tail());
        cri.stop(&sandbox.id).with_context(context)?;
        cri.stop(&sandbox.id).with_context(context)?;
        cri.remove(&sandbox.id).with_context(context)
    }

    /// Checks that each sandbox answers the other node with its own name: its address is its own, and the
    /// path through the VPC works.
    ///
    /// # Errors
    /// Lists the sandboxes that do not, with their answers.
    pub fn answer(&self, sandboxes: &[Sandbox]) -> Result<()> {
        let addresses: Vec<&str> = sandboxes.iter().map(|of| of.address.as_str()).collect();
        let script = format!("for ip in {}; do {CALL}; done", addresses.join(" "));
        let answers = self.lab.on_node(OTHER, &["bash", "-c", &script])?;
        let by_address: BTreeMap<&str, &str> =
            answers.lines().filter_map(|line| line.split_once(' ')).collect();
        let wrong: Vec<String> = sandboxes
            .iter()
            .filter(|of| by_address.get(of.address.as_str()) != Some(&of.name.as_str()))
            .map(|of| format!("{} at {}: {:?}", of.name, of.address, by_address.get(&*of.address)))
            .collect();
        if !wrong.is_empty() {
            bail!("{} of {} did not answer: {wrong:?}", wrong.len(), sandboxes.len());
        }
        Ok(())
    }

    /// Waits until nothing of any sandbox is left: in the runtime, its cache of results, the daemon's address
    /// book, the kernel, and the tombstones.
    ///
    /// # Errors
    /// Lists the rest.
    pub fn is_empty_of_sandboxes(&self, cri: &Cri) -> Result<()> {
        wait_for("nothing to be left of the sandboxes", PATIENCE, || {
            let sandboxes = cri.list()?;
            ensure!(sandboxes.is_empty(), "sandboxes: {sandboxes:?}");
            let namespaces = self.containerd.network_namespaces()?;
            ensure!(namespaces.is_empty(), "network namespaces: {namespaces:?}");
            let held = self.lab.metric(NODE, "awscni_assigned_ip_addresses", &[])?;
            ensure!(held == Some(0.0), "addresses in the daemon's address book: {held:?}");
            for (what, script) in LEFTOVERS {
                let left = self.lab.on_node(NODE, &["bash", "-c", script])?;
                ensure!(left.trim().is_empty(), "{what}:\n{left}");
            }
            Ok(true)
        })
    }
}

/// The node with the runtime.
pub(crate) const NODE: &str = "node1";
const OTHER: &str = "node2";
/// Path in Debian's package containernetworking-plugins.
const LOOPBACK: &str = "/usr/lib/cni/loopback";

/// State that must be gone, and the command that lists it.
const LEFTOVERS: [(&str, &str); 4] = [
    ("rules", "ip rule | grep -E '^(512|1536):' || true"),
    ("host links", "ip -o link | grep -oE ' eni[0-9a-f]{11}@' || true"),
    ("cached results", "find /var/lib/cni -type f"),
    ("tombstones", "find /var/lib/ferrule -path '*tombstones/*' -type f"),
];

/// Retries a refused connection, because a runtime does not wait until the container listens. Other errors
/// are not retried.
const CALL: &str = r#"for n in {1..300}; do
    answer=$(LC_ALL=C timeout 10 bash -c "exec 3<> /dev/tcp/$ip/8080; cat <&3" 2>&1)
    case $answer in *refused*) sleep 0.1;; *) break;; esac
done
echo "$ip ${answer//$'\n'/ }""#;

const PATIENCE: Duration = Duration::from_secs(120);
