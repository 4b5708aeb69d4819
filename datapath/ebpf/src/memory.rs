//! The memory of pinned maps.

use crate::LoadError;
use aya::maps::{MapData, MapError};
use std::{
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
    path::Path,
};

/// The memory of the maps that are pinned in a folder, in bytes, as the kernel counts it.
///
/// # Errors
/// If the folder or a map cannot be read.
pub fn memory_of_maps(folder: &Path) -> Result<u64, LoadError> {
    let unusable = |cause| LoadError::Folder { folder: folder.to_owned(), cause };
    let unreadable = |cause: MapError| LoadError::Map { name: "pinned", cause };
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(unusable)? {
        let path = entry.map_err(unusable)?.path();
        // The pins of programs are in a folder of their own.
        if path.is_dir() {
            continue;
        }
        let map = MapData::from_pin(&path).map_err(unreadable)?;
        let number = map.fd().as_fd().as_raw_fd();
        let facts = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).map_err(unusable)?;
        let memory = facts.lines().find_map(|line| line.strip_prefix("memlock:"));
        bytes += memory.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(bytes)
}
