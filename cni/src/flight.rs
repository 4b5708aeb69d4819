//! ADDs in progress on this node, from the process list.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// The sandboxes of other calls of this program with the variables of an ADD. Used only if the daemon, which knows them, does
/// not answer.
///
/// Each pod chooses the name and the environment of its processes. No pod has the mount namespace of the runtime's calls.
pub(crate) fn sandboxes() -> BTreeSet<String> {
    let own = Path::new("/proc/self");
    let (Some(program), Ok(processes)) = (Program::of(own), fs::read_dir("/proc")) else {
        return BTreeSet::new();
    };
    let numbered = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let processes = processes.flatten().filter(|process| numbered(&process.file_name()));
    let processes = processes.map(|process| process.path());
    let calls = processes.filter(|process| Program::of(process).as_ref() == Some(&program));
    calls.filter_map(|process| added_to(&process)).collect()
}

/// The identity of a process. An upgrade replaces the program's file during an ADD, so the file is no part of it.
#[derive(PartialEq, Eq)]
struct Program {
    name: Vec<u8>,
    mounts: PathBuf,
}

impl Program {
    /// `None` for a process that has just exited.
    fn of(process: &Path) -> Option<Self> {
        let name = fs::read(process.join("comm")).ok()?;
        Some(Self { name, mounts: fs::read_link(process.join("ns/mnt")).ok()? })
    }
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
