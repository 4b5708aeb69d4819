//! Sysctls of a network namespace.

use crate::FabricError;
use std::{fs, path::Path};

/// Sets a sysctl of the calling thread's network namespace.
pub(crate) fn write_sysctl(key: &str, value: &str) -> Result<(), FabricError> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).map_err(|cause| FabricError::File { action: "write", path, cause })
}
