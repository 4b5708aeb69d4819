//! The rooms of the workspace and the direction of dependencies.
//!
//! Edges point strictly down: binaries → adapters → schemas → pure → model. A pure crate may use only the external crates
//! in an allow-list, because a deny-list cannot contain a future crate.

use crate::{circles, say};
use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use std::{collections::BTreeMap, process::ExitCode};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    Model,
    Pure,
    /// Objects of another system as types: derives, and no calls to that system.
    Schema,
    Adapter,
    /// Adapters composed behind a seam.
    Backend,
    Binary,
    /// Tests and the project's own commands: they may use everything.
    Workshop,
}

/// Every crate of the workspace and its room.
pub(crate) const ROOMS: &[(&str, Layer)] = &[
    ("config-model", Layer::Model),
    ("policy-objects", Layer::Model),
    ("service-objects", Layer::Model),
    ("view-node", Layer::Model),
    ("config-settings", Layer::Pure),
    ("config-iam", Layer::Pure),
    ("config-chart", Layer::Pure),
    ("config-metrics", Layer::Pure),
    ("ipamd-core", Layer::Pure),
    ("ipamd-node", Layer::Pure),
    ("routing-plan", Layer::Pure),
    ("view-cluster", Layer::Pure),
    ("view-text", Layer::Pure),
    ("cli-doctor", Layer::Pure),
    ("install-plan", Layer::Pure),
    ("cli-migrate", Layer::Pure),
    ("policy-core", Layer::Pure),
    ("service-core", Layer::Pure),
    ("service-abi", Layer::Pure),
    ("control-wire", Layer::Pure),
    ("control-hub", Layer::Pure),
    ("runtime-frame", Layer::Pure),
    ("view-policy", Layer::Pure),
    ("control-status", Layer::Pure),
    ("datapath-node", Layer::Pure),
    ("datapath-abi", Layer::Pure),
    ("datapath-plan", Layer::Pure),
    ("datapath-names", Layer::Pure),
    ("lab-cloud", Layer::Pure),
    ("config-crds", Layer::Schema),
    ("runtime-apiserver", Layer::Adapter),
    ("runtime-journal", Layer::Adapter),
    ("runtime-limiter", Layer::Adapter),
    ("runtime-lock", Layer::Adapter),
    ("runtime-process", Layer::Adapter),
    ("runtime-socket", Layer::Adapter),
    ("ipamd-cloud", Layer::Adapter),
    ("ipamd-kube", Layer::Adapter),
    ("ipamd-npa", Layer::Adapter),
    ("ipamd-rpc", Layer::Adapter),
    ("datapath-rpc", Layer::Adapter),
    ("datapath-backend", Layer::Adapter),
    ("control-rpc", Layer::Adapter),
    ("policy-kube", Layer::Adapter),
    ("routing-netlink", Layer::Adapter),
    ("routing-netfilter", Layer::Adapter),
    ("install-disk", Layer::Adapter),
    ("datapath-netlink", Layer::Adapter),
    ("datapath-conntrack", Layer::Adapter),
    ("datapath-sockets", Layer::Adapter),
    ("lab-fabric", Layer::Adapter),
    ("lab-kubernetes", Layer::Adapter),
    ("lab-programs", Layer::Adapter),
    ("datapath-ebpf", Layer::Backend),
    ("cni", Layer::Binary),
    ("cli", Layer::Binary),
    ("ipamd-daemon", Layer::Binary),
    ("control-controller", Layer::Binary),
    ("datapath-agent", Layer::Binary),
    ("lab-server", Layer::Binary),
    ("tests-support", Layer::Workshop),
    ("tests-eventually", Layer::Workshop),
    ("tests-netns", Layer::Workshop),
    ("tests-cluster", Layer::Workshop),
    ("tests-chart", Layer::Workshop),
    ("tests-conformance", Layer::Workshop),
    ("tests-cri", Layer::Workshop),
    ("tests-lab", Layer::Workshop),
    ("tests-bench", Layer::Workshop),
    ("tests-datapath", Layer::Workshop),
    ("tests-docs", Layer::Workshop),
    ("tests-sim", Layer::Workshop),
    ("tests-fuzz", Layer::Workshop),
    ("tests-metrics", Layer::Workshop),
    ("tests-policy", Layer::Workshop),
    ("tests-service", Layer::Workshop),
    ("tests-whole", Layer::Workshop),
    ("xtask", Layer::Workshop),
];

/// External crates for pure crates: data types and derives, without access to the system.
const PURE_MAY_USE: &[&str] = &[
    "anstyle",
    "bytes",
    // Lays out tables. Without its feature `tty` it does not read the terminal.
    "comfy-table",
    "crc32fast",
    // Parses DNS messages. The clock of its dependency `jiff` is not used.
    "domain",
    "foldhash",
    "hashbrown",
    "ipnet",
    "prost",
    // Maps that share their parts: a snapshot of a node costs what changed.
    "rpds",
    "smallvec",
    "serde",
    "serde_json",
    "sha1",
    "sha2",
    "thiserror",
];

/// Crates that may compile messages in the build script of a pure crate.
const BUILDS_MESSAGES: &[&str] = &["prost-build", "protox"];

/// A crate may depend on another of its layer if it describes that crate's results or needs its transport.
const STANDS_ON: &[(&str, &str)] = &[
    ("config-chart", "config-settings"),
    ("control-wire", "policy-core"),
    ("control-hub", "policy-core"),
    ("control-hub", "control-wire"),
    ("view-cluster", "view-text"),
    ("view-cluster", "service-core"),
    ("view-policy", "policy-core"),
    ("view-policy", "control-hub"),
    ("view-policy", "control-wire"),
    ("control-status", "policy-core"),
    ("datapath-node", "policy-core"),
    ("datapath-node", "control-wire"),
    ("datapath-node", "runtime-frame"),
    ("datapath-abi", "datapath-plan"),
    ("datapath-abi", "policy-core"),
    ("datapath-names", "datapath-plan"),
    ("datapath-names", "policy-core"),
    ("datapath-names", "control-wire"),
    ("datapath-plan", "policy-core"),
    ("datapath-plan", "control-wire"),
    ("service-abi", "service-core"),
    ("ipamd-core", "runtime-frame"),
    ("ipamd-node", "config-settings"),
    ("ipamd-node", "ipamd-core"),
    ("ipamd-node", "routing-plan"),
    ("ipamd-kube", "runtime-apiserver"),
    // Limits on connections.
    ("control-rpc", "runtime-limiter"),
    ("runtime-process", "runtime-limiter"),
    // Locks that end the process if they are poisoned.
    ("control-rpc", "runtime-lock"),
    ("ipamd-cloud", "runtime-lock"),
    ("ipamd-kube", "runtime-lock"),
    ("routing-netlink", "runtime-lock"),
    ("runtime-limiter", "runtime-lock"),
    ("runtime-process", "runtime-lock"),
    ("runtime-socket", "runtime-lock"),
    // gRPC over unix sockets.
    ("ipamd-npa", "runtime-socket"),
    ("ipamd-rpc", "runtime-socket"),
    ("datapath-rpc", "runtime-socket"),
    // Their requests to the kernel.
    ("datapath-conntrack", "datapath-netlink"),
    ("datapath-sockets", "datapath-netlink"),
    // Its nodes are the fabric's.
    ("lab-kubernetes", "lab-fabric"),
    ("lab-kubernetes", "lab-programs"),
];

/// Crates that must not be among the transitive dependencies of a crate, with the reason.
const NEVER_BELOW: &[(&str, &[&str], &str)] = &[(
    "cni",
    &["aws-config", "aws-sdk-ec2", "kube", "k8s-openapi"],
    "the plugin is executed for every pod and speaks to the daemon alone",
)];

pub(crate) fn run() -> Result<ExitCode> {
    let metadata = metadata()?;
    let mut faults = faults(&metadata);
    faults.extend(circles::faults(&metadata)?);
    for fault in &faults {
        say::fail(fault);
    }
    if faults.is_empty() {
        say::good(&format!(
            "{} crates, every edge points down, no new circle of files",
            ROOMS.len()
        ));
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

fn metadata() -> Result<Metadata> {
    MetadataCommand::new().other_options(["--locked".to_owned()]).exec().context("cargo metadata")
}

/// The names of the workspace's crates, by the id that cargo's messages carry.
///
/// # Errors
/// When cargo cannot read the workspace.
pub(crate) fn names_of_packages() -> Result<BTreeMap<PackageId, String>> {
    let metadata = metadata()?;
    let packages = metadata.workspace_packages().into_iter();
    Ok(packages.map(|package| (package.id.clone(), package.name.to_string())).collect())
}

fn room(name: &str) -> Option<Layer> {
    ROOMS.iter().find(|(krate, _)| *krate == name).map(|(_, layer)| *layer)
}

/// The names of the pure crates, including the model.
pub(crate) fn pure_crates() -> impl Iterator<Item = &'static str> {
    ROOMS.iter().filter(|(_, layer)| *layer <= Layer::Pure).map(|(name, _)| *name)
}

fn faults(metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(at) = room(name) else {
            faults.push(format!("{name} has no room: add it to ROOMS in xtask/src/layers.rs"));
            continue;
        };
        for dep in package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development) {
            // A compiler of messages is linked into no program.
            if dep.kind == DependencyKind::Build && BUILDS_MESSAGES.contains(&dep.name.as_str()) {
                continue;
            }
            faults.extend(edge_fault(name, at, &dep.name));
        }
        if !package.name.as_str().eq(&room_name(package.manifest_path.as_str(), metadata)) {
            faults.push(format!("{name}: a crate is named as its path, with / as -"));
        }
    }
    for (krate, banned, why) in NEVER_BELOW {
        for found in below(metadata, krate).iter().filter(|dep| banned.contains(&dep.as_str())) {
            faults.push(format!("{krate} must not have {found} in its tree: {why}"));
        }
    }
    faults
}

fn edge_fault(krate: &str, at: Layer, dep: &str) -> Option<String> {
    match room(dep) {
        _ if at == Layer::Workshop => None,
        Some(to) if to == at && STANDS_ON.contains(&(krate, dep)) => None,
        Some(to) if to >= at => {
            Some(format!("{krate} ({at:?}) must not use {dep} ({to:?}): edges point strictly down"))
        }
        None if at <= Layer::Pure && !PURE_MAY_USE.contains(&dep) => {
            Some(format!("{krate} is pure and must not use {dep}; see PURE_MAY_USE"))
        }
        Some(_) | None => None,
    }
}

fn room_name(manifest: &str, metadata: &Metadata) -> String {
    let root = metadata.workspace_root.as_str();
    manifest
        .trim_start_matches(root)
        .trim_start_matches('/')
        .trim_end_matches("/Cargo.toml")
        .replace('/', "-")
}

/// The names of all crates that `krate` links.
fn below(metadata: &Metadata, krate: &str) -> std::collections::BTreeSet<String> {
    let Some(resolve) = &metadata.resolve else { return Default::default() };
    let mut found = std::collections::BTreeSet::new();
    let mut queue: Vec<_> = metadata
        .packages
        .iter()
        .filter(|p| p.name.as_str() == krate)
        .map(|p| p.id.clone())
        .collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let Some(node) = resolve.nodes.iter().find(|node| node.id == id) else { continue };
        for dep in &node.deps {
            if dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal) {
                queue.push(dep.pkg.clone());
                found.insert(metadata[&dep.pkg].name.to_string());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_of_the_workspace_points_down() {
        let metadata = metadata().expect("cargo metadata of this workspace");
        assert_eq!(faults(&metadata), Vec::<String>::new());
    }

    #[test]
    fn an_edge_upwards_is_named() {
        let upward = edge_fault("routing-plan", Layer::Pure, "routing-netlink");
        assert!(upward.is_some_and(|text| text.contains("strictly down")));
        let sideways = edge_fault("ipamd-rpc", Layer::Adapter, "ipamd-cloud");
        assert!(sideways.is_some());
        assert!(edge_fault("control-hub", Layer::Pure, "control-wire").is_none());
        assert!(edge_fault("control-wire", Layer::Pure, "control-hub").is_some());
    }

    #[test]
    fn a_pure_crate_may_not_bring_in_a_runtime() {
        assert!(edge_fault("ipamd-core", Layer::Pure, "tokio").is_some());
        assert!(edge_fault("ipamd-core", Layer::Pure, "serde").is_none());
    }

    #[test]
    fn what_the_plugin_links_is_seen_through_other_crates() {
        let metadata = metadata().expect("cargo metadata of this workspace");
        // ipamd-rpc depends on tonic. If the walk did not reach it, the ban would have no effect.
        assert!(below(&metadata, "cni").contains("tonic"));
    }
}
