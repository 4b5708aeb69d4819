//! Objects of a cluster, read once.

use super::objects::Objects;
use crate::target::KubeTarget;
use anyhow::{Context as _, Result};
use policy_kube::{Cluster, KubeError, Resource};
use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Reads what policy reads of a cluster.
///
/// # Errors
/// The cluster is not reached, or does not know who asks. What alone cannot be listed is a fault.
pub(super) fn read(which: &KubeTarget) -> Result<Objects> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("start what speaks to the cluster")?.block_on(async {
        let cluster =
            Cluster::connect(which.kubeconfig.as_deref(), which.context.as_deref()).await?;
        gather(&cluster).await
    })
}

async fn gather(cluster: &Cluster) -> Result<Objects> {
    let mut objects = Objects::default();
    for resource in cluster.served().await? {
        let mut progress = Progress::new(&resource);
        match cluster.list(&resource, |count| progress.tell(count)).await {
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
            // Its definition was deleted meanwhile, and they with it.
            Err(KubeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(objects)
}

/// How far a long list is read, where somebody looks on.
struct Progress {
    what: String,
    begun: Instant,
    told: bool,
}

impl Progress {
    fn new(resource: &Resource) -> Self {
        Self { what: resource.text(), begun: Instant::now(), told: false }
    }

    fn tell(&mut self, count: usize) {
        if self.begun.elapsed() > PATIENCE && io::stderr().is_terminal() {
            self.told = true;
            // Nobody is left to tell if it is closed.
            let _ = write!(io::stderr(), "\rreading {}: {count}", self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.told {
            let _ = writeln!(io::stderr());
        }
    }
}

/// Who waits longer is told how far it is.
const PATIENCE: Duration = Duration::from_secs(1);
