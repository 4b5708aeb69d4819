//! The cluster that a command reads.

use clap::Args;
use std::path::PathBuf;

/// The cluster to read if no files are named.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KubeTarget {
    /// The kubeconfig, if kubectl would not find it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if not the current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl KubeTarget {
    /// Returns true if the user named a cluster.
    pub(crate) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}
