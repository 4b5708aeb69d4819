//! What can go wrong, one variant per thing attempted.

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
        /// What was attempted, such as `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A mount or unmount.
    #[error("{action} {path}")]
    Mount {
        /// What was attempted, such as `bind a folder on`.
        action: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Creating, pinning or entering a namespace.
    #[error("{action} the namespace {name}")]
    Namespace {
        /// What was attempted, such as `enter`.
        action: &'static str,
        /// Which one.
        name: String,
        /// The cause.
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
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A tool that refused.
    #[error("{tool} refused to {action}: {stderr}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// What it was to do.
        action: String,
        /// What it wrote.
        stderr: String,
    },
    /// Output of a tool or a state file that is not what it should be.
    #[error("read {what}")]
    Parse {
        /// Whose text.
        what: String,
        /// The cause.
        #[source]
        cause: serde_json::Error,
    },
    /// A socket operation in a namespace.
    #[error("{action} in {place}")]
    Socket {
        /// What was attempted.
        action: &'static str,
        /// The namespace.
        place: String,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// A wish that contradicts itself.
    #[error("the wanted state is inconsistent: {0}")]
    Inconsistent(String),
    /// No such node, or it does not run.
    #[error("there is no node {0}, or it does not run")]
    NoNode(String),
    /// No such pod.
    #[error("node {node} has no pod namespace {pod}")]
    NoPod {
        /// The node.
        node: String,
        /// The pod's namespace.
        pod: String,
    },
    /// A pod's namespace that exists already.
    #[error("node {node} has a pod namespace {pod} already")]
    PodExists {
        /// The node.
        node: String,
        /// The pod's namespace.
        pod: String,
    },
    /// Processes that outlived SIGKILL.
    #[error("processes {0:?} did not end")]
    Survivors(Vec<i32>),
}
