//! Taking a lab down from its state directory alone.

use crate::FabricError;
use std::path::Path;

/// What was found and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Processes ended.
    pub processes: usize,
    /// Mounts taken away.
    pub mounts: usize,
}

pub(crate) fn remove(state_dir: &Path) -> Result<Removed, FabricError> {
    todo!()
}
