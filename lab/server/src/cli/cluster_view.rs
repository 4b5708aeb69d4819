//! The state of a cluster as the commands print it.

use crate::control::StatusView;
use serde::Serialize;
use std::path::PathBuf;

/// A lab, and its cluster if it has one.
#[derive(Serialize)]
pub(super) struct WithCluster {
    #[serde(flatten)]
    pub(super) status: StatusView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<ClusterView>,
}

/// Running parts of a cluster.
#[derive(Serialize)]
pub(super) struct ClusterView {
    pub(super) version: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) programs: Vec<ProgramView>,
}

#[derive(Serialize)]
pub(super) struct ProgramView {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    pub(super) pid: Option<i32>,
    pub(super) log: PathBuf,
}
