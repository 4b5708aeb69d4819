//! The cluster that a command reads.

use clap::Args;
use std::path::PathBuf;

/// Which cluster is asked, if no files are named.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KubeTarget {
    /// The kubeconfig, if it is not where kubectl looks for it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context, if it is not the current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl KubeTarget {
    /// Somebody has said which.
    pub(crate) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}
