//! Which containerd: Debian's, or a current one.

use anyhow::Result;
use std::{ffi::OsString, path::PathBuf};

/// A containerd with its client and its shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Debian's package; its CNI library refuses results of 1.1.0.
    Debian,
    /// The current one that the tests are written for, in this folder.
    Built(PathBuf),
}

impl Program {
    /// The current version, built now if it is not in the cache.
    ///
    /// # Errors
    /// When there is no Go, or the build fails.
    pub fn built() -> Result<Self> {
        Ok(Self::Built(lab_programs::Program::containerd()?.path().to_owned()))
    }

    /// The search path on which its programs come first: containerd finds its shim by it.
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
