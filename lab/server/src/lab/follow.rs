//! The loop that makes the network follow the model.

use super::{
    Lab, LabError, blocking,
    desired::{desired, vpc},
};
use lab_fabric::{Applied, DesiredFabric, Fabric, Power};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Applies every change of the truth to the fabric, in order, until the task ends.
pub(crate) async fn follow(lab: Arc<Lab>, mut fabric: Fabric) {
    let mut known = None;
    let mut powered: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        if known != Some(lab.cloud.version()) {
            let truth = lab.cloud.truth();
            let desired = desired(&truth, &lab.profiles());
            let boots = boots(&desired);
            // First the daemons of nodes that go down, or they would be restarted on the way.
            for (node, boot) in &powered {
                if boots.get(node) != Some(boot) {
                    lab.halted(node).await;
                }
            }
            powered = boots;
            let vpc = vpc(&truth);
            let (outcome, returned) = blocking(move || {
                let grown = vpc.map_or(Ok(()), |vpc| fabric.grow(&vpc));
                (grown.and_then(|()| fabric.apply(&desired)), fabric)
            })
            .await;
            fabric = returned;
            match outcome {
                Ok(applied) => {
                    lab.notice(&applied).await;
                    known = Some(truth.version);
                    lab.followed.send_replace(known);
                }
                Err(err) => {
                    let err = LabError::from(err).chain();
                    tracing::error!(err, version = truth.version, "the network does not follow");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
        }
        lab.cloud.changed().await;
    }
}

/// The nodes that are to run, and which boot of them.
fn boots(desired: &DesiredFabric) -> BTreeMap<String, u64> {
    let running = desired.nodes.iter().filter(|(_, node)| node.power == Power::On);
    running.map(|(name, node)| (name.clone(), node.boot)).collect()
}

impl Lab {
    /// Waits until the network matches the current model.
    pub(super) async fn settled(&self) -> Result<(), LabError> {
        let version = Some(self.cloud.version());
        let mut followed = self.followed.subscribe();
        let done = followed.wait_for(|followed| *followed >= version);
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(_) => Ok(()),
            Err(_) => Err(LabError::Timeout {
                what: "the network followed the model; see the lab's log".to_owned(),
                seconds: PATIENCE.as_secs(),
            }),
        }
    }

    async fn notice(&self, applied: &Applied) {
        for (what, names) in [("halted", &applied.halted), ("booted", &applied.booted)] {
            for node in names {
                tracing::info!(node, what);
            }
        }
        for node in &applied.booted {
            if let Err(err) = self.booted(node).await {
                tracing::error!(node, err = err.chain(), "the node was not prepared");
            }
        }
        for (what, enis) in [("attached", &applied.attached), ("detached", &applied.detached)] {
            for eni in enis {
                tracing::info!(%eni, what);
            }
        }
    }
}

const RETRY: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);
