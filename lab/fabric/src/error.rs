//! Errors of the fabric, one variant for each attempted action.

use std::{io, path::PathBuf};

/// An attempt of the fabric that failed.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A state directory that cannot serve.
    #[error("{path} cannot hold a lab: {why}")]
    StateDir {
        /// The directory.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file operation.
    #[error("{action} {path}")]
    File {
        /// The attempted action, such as `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A mount or unmount.
    #[error("{action} {path}")]
    Mount {
        /// The attempted action, such as `bind a folder on`.
        action: &'static str,
        /// The mount point.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A cgroup with processes that the lab does not end.
    #[error(
        "cannot remove cgroup {path}: processes {pids:?} are in it; end them and repeat the command"
    )]
    CgroupInUse { path: PathBuf, pids: Vec<i32> },
    /// Creating, pinning or entering a namespace.
    #[error("{action} the namespace {name}")]
    Namespace {
        /// The attempted action, such as `enter`.
        action: &'static str,
        name: String,
        #[source]
        cause: io::Error,
    },
    /// A tool that could not be started.
    #[error("run {tool}; is the package {package} installed?")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
        #[source]
        cause: io::Error,
    },
    /// A tool that refused.
    #[error("{tool} refused to {action}: {stderr}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// The task of the failed tool.
        action: String,
        stderr: String,
    },
    /// Output of a tool or a state file that is not what it should be.
    #[error("read {what}")]
    Parse {
        /// Origin of the text.
        what: String,
        #[source]
        cause: serde_json::Error,
    },
    /// A socket operation in a namespace.
    #[error("{action} in {place}")]
    Socket {
        /// The attempted action.
        action: &'static str,
        /// The namespace.
        place: String,
        #[source]
        cause: io::Error,
    },
    /// A desired state that contradicts itself.
    #[error("the wanted state is inconsistent: {0}")]
    Inconsistent(String),
    /// No such node, or it does not run.
    #[error("cannot find node {0}, or it is not running")]
    NoNode(String),
    #[error("node {node} has no pod namespace {pod}")]
    NoPod {
        node: String,
        /// The pod's namespace.
        pod: String,
    },
    /// A pod's namespace that exists already.
    #[error("node {node} has a pod namespace {pod} already")]
    PodExists {
        node: String,
        /// The pod's namespace.
        pod: String,
    },
    /// Processes that outlived SIGKILL.
    #[error("processes {0:?} did not end")]
    Survivors(Vec<i32>),
}
