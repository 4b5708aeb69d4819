//! The containerd under test: Debian's or a current one.

use anyhow::Result;
use std::{ffi::OsString, path::PathBuf};

/// A containerd with its client and its shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Debian's package. Its CNI library refuses results of version 1.1.0.
    Debian,
    /// The current version that the tests support, in this folder.
    Built(PathBuf),
}

impl Program {
    /// The current version, built unless it is in the cache.
    ///
    /// # Errors
    /// If Go is not installed, or the build fails.
    pub fn built() -> Result<Self> {
        Ok(Self::Built(lab_programs::Program::containerd()?.path().to_owned()))
    }

    /// The search path with its programs first: containerd finds its shim by it.
    pub(crate) fn search_path(&self) -> OsString {
        let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        match self {
            Self::Debian => usual.into(),
            Self::Built(folder) => {
                let mut path = folder.clone().into_os_string();
                path.push(":");
                path.push(usual);
                path
            }
        }
    }
}
