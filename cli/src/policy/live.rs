//! One reading of a cluster's objects.

use super::objects::Objects;
use crate::target::KubeTarget;
use anyhow::{Context as _, Result};
use policy_kube::{Cluster, KubeError, Resource};
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Lists the objects that policy uses.
///
/// # Errors
/// The API server cannot be reached or does not accept the credentials. A single kind that cannot be listed is a fault
/// of the result.
pub(super) fn read(which: &KubeTarget) -> Result<Objects> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        let cluster =
            Cluster::connect(which.kubeconfig.as_deref(), which.context.as_deref()).await?;
        gather(&cluster).await
    })
}

async fn gather(cluster: &Cluster) -> Result<Objects> {
    let mut objects = Objects::default();
    for resource in cluster.served().await? {
        let mut progress = Progress::new(&resource);
        match cluster.list(&resource, |count| progress.show(count)).await {
            Ok(listed) => {
                let items = listed.items.into_iter();
                items.for_each(|item| objects.take_live(item.read, item.version));
            }
            Err(error @ KubeError::Forbidden { .. }) if resource.kind.is_none() => {
                objects.hints.push(format!("{}: {error}", resource.name));
            }
            Err(error @ KubeError::Forbidden { .. }) => {
                objects.faults.push(format!("{}: {error}", resource.name));
            }
            // Its CRD was deleted during the listing.
            Err(KubeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(objects)
}

/// Progress of a long listing on a terminal.
struct Progress {
    what: String,
    begun: Instant,
    shown: bool,
}

impl Progress {
    fn new(resource: &Resource) -> Self {
        Self { what: resource.text(), begun: Instant::now(), shown: false }
    }

    fn show(&mut self, count: usize) {
        if self.begun.elapsed() > PATIENCE && io::stderr().is_terminal() {
            self.shown = true;
            // There is no other output if standard error is closed.
            let _ = write!(io::stderr(), "\rreading {}: {count}", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = writeln!(io::stderr());
        }
    }
}

/// Progress is shown after this time.
const PATIENCE: Duration = Duration::from_secs(1);
