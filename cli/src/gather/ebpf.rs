//! Needs of the policy backend `ebpf`.

use super::chain;
use cli_doctor::{AgentMemory, Ebpf, EbpfAgent, Observed};
use config_settings::{Connections, Settings};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use serde_json::Value;
use std::{
    fs, io,
    path::{Component, Path},
};

/// `pins` is the folder on the node, whose files are below `root` and whose sysfs is mounted at `sys`.
pub(super) fn observe(root: &Path, proc: &Path, sys: &Path, pins: &Path) -> Ebpf {
    let release = fs::read_to_string(proc.join("sys/kernel/osrelease"))
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("cannot read the kernel's release: {error}"));
    Ebpf {
        release,
        pins: pins.display().to_string(),
        has_bpffs: has_bpffs(&pins.strip_prefix("/sys").map_or(pins.into(), |at| sys.join(at))),
        agents: agents(proc, sys),
        bandwidth: with_bandwidth(&root.join("etc/cni/net.d")),
    }
}

/// The agent creates the folder, so the nearest folder that exists counts.
fn has_bpffs(pins: &Path) -> Observed<bool> {
    let folder = pins.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let shown = folder.display();
    let system = statfs(folder);
    let system = system.map_err(|error| format!("cannot read the file system of {shown}: {error}"));
    system.map(|system| system.filesystem_type() == BPF_FS_MAGIC)
}

/// Returns the names of the configurations that chain the plugin `bandwidth` after `ferrule-cni`.
fn with_bandwidth(folder: &Path) -> Observed<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| format!("cannot list {}: {error}", folder.display()))?,
    };
    let mut names = Vec::new();
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "conflist") {
            continue;
        }
        // The runtime ignores a file that is not JSON.
        let text = fs::read_to_string(&path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let kinds = list["plugins"].as_array().into_iter().flatten();
        let kinds: Vec<&str> = kinds.filter_map(|plugin| plugin["type"].as_str()).collect();
        if kinds.contains(&"ferrule-cni") && kinds.contains(&"bandwidth") {
            names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn agents(proc: &Path, sys: &Path) -> Observed<Vec<EbpfAgent>> {
    let entries = fs::read_dir(proc);
    let entries = entries.map_err(|error| format!("cannot list {}: {error}", proc.display()))?;
    // A process that exits meanwhile has no files.
    let processes = entries.filter_map(Result::ok).map(|entry| entry.path());
    let agent = |process: &Path| {
        let capabilities = capabilities(process)?;
        Some(EbpfAgent { capabilities, memory: memory(process, sys) })
    };
    Ok(processes.filter_map(|process| agent(&process)).collect())
}

/// Returns the effective capabilities of a process. `None` if it is not `ferrule-agent`.
fn capabilities(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("Name:").filter(|name| *name == "ferrule-agent")?;
    u64::from_str_radix(field("CapEff:")?, 16).ok()
}

fn memory(process: &Path, sys: &Path) -> Observed<AgentMemory> {
    let limit = limit(process, &sys.join("fs/cgroup"))?;
    let path = process.join("environ");
    let environment = fs::read(&path);
    let environment = environment
        .map_err(|error| format!("cannot read {}: {error}; run as root", path.display()))?;
    let environment = String::from_utf8_lossy(&environment);
    let pairs = environment.split('\0').filter_map(|pair| pair.split_once('='));
    let settings = Settings::resolve(pairs);
    let (settings, _) =
        settings.map_err(|error| chain("cannot resolve the settings of ferrule-agent", &error))?;
    let maps = settings.agent.connections.map_memory;
    Ok(AgentMemory { limit, maps, others: Connections::AGENT_MEMORY })
}

/// Returns the lowest memory limit of the control group of version 2 and of those above it.
fn limit(process: &Path, groups: &Path) -> Observed<Option<u64>> {
    let path = process.join("cgroup");
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}; run as root", path.display()))?;
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else {
        // The agent reads limits of version 2 only.
        return Ok(None);
    };
    if Path::new(own).components().any(|part| part == Component::ParentDir) {
        return Err(format!(
            "cannot read the control group {own}: it is outside of this namespace; run on the node"
        ));
    }
    let folder = groups.join(own);
    let above = folder.ancestors().take_while(|folder| folder.starts_with(groups));
    let limits = above.filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok());
    Ok(limits.filter_map(|limit| limit.trim().parse().ok()).min())
}

#[cfg(test)]
mod tests;
