//! The step between the caller and a program in a node.
//!
//! The calling binary runs itself once more. It enters the namespaces while it has a single thread, and then
//! becomes the program.

use crate::{
    FabricError, cgroup,
    namespace::{NamespaceSet, bind, bind_file, do_mount, forget_namespaces, make_private},
};
use caps::{CapSet, Capability, CapsHashSet};
use nix::{
    mount::MsFlags,
    sched::{CloneFlags, unshare},
};
use serde::{Deserialize, Serialize};
use std::{
    env,
    ffi::{OsStr, OsString},
    fmt, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Writable `/proc/sys/net` in the daemon's container.
pub const HOST_PROC_SYS_NET: &str = "/host/proc/sys/net";

/// The first argument of a binary that is to pin a cgroup namespace.
const PIN_ARGUMENT: &str = "__pin-cgroup";

/// The first argument of a binary that is to enter a node.
pub const ENTER_ARGUMENT: &str = "__enter";

/// Call this first in `main`. A process that was started to enter a node becomes the program, or returns the exit
/// code of its failure (125). The result is `None` for any other process, and `main` continues.
pub fn dispatch() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    let first = args.next()?;
    let done = if first == ENTER_ARGUMENT {
        become_program(args).map(|never| match never {})
    } else if first == PIN_ARGUMENT {
        hold_cgroup_namespace(args)
    } else {
        return None;
    };
    let Err(failure) = done else { return Some(ExitCode::SUCCESS) };
    let binary = env::current_exe().unwrap_or_default();
    let name = binary.file_name().unwrap_or(OsStr::new(ENTER_ARGUMENT));
    eprintln!("{}: {failure}", name.display());
    Some(ExitCode::from(failure.exit_code()))
}

/// The running program, even if a newer build has replaced its file.
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// Namespaces to enter and the program to run there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnterSpec {
    /// The namespaces.
    pub(crate) place: NamespaceSet,
    /// True for the confinement of the daemon's container.
    pub(crate) contained: bool,
    /// The node's cgroup, as the caller sees it. `None` without cgroup v2, and for a program outside of nodes.
    pub(crate) cgroup: Option<PathBuf>,
}

/// The command that enters and becomes `program`; arguments added to it are the program's.
pub(crate) fn enter_command(binary: &Path, spec: &EnterSpec, program: &OsStr) -> Command {
    let spec = serde_json::to_string(spec).expect("paths of a lab are UTF-8");
    let mut command = Command::new(binary);
    command.arg(ENTER_ARGUMENT).arg(spec).arg(absolute(program));
    command
}

/// A program given by a relative path is the caller's, whose folder is left on entering.
fn absolute(program: &OsStr) -> OsString {
    let path = Path::new(program);
    if path.components().count() < 2 {
        return program.to_owned();
    }
    std::path::absolute(path).map_or_else(|_| program.to_owned(), PathBuf::into_os_string)
}

/// Pins a cgroup namespace whose root is the cgroup, which has no processes before and after. A process cannot change the
/// cgroup of one of its threads alone, so a child does it.
pub(crate) fn pin_cgroup_namespace(
    node: &str,
    cgroup: &Path,
    pin: &Path,
) -> Result<(), FabricError> {
    let failed = |cause| FabricError::Namespace {
        action: "create",
        name: format!("cgroup of node {node}"),
        cause,
    };
    let mut command = Command::new(OWN_BINARY);
    let output = command.arg(PIN_ARGUMENT).args([cgroup, pin]).output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

fn hold_cgroup_namespace(mut args: impl Iterator<Item = OsString>) -> Result<(), Failure> {
    let (Some(cgroup), Some(pin)) = (args.next(), args.next()) else {
        return Err(Failure::new("a cgroup and a pin are needed"));
    };
    cgroup::join_itself(Path::new(&cgroup))?;
    let created = unshare(CloneFlags::CLONE_NEWCGROUP);
    created.map_err(|cause| Failure::new(format!("create a cgroup namespace: {cause}")))?;
    Ok(bind_file(Path::new("/proc/self/ns/cgroup"), Path::new(&pin))?)
}

enum Never {}

struct Failure {
    what: String,
    exit_code: u8,
}

impl Failure {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), exit_code: 125 }
    }

    fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<FabricError> for Failure {
    fn from(error: FabricError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Self::new(format!("{error}{}", cause.unwrap_or_default()))
    }
}

fn become_program(mut args: impl Iterator<Item = OsString>) -> Result<Never, Failure> {
    let spec = args.next().and_then(|spec| spec.into_string().ok());
    let spec: EnterSpec = spec
        .and_then(|spec| serde_json::from_str(&spec).ok())
        .ok_or_else(|| Failure::new("the first argument does not say what to enter"))?;
    let program = args.next().ok_or_else(|| Failure::new("no program is named"))?;
    // Before the node's mounts hide the path.
    spec.cgroup.as_deref().map_or(Ok(()), cgroup::join)?;
    spec.place.enter()?;
    if spec.contained {
        contain_mounts()?;
        contain_capabilities().map_err(|e| Failure::new(format!("drop capabilities: {e}")))?;
    }
    env::set_current_dir("/").map_err(|e| Failure::new(format!("go to /: {e}")))?;
    let error = Command::new(&program).args(args).exec();
    let exit_code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    Err(Failure { what: format!("run {}: {error}", Path::new(&program).display()), exit_code })
}

/// Mounts of a container: `/proc/sys` is read-only, except the part that the pod's manifest mounts at a separate
/// path.
fn contain_mounts() -> Result<(), FabricError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|cause| FabricError::Namespace {
        action: "create",
        name: "container".to_owned(),
        cause: cause.into(),
    })?;
    make_private()?;
    forget_namespaces()?;
    bind(Path::new("/proc/sys/net"), Path::new(HOST_PROC_SYS_NET), false)?;
    let sys = Path::new("/proc/sys");
    // Deep, to keep the node's boot id, which is bound below.
    bind(sys, sys, true)?;
    for path in [sys, Path::new("/proc/sys/kernel/random/boot_id")] {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        do_mount(None, path, None, flags, None, "make read-only")?;
    }
    Ok(())
}

/// Root's exec raises what the bounding set holds, so that set alone decides.
fn contain_capabilities() -> Result<(), caps::errors::CapsError> {
    let kept = CapsHashSet::from([Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW]);
    let mut dropped: Vec<Capability> =
        caps::read(None, CapSet::Bounding)?.difference(&kept).copied().collect();
    dropped.sort_by_key(|capability| capability.index());
    for capability in dropped {
        caps::drop(None, CapSet::Bounding, capability)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)
}
