//! The step between the caller and a program in a node: the calling binary runs itself once more,
//! enters the namespaces while it has a single thread, and becomes the program.

use serde::{Deserialize, Serialize};
use std::{ffi::OsString, process::ExitCode};

/// Where the daemon's container finds a writable `/proc/sys/net`.
pub const HOST_PROC_SYS_NET: &str = "/host/proc/sys/net";

/// The first argument of a binary that is to enter a node.
pub const ENTER_ARGUMENT: &str = "__enter";

/// Call this first in `main`: when the process was started to enter a node, it becomes the program
/// (or returns the exit code of its failure, 125); otherwise `None`, and `main` goes on.
pub fn dispatch() -> Option<ExitCode> {
    todo!()
}

/// What to enter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnterSpec {}
