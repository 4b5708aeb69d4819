//! One reading of a cluster's objects.

use super::objects::Objects;
use crate::{
    progress::{Done, Progress},
    target::KubeTarget,
};
use anyhow::{Context as _, Result};
use policy_kube::{Cluster, KubeError};

/// Lists the objects that policy uses.
///
/// # Errors
/// The API server cannot be reached or does not accept the credentials. A single kind that cannot be listed is a fault
/// of the result.
pub(super) fn read(which: &KubeTarget) -> Result<Objects> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        let cluster = which.connect().await?;
        gather(&cluster).await
    })
}

async fn gather(cluster: &Cluster) -> Result<Objects> {
    let mut objects = Objects::default();
    let mut progress = Progress::new();
    for resource in cluster.served().await? {
        let stage = format!("reading {}", resource.text());
        match cluster.list(&resource, |count| progress.show(&stage, Done::SoFar(count))).await {
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
