//! What can stand in an installer's way.

use install_plan::{Op, Refusal};
use std::{io, path::PathBuf};

/// Why an installer stopped. What it had done by then stays done; run again, it goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A folder is not there. It is not made: in a container it would be one of the container's.
    #[error(
        "{path} is not a folder: make it on the node, mount it into the container, and let \
         {setting} name it as the container has it"
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
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// What is there cannot be read.
    #[error("read {path}")]
    Unread {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Somebody else works on the folder and does not end.
    #[error(
        "another process holds the lock of {path} for long: see which one by `lslocks` on the node, end it, and run \
         this again"
    )]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The state of a node whose network is ours is not there.
    #[error(
        "{path} is not there, though {conflist} is Ferrule's: whose pods run is told there; mount it, or let {setting} \
         name it"
    )]
    NoState {
        /// The folder.
        path: PathBuf,
        /// The network's configuration.
        conflist: PathBuf,
        /// The setting that names the folder.
        setting: &'static str,
    },
    /// The plan is to do nothing.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A step that the disk refused.
    #[error("{op} in {folder}; nothing is half done, so run it again once that is mended")]
    Step {
        /// The step.
        op: Op,
        /// Where.
        folder: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}
