//! The VPC resource controller of the lab: trunks for nodes, branches for pods.

use super::{Lab, LabError, names};
use crate::control::{BranchSpec, BranchView, NodeView};
use crate::resource_controller::{Cluster, ClusterError};
use config_model::{InstanceId, PodName};
use lab_cloud::{ClusterSnapshot, ClusterWrite, ControllerEvent, ResourceController, TrunkRequest};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The controller, and the pods that it has received.
#[derive(Debug, Default)]
pub(super) struct Branches(Mutex<BranchState>);

#[derive(Debug, Default)]
struct BranchState {
    controller: ResourceController,
    pods: BTreeMap<PodName, String>,
}

impl Branches {
    fn with<R>(&self, act: impl FnOnce(&mut BranchState) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs the controller until the task ends.
pub(crate) async fn control(lab: Arc<Lab>) {
    loop {
        lab.step_controller();
        tokio::time::sleep(PERIOD).await;
    }
}

/// Runs the controller in a cluster until the task ends.
pub(crate) async fn control_in(cluster: Cluster, lab: Arc<Lab>) {
    let mut logged = None;
    loop {
        let why = lab.control_round(&cluster).await.err().map(|err| config_model::causes(&err));
        if let Some(why) = why.as_ref().filter(|why| logged.as_ref() != Some(*why)) {
            tracing::warn!(why, "cannot complete the controller's work; trying again");
        }
        logged = why;
        tokio::time::sleep(PERIOD).await;
    }
}

impl Lab {
    /// Reads the cluster, runs the controller, and writes the missing objects. A refused write, such as an
    /// annotation for a pod that has just gone, does not stop the other writes.
    async fn control_round(&self, cluster: &Cluster) -> Result<(), ClusterError> {
        let writes = self.observe(&cluster.look().await?);
        let mut outcome = Ok(());
        for write in writes {
            let written = cluster.write(&write).await;
            if written.is_ok() {
                tracing::info!(?write, "wrote to the cluster");
            }
            outcome = outcome.and(written);
        }
        outcome
    }

    fn observe(&self, seen: &ClusterSnapshot) -> Vec<ClusterWrite> {
        let instances: BTreeMap<String, InstanceId> =
            self.nodes().iter().map(|(name, it)| (name.clone(), it.instance.clone())).collect();
        let now = self.cloud.now();
        self.branches.with(|known| known.controller.observe(now, &instances, seen));
        self.step_controller();
        self.branches.with(|known| known.controller.writes(&instances, seen))
    }

    fn step_controller(&self) {
        let step = |known: &mut BranchState| {
            self.cloud.change(|cloud, now| {
                let news = known.controller.step(now, cloud);
                let changed = !news.is_empty();
                (news, changed)
            })
        };
        for news in self.branches.with(step) {
            match news {
                ControllerEvent::TrunkAttached { instance, trunk, branches } => {
                    tracing::info!(%instance, %trunk, branches, "attached the trunk");
                }
                ControllerEvent::Annotated { instance, pod, branch } => {
                    tracing::info!(%instance, %pod, eni = %branch.eni, vlan = branch.vlan, "attached the branch");
                }
                ControllerEvent::Refused { instance, pod, why } => {
                    let pod = pod.map(|pod| pod.to_string());
                    tracing::warn!(%instance, pod, why, "cannot complete the controller's work; trying again");
                }
            }
        }
    }

    /// As if the node's CNINode had the feature `SecurityGroupsForPods`.
    pub(crate) fn request_trunk(&self, node: &str) -> Result<NodeView, LabError> {
        let instance = self.entry(node)?.instance.clone();
        self.branches
            .with(|known| known.controller.request_trunk(&instance, TrunkRequest::default()));
        self.node_view(node)
    }

    pub(crate) fn add_branch(&self, spec: BranchSpec) -> Result<BranchView, LabError> {
        names::check("namespace", &spec.namespace, 63)?;
        names::check("pod", &spec.name, 63)?;
        let instance = self.entry(&spec.node)?.instance.clone();
        let groups = self.group_ids(&spec.groups)?;
        let pod = PodName { namespace: spec.namespace, name: spec.name };
        self.branches.with(|known| {
            known.controller.pod_bound(&instance, pod.clone(), groups);
            known.pods.insert(pod.clone(), spec.node.clone());
        });
        self.step_controller();
        self.branch(&pod)
    }

    pub(crate) fn remove_branch(&self, pod: &PodName) -> Result<(), LabError> {
        let missing = || LabError::NoPod(pod.to_string());
        let node = self.branches.with(|known| known.pods.remove(pod)).ok_or_else(missing)?;
        let instance = self.entry(&node)?.instance.clone();
        let now = self.cloud.now();
        self.branches.with(|known| known.controller.pod_deleted(now, &instance, pod));
        Ok(())
    }

    pub(crate) fn branch(&self, pod: &PodName) -> Result<BranchView, LabError> {
        let found = self.branch_views().into_iter();
        let mut found = found.filter(|b| b.namespace == pod.namespace && b.name == pod.name);
        found.next().ok_or_else(|| LabError::NoPod(pod.to_string()))
    }

    pub(crate) fn branch_views(&self) -> Vec<BranchView> {
        let instance = |node: &String| self.entry(node).ok().map(|entry| entry.instance.clone());
        self.branches.with(|known| {
            let view = |(pod, node): (&PodName, &String)| BranchView {
                node: node.clone(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                annotation: instance(node)
                    .and_then(|instance| known.controller.branch_of(&instance, pod).cloned())
                    .map(|branch| branch.annotation()),
            };
            let bound =
                known.controller.bound_pods().map(|(pod, node)| (pod.clone(), node.to_owned()));
            let all: BTreeMap<PodName, String> =
                known.pods.clone().into_iter().chain(bound).collect();
            all.iter().map(view).collect()
        })
    }
}

/// Interval between two rounds.
const PERIOD: Duration = Duration::from_millis(200);
