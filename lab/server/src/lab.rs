//! A lab: the model of the cloud, the network that follows it, and the nodes and pods in it.

mod balancers;
mod branches;
mod cache;
mod call;
mod check;
mod cloud;
mod cluster;
mod desired;
mod error;
mod faults;
mod follow;
mod names;
mod nodes;
mod plugin;
mod pods;
mod provision;
mod supervisor;
mod view;
mod vpc_cni;

pub(crate) use balancers::balance;
pub(crate) use branches::{control, control_in};
pub use cluster::Cluster;
pub(crate) use cluster::{API_SERVER_PORT, ClusterAccess};
pub(crate) use desired::vpc;
pub(crate) use error::LabError;
pub(crate) use follow::follow;
pub(crate) use provision::{DAEMON_LOG, PLUGIN_LOG};

use crate::live::LiveCloud;
use balancers::Balancers;
use branches::Branches;
use lab_fabric::Fabric;
use nodes::NodeEntry;
use pods::Pods;
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// Everything that the server knows; verbs are methods of it, in the modules below.
pub(crate) struct Lab {
    name: String,
    bin_dir: PathBuf,
    ec2_endpoint: Ipv4Addr,
    cluster: Option<ClusterAccess>,
    cloud: LiveCloud,
    /// Looks and enters; the one that changes anything is with [`follow`].
    fabric: Fabric,
    nodes: Mutex<BTreeMap<String, Arc<NodeEntry>>>,
    pods: Pods,
    branches: Branches,
    balancers: Balancers,
    /// The version of the truth that the fabric has been made to follow.
    followed: watch::Sender<Option<u64>>,
}

impl Lab {
    pub(crate) fn new(
        name: String,
        bin_dir: PathBuf,
        ec2_endpoint: Ipv4Addr,
        cluster: Option<ClusterAccess>,
        cloud: LiveCloud,
        fabric: Fabric,
    ) -> Self {
        Self {
            name,
            bin_dir,
            ec2_endpoint,
            cluster,
            cloud,
            fabric,
            nodes: Mutex::default(),
            pods: Pods::default(),
            branches: Branches::default(),
            balancers: Balancers::default(),
            followed: watch::Sender::new(None),
        }
    }

    /// URL of EC2, as nodes reach it.
    pub(crate) fn ec2_url(&self) -> String {
        format!("http://{}", self.ec2_endpoint)
    }

    /// Ends all daemons; the rest goes with the fabric.
    pub(crate) async fn stop_daemons(&self) {
        let entries: Vec<_> = self.nodes().values().cloned().collect();
        for entry in entries {
            entry.supervisor.end().await;
        }
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, Arc<NodeEntry>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, name: &str) -> Result<Arc<NodeEntry>, LabError> {
        self.nodes().get(name).cloned().ok_or_else(|| LabError::NoNode(name.to_owned()))
    }
}

/// Runs what blocks (namespaces, mounts, processes) off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(task).await {
        Ok(value) => value,
        Err(err) => std::panic::resume_unwind(err.into_panic()),
    }
}
