//! Errors of an installer.

use install_plan::{Op, Refusal};
use std::{io, path::PathBuf};

/// The error that stopped an installer.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A folder does not exist. The installer does not create it: in a container it would be a folder of the
    /// container.
    #[error(
        "{path} is not a folder: create it on the node, mount it into the container, and \
         set {setting} to its path in the container"
    )]
    NoFolder {
        /// The folder.
        path: PathBuf,
        /// The setting that names it.
        setting: &'static str,
    },
    /// A folder may not be written to.
    #[error(
        "{path} cannot be written to: mount it writable, and run as root; {setting} names the folder"
    )]
    NotWritable {
        /// The folder.
        path: PathBuf,
        /// The setting that names it.
        setting: &'static str,
        #[source]
        cause: io::Error,
    },
    /// A file or folder cannot be read.
    #[error("cannot read {path}")]
    Unread {
        /// The file or folder.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// Another installer, or `ferrule migrate`, keeps the lock.
    #[error(
        "cannot lock {path}: another installer or `ferrule migrate` holds the lock; wait until it has stopped, or find \
         it with `lslocks` on the node and stop it, and run this again"
    )]
    Locked {
        /// The file of the lock.
        path: PathBuf,
    },
    /// The file of the lock cannot be opened or locked.
    #[error("cannot lock {path}; run this as root on a folder that can be written to")]
    NoLock {
        /// The file of the lock.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The file of the lock cannot be removed after the rest.
    #[error("cannot remove {path}; all other files are removed: fix the cause and run this again")]
    LockLeft {
        /// The file of the lock.
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The state folder of a node with our network does not exist.
    #[error(
        "{path} is missing although {conflist} is Ferrule's: it shows whose pods run; mount it, or set {setting} \
         to its path"
    )]
    NoState {
        /// The folder.
        path: PathBuf,
        /// The network's configuration.
        conflist: PathBuf,
        /// The setting that names the folder.
        setting: &'static str,
    },
    /// The planner refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A step failed.
    #[error("cannot {op} in {folder}; no file is incomplete: fix the cause and run this again")]
    Step {
        /// The step.
        op: Op,
        folder: PathBuf,
        #[source]
        cause: io::Error,
    },
}
