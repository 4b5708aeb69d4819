//! The VPC resource controller: gives nodes that ask for it a trunk, and pods a branch of it.
//!
//! On EKS it runs in the control plane. Here it is a state machine beside the cloud. Its input is the state of
//! Kubernetes, it calls EC2 as any client does, and it returns its writes to Kubernetes.

mod annotation;
mod cluster;
mod node;

pub use annotation::PodEni;
pub use cluster::{ClusterSnapshot, ClusterWrite, ObservedNode, ObservedPod};

use crate::{Cloud, DeleteNetworkInterface, InstanceState};
use config_model::{EniId, InstanceId, PodName, SecurityGroupId, Span, SubnetId, Time};
use node::{BRANCH_COOLDOWN, Node, call};
use serde::Serialize;
use std::collections::BTreeMap;

/// Delay before the next try of a request that EC2 refused.
const RETRY: Span = Span::seconds(1);

/// A node's request for a trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrunkRequest {
    /// The subnet of an ENIConfig; the node's own if absent.
    pub subnet: Option<SubnetId>,
    /// The groups of an ENIConfig; those of the node's primary ENI if empty.
    pub groups: Vec<SecurityGroupId>,
}

/// A write of the controller to Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ControllerEvent {
    /// The node has its trunk: the label `vpc.amazonaws.com/has-trunk-attached`, and this many of the
    /// resource `vpc.amazonaws.com/pod-eni`.
    TrunkAttached {
        /// The node.
        instance: InstanceId,
        trunk: EniId,
        /// Number of branches that the type allows.
        branches: u16,
    },
    /// The pod's annotation.
    Annotated {
        /// The node.
        instance: InstanceId,
        pod: PodName,
        branch: PodEni,
    },
    /// EC2 refused something; it is tried again.
    Refused {
        /// The node.
        instance: InstanceId,
        /// The pod, if it was for one.
        pod: Option<PodName>,
        why: String,
    },
}

/// The controller of one cluster.
#[derive(Debug, Default)]
pub struct ResourceController {
    nodes: BTreeMap<InstanceId, Node>,
    /// The pods that a cluster reported.
    bound: BTreeMap<PodName, cluster::ClusterPod>,
}

impl ResourceController {
    /// A node's CNINode has the feature `SecurityGroupsForPods`.
    pub fn request_trunk(&mut self, instance: &InstanceId, request: TrunkRequest) {
        self.nodes.entry(instance.clone()).or_default().trunk_request = Some(request);
    }

    /// A pod that a SecurityGroupPolicy selects was bound to a node. Without groups it gets those of
    /// the trunk.
    pub fn pod_bound(&mut self, instance: &InstanceId, pod: PodName, groups: Vec<SecurityGroupId>) {
        let node = self.nodes.entry(instance.clone()).or_default();
        if !node.branches.contains_key(&pod) {
            node.waiting.insert(pod, groups);
        }
    }

    /// Such a pod is gone; its branch cools.
    pub fn pod_deleted(&mut self, now: Time, instance: &InstanceId, pod: &PodName) {
        let Some(node) = self.nodes.get_mut(instance) else { return };
        node.waiting.remove(pod);
        if let Some(branch) = node.branches.remove(pod) {
            node.cooling.push((now + BRANCH_COOLDOWN, branch));
        }
    }

    /// The branch of a pod.
    pub fn branch_of(&self, instance: &InstanceId, pod: &PodName) -> Option<&PodEni> {
        self.nodes.get(instance)?.branches.get(pod)
    }

    /// Time of the next action without further input. A trunk that is being attached is in
    /// [`Cloud::next_change_at`].
    pub fn wake_at(&self) -> Option<Time> {
        let of_node = |node: &Node| {
            node.cooling.iter().map(|(at, _)| *at).chain(node.retry_at).collect::<Vec<_>>()
        };
        self.nodes.values().flat_map(of_node).min()
    }

    /// Does what can be done now.
    pub fn step(&mut self, now: Time, cloud: &mut Cloud) -> Vec<ControllerEvent> {
        let mut news = Vec::new();
        let mut gone = Vec::new();
        for (instance, node) in &mut self.nodes {
            let state = cloud.truth_of(now, instance).map(|truth| truth.state);
            if matches!(state, None | Some(InstanceState::ShuttingDown | InstanceState::Terminated))
            {
                for eni in node.abandon(now) {
                    let delete = DeleteNetworkInterface {
                        network_interface_id: Some(eni),
                        ..DeleteNetworkInterface::default()
                    };
                    // It has gone with the instance, unless it was never attached.
                    let _ = call(cloud, now, delete);
                }
                if node.cooling.is_empty() {
                    gone.push(instance.clone());
                }
            }
            if node.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            node.retry_at = None;
            if let Err(refused) = node.step(now, instance, cloud, &mut news) {
                node.retry_at = Some(now + RETRY);
                news.push(ControllerEvent::Refused {
                    instance: instance.clone(),
                    pod: refused.pod,
                    why: refused.why,
                });
            }
        }
        gone.iter().for_each(|instance| drop(self.nodes.remove(instance)));
        news
    }
}
