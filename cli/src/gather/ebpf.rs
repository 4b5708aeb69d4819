//! Needs of the policy backend `ebpf`.

use cli_doctor::{Ebpf, Observed};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::{fs, path::Path};

/// `pins` is the folder on the node, whose sysfs is mounted at `sys`.
pub(super) fn observe(proc: &Path, sys: &Path, pins: &Path) -> Ebpf {
    let release = fs::read_to_string(proc.join("sys/kernel/osrelease"))
        .map(|text| text.trim().to_owned())
        .map_err(|error| format!("cannot read the kernel's release: {error}"));
    Ebpf {
        release,
        pins: pins.display().to_string(),
        has_bpffs: has_bpffs(&pins.strip_prefix("/sys").map_or(pins.into(), |at| sys.join(at))),
        agents: agents(proc),
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

fn agents(proc: &Path) -> Observed<Vec<u64>> {
    let entries = fs::read_dir(proc);
    let entries = entries.map_err(|error| format!("cannot list {}: {error}", proc.display()))?;
    // A process that exits meanwhile has no files.
    let processes = entries.filter_map(Result::ok).map(|entry| entry.path());
    Ok(processes.filter_map(|process| capabilities(&process)).collect())
}

/// Returns the effective capabilities of a process. `None` if it is not `ferrule-agent`.
fn capabilities(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    field("Name:").filter(|name| *name == "ferrule-agent")?;
    u64::from_str_radix(field("CapEff:")?, 16).ok()
}

#[cfg(test)]
mod tests;
