//! Features of the kernel, from its configuration and its module files.

use cli_doctor::Feature;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The options that the checks need, with the module that can provide each.
const OPTIONS: [(&str, Option<&str>); 6] = [
    ("VETH", Some("veth")),
    ("IP_MULTIPLE_TABLES", None),
    ("NF_CONNTRACK", Some("nf_conntrack")),
    ("NF_NAT", Some("nf_nat")),
    ("NF_TABLES", Some("nf_tables")),
    ("VLAN_8021Q", Some("8021q")),
];

pub(super) fn features(root: &Path, proc: &Path, sys: &Path) -> BTreeMap<String, Feature> {
    let release = fs::read_to_string(proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let release = release.trim();
    let config = config(root, proc, release);
    let modules = ["lib/modules", "usr/lib/modules"].map(|at| root.join(at).join(release));
    let state = |option: &str, module: Option<&str>| {
        let loaded = module.is_some_and(|module| sys.join("module").join(module).exists());
        let setting = config.as_deref().map(|config| configured(config, option));
        match (loaded, setting) {
            (true, _) | (_, Some(Some('y'))) => Feature::Present,
            (_, Some(Some(_))) => match module.and_then(|module| on_disk(&modules, module)) {
                Some(false) => Feature::Absent,
                Some(true) => Feature::Present,
                // The option can be a module, and the list of modules is unknown.
                None => Feature::Unknown,
            },
            (_, Some(None)) => Feature::Absent,
            (false, None) => match module.and_then(|module| on_disk(&modules, module)) {
                Some(true) => Feature::Present,
                Some(false) => Feature::Absent,
                None => Feature::Unknown,
            },
        }
    };
    OPTIONS.into_iter().map(|(name, module)| (name.to_owned(), state(name, module))).collect()
}

/// Returns the kernel's configuration from its file or from `/proc/config.gz`.
fn config(root: &Path, proc: &Path, release: &str) -> Option<String> {
    let beside = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    if let Some(text) = beside.iter().find_map(|at| fs::read_to_string(root.join(at)).ok()) {
        return Some(text);
    }
    let packed = proc.join("config.gz");
    if !packed.exists() {
        return None;
    }
    let zcat = Command::new("gzip").arg("-dc").arg(packed).stdin(Stdio::null()).output().ok()?;
    zcat.status.success().then(|| String::from_utf8_lossy(&zcat.stdout).into_owned())
}

/// Returns `y` or `m`.
fn configured(config: &str, option: &str) -> Option<char> {
    let line = |line: &str| {
        line.strip_prefix("CONFIG_")?.strip_prefix(option)?.strip_prefix('=')?.chars().next()
    };
    config.lines().find_map(line).filter(|value| matches!(value, 'y' | 'm'))
}

/// Returns true if the module is built in or a file of this kernel; `None` without a list of modules.
fn on_disk(folders: &[PathBuf], module: &str) -> Option<bool> {
    let lists: Vec<String> = folders
        .iter()
        .flat_map(|folder| [folder.join("modules.dep"), folder.join("modules.builtin")])
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    if lists.is_empty() {
        return None;
    }
    let file = format!("/{module}.ko");
    let names = |line: &str| line.split(':').next().is_some_and(|path| path.contains(&file));
    Some(lists.iter().any(|list| list.lines().any(names)))
}

#[cfg(test)]
mod tests;
