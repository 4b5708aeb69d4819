//! The Kubernetes side of the lab's VPC resource controller.
//!
//! On EKS the real one runs in the control plane. Here [`lab_cloud::ResourceController`] decides, and
//! this module reads the objects of a cluster and writes the missing ones. It lists instead of watching:
//! a lab has few objects, and a list shows all changes since the one before. It has no state and makes no
//! decisions. `tests/lab` tests it with whole nodes.

mod read;
mod write;

use config_crds::{CniNode, EniConfig};
use config_model::causes;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, Config,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use lab_cloud::{ClusterSnapshot, ClusterWrite};
use std::{future::Future, path::Path, time::Duration};
use tokio::time::timeout;

/// A cluster in which the controller may do what the real one may.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
}

/// Failed action of the controller, with its cause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// The kubeconfig is of no use.
    #[error("use kubeconfig {path}: {why}")]
    Kubeconfig {
        path: String,
        /// The reason, with its causes.
        why: String,
    },
    /// The API server did not do it.
    #[error("{attempt}")]
    Refused {
        /// The attempted action.
        attempt: String,
        #[source]
        cause: Box<kube::Error>,
    },
    /// The API server did not answer.
    #[error("{attempt}: no answer within {PATIENCE:?}")]
    Silent {
        /// The attempted action.
        attempt: String,
    },
}

impl Cluster {
    /// Uses a kubeconfig; does not connect yet.
    ///
    /// # Errors
    /// If it cannot be read or used.
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self, ClusterError> {
        let unusable =
            |why: String| ClusterError::Kubeconfig { path: kubeconfig.display().to_string(), why };
        let read = Kubeconfig::read_from(kubeconfig).map_err(|err| unusable(causes(&err)))?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .map_err(|err| unusable(causes(&err)))?;
        config.connect_timeout = Some(PATIENCE);
        let client = Client::try_from(config).map_err(|err| unusable(causes(&err)))?;
        Ok(Self { client })
    }

    /// The cluster's current state.
    ///
    /// # Errors
    /// If one of its kinds cannot be listed.
    pub(crate) async fn look(&self) -> Result<ClusterSnapshot, ClusterError> {
        let all = ListParams::default();
        let nodes = Api::<Node>::all(self.client.clone());
        let cni_nodes = Api::<CniNode>::all(self.client.clone());
        let eni_configs = Api::<EniConfig>::all(self.client.clone());
        let pods = Api::<Pod>::all(self.client.clone());
        let (nodes, cni_nodes, eni_configs, pods) = tokio::try_join!(
            ask("list nodes".to_owned(), nodes.list(&all)),
            ask("list cninodes.vpcresources.k8s.aws".to_owned(), cni_nodes.list(&all)),
            ask("list eniconfigs.crd.k8s.amazonaws.com".to_owned(), eni_configs.list(&all)),
            ask("list pods".to_owned(), pods.list(&all)),
        )?;
        Ok(ClusterSnapshot {
            nodes: nodes.items.into_iter().filter_map(read::node).collect(),
            cni_nodes: cni_nodes.items.into_iter().filter_map(read::cni_node).collect(),
            eni_configs: eni_configs.items.into_iter().filter_map(read::eni_config).collect(),
            pods: pods.items.into_iter().filter_map(read::pod).collect(),
        })
    }

    /// Writes one thing that the cluster lacks.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub(crate) async fn write(&self, write: &ClusterWrite) -> Result<(), ClusterError> {
        write::write(&self.client, write).await
    }
}

async fn ask<T>(
    attempt: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, ClusterError> {
    match timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(cause)) => Err(ClusterError::Refused { attempt, cause: Box::new(cause) }),
        Err(_) => Err(ClusterError::Silent { attempt }),
    }
}

/// Timeout of one request to the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// A pod's branch, and the extended resource by which pods ask for one.
const POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
/// The label of a node with a trunk.
const HAS_TRUNK: &str = "vpc.amazonaws.com/has-trunk-attached";
