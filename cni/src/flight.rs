//! ADDs in progress on this node, from the process list.

use std::{collections::BTreeSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt as _, path::Path};

/// The sandboxes of processes with the variables of an ADD. Used only if the daemon, which knows them, does not answer.
pub(crate) fn sandboxes() -> BTreeSet<String> {
    let Ok(processes) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let numbered = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let processes = processes.flatten().filter(|process| numbered(&process.file_name()));
    processes.filter_map(|process| added_to(&process.path())).collect()
}

fn added_to(process: &Path) -> Option<String> {
    // A process that has just exited has no variables.
    let environment = fs::read(process.join("environ")).ok()?;
    let variable = |name: &str| {
        let mut all = environment.split(|byte| *byte == 0);
        all.find_map(|variable| variable.strip_prefix(name.as_bytes()))
    };
    if variable("CNI_COMMAND=")? != b"ADD" {
        return None;
    }
    String::from_utf8(variable("CNI_CONTAINERID=")?.to_vec()).ok()
}
