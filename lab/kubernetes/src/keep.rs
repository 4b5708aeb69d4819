//! Clusters that outlive the command that started them.

use crate::{Cluster, Wanted, started};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Starts a cluster that keeps its state in `folder` and stays.
///
/// # Errors
/// As [`Cluster::start`]; [`down`] ends what was started before.
pub fn up(folder: &Path, wanted: &Wanted) -> Result<()> {
    Cluster::start_to_stay(folder, wanted).map(drop)
}

/// Ends the cluster of this folder; the components that ran.
pub fn down(folder: &Path) -> Vec<&'static str> {
    started::stop_what_stayed(folder)
}

/// The components of this folder that run.
pub fn what_runs(folder: &Path) -> Vec<&'static str> {
    started::what_runs(folder)
}

/// The kubeconfig of one who may do everything.
pub fn kubeconfig(folder: &Path) -> PathBuf {
    folder.join("access/admin.kubeconfig")
}

/// Removes the files of a cluster that has ended.
///
/// # Errors
/// When they cannot be removed.
pub fn forget(folder: &Path) -> Result<()> {
    started::forget(folder)
}
