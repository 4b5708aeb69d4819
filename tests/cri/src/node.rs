//! A lab whose first node runs containerd; its second one is a host to call the pods from.

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
    // In this order: the runtime ends while its node is still there.
    /// Its runtime.
    pub containerd: Containerd,
    /// The lab that it is in.
    pub lab: Lab,
}

/// A sandbox that was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sandbox {
    /// The pod's name, which is its host name also.
    pub name: String,
    /// The runtime's id of it.
    pub id: String,
    /// The address that the runtime tells the kubelet.
    pub address: String,
}

impl Node {
    /// Starts a lab of two nodes, `args` as of `ferrule-lab up`, and a runtime in the first. Its
    /// conflist is the one that the lab put there, in this version of CNI and after `change`.
    ///
    /// # Errors
    /// Carries what was said by what failed.
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

    /// The same in a lab that is up, with the conflist that is there now.
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
        // Otherwise the runtime would take the newest that it knows.
        conflist.as_object_mut().context("the lab's conflist")?.remove("cniVersions");
        conflist["plugins"][0]["capabilities"]["portMappings"] = json!(true);
        change(&mut conflist);
        // What a node's image brings beside the network's own plugin: a runtime calls it by itself.
        lab.on_node(NODE, &["cp", LOOPBACK, "/opt/cni/bin/"])?;
        let containerd = Containerd::start(&lab, NODE, program, &conflist)?;
        Ok(Self { containerd, lab })
    }

    /// A pod's sandbox as a kubelet would ask for it.
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

    /// Makes a sandbox; fails with the runtime's words and the end of its log.
    ///
    /// # Errors
    /// When the runtime refuses, or it is not ready or has no address afterwards.
    pub fn make(&self, cri: &Cri, pod: &PodSandboxConfig) -> Result<Sandbox> {
        let id = cri.run(pod).with_context(|| self.containerd.last_words())?;
        let name = pod.hostname.clone();
        Ok(Sandbox { address: self.address(cri, &id)?, name, id })
    }

    /// The address of a sandbox that is ready.
    ///
    /// # Errors
    /// When it is not ready or has none.
    pub fn address(&self, cri: &Cri, id: &str) -> Result<String> {
        let status = cri.status(id)?;
        ensure!(status.state() == PodSandboxState::SandboxReady, "sandbox {id} is not ready");
        let address = status.network.map(|network| network.ip).unwrap_or_default();
        ensure!(!address.is_empty(), "sandbox {id} has no address");
        Ok(address)
    }

    /// Stops a sandbox, twice as a kubelet may, and removes it.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub fn remove(&self, cri: &Cri, sandbox: &Sandbox) -> Result<()> {
        let whose = || format!("sandbox of {}; {}", sandbox.name, self.containerd.last_words());
        cri.stop(&sandbox.id).with_context(whose)?;
        cri.stop(&sandbox.id).with_context(whose)?;
        cri.remove(&sandbox.id).with_context(whose)
    }

    /// Each of these answers the other node by its own name, so its address is its own and the way
    /// through the VPC is whole.
    ///
    /// # Errors
    /// Names those that do not, and what was heard instead.
    pub fn answer(&self, sandboxes: &[Sandbox]) -> Result<()> {
        let addresses: Vec<&str> = sandboxes.iter().map(|of| of.address.as_str()).collect();
        let script = format!("for ip in {}; do {CALL}; done", addresses.join(" "));
        let said = self.lab.on_node(OTHER, &["bash", "-c", &script])?;
        let heard: BTreeMap<&str, &str> =
            said.lines().filter_map(|line| line.split_once(' ')).collect();
        let wrong: Vec<String> = sandboxes
            .iter()
            .filter(|of| heard.get(of.address.as_str()) != Some(&of.name.as_str()))
            .map(|of| format!("{} at {}: {:?}", of.name, of.address, heard.get(&*of.address)))
            .collect();
        if !wrong.is_empty() {
            bail!("{} of {} did not answer: {wrong:?}", wrong.len(), sandboxes.len());
        }
        Ok(())
    }

    /// Waits until nothing of any sandbox is left: in the runtime, in its cache of results, in the
    /// daemon's book, in the kernel, as tombstone.
    ///
    /// # Errors
    /// Says what is.
    pub fn holds_nothing(&self, cri: &Cri) -> Result<()> {
        wait_for("nothing to be left of the sandboxes", PATIENCE, || {
            let sandboxes = cri.list()?;
            ensure!(sandboxes.is_empty(), "sandboxes: {sandboxes:?}");
            let namespaces = self.containerd.network_namespaces()?;
            ensure!(namespaces.is_empty(), "network namespaces: {namespaces:?}");
            let held = self.lab.metric(NODE, "awscni_assigned_ip_addresses", &[])?;
            ensure!(held == Some(0.0), "addresses in the daemon's book: {held:?}");
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
/// Where Debian's containernetworking-plugins has it.
const LOOPBACK: &str = "/usr/lib/cni/loopback";

/// What may not be there any more, and how to look for it.
const LEFTOVERS: [(&str, &str); 4] = [
    ("rules", "ip rule | grep -E '^(512|1536):' || true"),
    ("host links", "ip -o link | grep -oE ' eni[0-9a-f]{11}@' || true"),
    ("cached results", "find /var/lib/cni -type f"),
    ("tombstones", "find /var/lib/ferrule -path '*tombstones/*' -type f"),
];

/// Refused is who does not listen yet: a runtime does not wait for that. Nothing else is excused.
const CALL: &str = r#"for n in {1..300}; do
    said=$(LC_ALL=C timeout 10 bash -c "exec 3<> /dev/tcp/$ip/8080; cat <&3" 2>&1)
    case $said in *refused*) sleep 0.1;; *) break;; esac
done
echo "$ip ${said//$'\n'/ }""#;

const PATIENCE: Duration = Duration::from_secs(120);
