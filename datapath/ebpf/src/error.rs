//! The errors of programs and maps.

use aya::{
    EbpfError,
    maps::MapError,
    pin::PinError,
    programs::{ProgramError, links::LinkError},
};
use datapath_abi::Full;
use datapath_sockets::DiagError;
use routing_netlink::SocketError;
use std::path::PathBuf;

/// The programs could not be loaded, or the kernel refused a change.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "cannot load the eBPF programs: {0}; the node needs kernel 6.1 or later, CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Object(#[from] EbpfError),
    #[error(
        "cannot load the eBPF programs: kernel {release} is older than 6.1; use kernel 6.1 or later, or set policy.backend=none in the chart's values (FERRULE_AGENT_BACKEND=none)"
    )]
    Kernel { release: String },
    #[error(
        "cannot read the eBPF programs {}: {cause}; set FERRULE_AGENT_BPF_OBJECT to the file of this version", file.display()
    )]
    File { file: PathBuf, cause: std::io::Error },
    #[error("cannot load the program {name}: {cause}")]
    Program { name: &'static str, cause: ProgramError },
    #[error("cannot attach {program} to {link}: {cause}; the link and CAP_NET_ADMIN are needed")]
    Attach { program: &'static str, link: String, cause: ProgramError },
    #[error(
        "cannot attach to {link}: its queue `ingress` excludes `clsact`; remove the queue, or do not limit the pod's egress bandwidth"
    )]
    Queue { link: String },
    #[error(
        "cannot attach beside the plugin `bandwidth`: kernel {release} has no TCX; use kernel 6.6 or later, or set ENABLE_BANDWIDTH_PLUGIN=false"
    )]
    NoTcx { release: String },
    #[error("cannot use the TCX link of {link}: {cause}; it is attached again")]
    Link { link: String, cause: LinkError },
    #[error(
        "cannot attach to {link} before the {other} of another owner: {cause}; remove the filters of priority 1 on this link, or give them a later one"
    )]
    Behind { link: String, other: String, cause: Box<ProgramError> },
    #[error("cannot pin the program {name}: {cause}; the pins need a bpffs")]
    Pin { name: &'static str, cause: PinError },
    #[error(
        "cannot serve Services to processes of the node: {} has no cgroup v2; mount cgroup v2 there, or set FERRULE_AGENT_CGROUP to its root", top.display()
    )]
    NoCgroup { top: PathBuf },
    #[error(
        "cannot read the cookie of the network namespace: {cause}; the node needs kernel 6.1 or later"
    )]
    Namespace { cause: nix::Error },
    #[error(transparent)]
    Sockets(#[from] DiagError),
    #[error("cannot list the TCX programs of {link}: {cause}; run as root")]
    Query { link: String, cause: ProgramError },
    #[error("cannot remove {}: {cause}; run as root", path.display())]
    Unpin { path: PathBuf, cause: std::io::Error },
    #[error(
        "cannot open the pods: {left} filters, TCX links or folders of pins exist again; stop ferrule-agent and run this again"
    )]
    Reattached { left: usize },
    #[error("cannot read or remove filters: {0}")]
    Filters(#[from] SocketError),
    #[error("the object file has no {0}; use the file of this version")]
    Absent(&'static str),
    #[error(
        "cannot use TCX or enlarge a map: the programs are not pinned; start the agent with FERRULE_AGENT_BPF_PINS"
    )]
    NoPins,
    #[error("cannot use the folder {} for maps: {cause}; mount a bpffs there", folder.display())]
    Folder { folder: PathBuf, cause: std::io::Error },
    #[error(
        "cannot use the pinned map {name}: its layout (key, value, rows) is {found:?}; remove the folder of the pins"
    )]
    Layout { name: &'static str, found: (u32, u32, u32) },
    #[error("cannot access the map {name}: {cause}")]
    Map { name: &'static str, cause: MapError },
    #[error(transparent)]
    Full(#[from] Full),
    #[error(
        "cannot enlarge the map {map}: all maps would need {needed} MiB, and {budget} MiB are allowed; raise FERRULE_AGENT_MAP_MEMORY and the memory limit of the agent, or use fewer policies on this node"
    )]
    Memory { map: &'static str, needed: u64, budget: u64 },
    #[error(
        "cannot write the state: all maps would need {needed} MiB, and {budget} MiB are allowed; raise FERRULE_AGENT_MAP_MEMORY and the memory limit of the agent, or use fewer policies on this node"
    )]
    NoMemory { needed: u64, budget: u64 },
    /// For tests: the process ends here.
    #[error("the process was stopped")]
    Stopped,
}

impl LoadError {
    /// True if the programs are attached, and filters of another owner are before them.
    pub(crate) fn is_behind(&self) -> bool {
        matches!(self, Self::Behind { .. })
    }
}
