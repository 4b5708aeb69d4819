//! The controller's reads of Kubernetes, and its writes there.
//!
//! The controller does not remember its writes. Each look at the cluster shows the missing ones, so that a write
//! that was lost or undone is repeated.

use super::{Node, ResourceController, TrunkRequest};
use config_model::{InstanceId, PodName, Time};
use std::collections::BTreeMap;

/// The part of a cluster that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSnapshot {
    pub nodes: BTreeMap<String, ObservedNode>,
    /// The features of each CNINode that is there: names and values.
    pub cni_nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// The ENIConfigs, by name.
    pub eni_configs: BTreeMap<String, TrunkRequest>,
    /// The pods that want a branch, are bound to a node and have not ended.
    pub pods: BTreeMap<PodName, ObservedPod>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedNode {
    /// Distinguishes objects of the same name.
    pub uid: String,
    /// True if it has the label `vpc.amazonaws.com/has-trunk-attached: "true"`.
    pub labeled: bool,
    /// Its capacity of the resource `vpc.amazonaws.com/pod-eni`, and its allocatable number.
    pub branches: [Option<u16>; 2],
}

/// A pod that wants a branch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPod {
    /// Distinguishes objects of the same name.
    pub uid: String,
    /// The node it is bound to.
    pub node: String,
    /// Its annotation `vpc.amazonaws.com/pod-eni`.
    pub annotation: Option<String>,
}

/// A write that the cluster lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterWrite {
    /// The node's CNINode, owned by the node.
    CreateCniNode { node: String, uid: String },
    /// The node's label, and the extended resource in its status.
    AnnounceTrunk {
        node: String,
        /// Maximum number of branches.
        branches: u16,
    },
    /// The pod's annotation.
    Annotate {
        pod: PodName,
        /// Its uid: the next pod of its name has another branch.
        uid: String,
        /// The annotation's value.
        annotation: String,
    },
}

/// A pod that the cluster reported.
#[derive(Clone, Debug)]
pub(super) struct ClusterPod {
    uid: String,
    node: String,
    instance: InstanceId,
}

/// The feature that asks for a trunk.
const SECURITY_GROUPS: &str = "SecurityGroupsForPods";
/// The feature that names the ENIConfig by which the trunk is made.
const CUSTOM_NETWORKING: &str = "CustomNetworking";

impl ResourceController {
    /// Applies the cluster's state of these nodes; other nodes belong to other controllers.
    pub fn observe(
        &mut self,
        now: Time,
        instances: &BTreeMap<String, InstanceId>,
        seen: &ClusterSnapshot,
    ) {
        for (name, instance) in instances {
            if let Some(request) = seen.cni_nodes.get(name).and_then(|of| trunk_request(of, seen)) {
                self.request_trunk(instance, request);
            }
        }
        let stays = |pod: &PodName, known: &ClusterPod| {
            let now = seen.pods.get(pod);
            now.is_some_and(|now| now.uid == known.uid && now.node == known.node)
        };
        let (stay, gone) =
            std::mem::take(&mut self.bound).into_iter().partition(|(pod, known)| stays(pod, known));
        self.bound = stay;
        let gone: BTreeMap<PodName, ClusterPod> = gone;
        for (pod, known) in gone {
            self.pod_deleted(now, &known.instance, &pod);
        }
        for (pod, ObservedPod { uid, node, .. }) in &seen.pods {
            let Some(instance) = instances.get(node) else { continue };
            if !self.bound.contains_key(pod) {
                self.pod_bound(instance, pod.clone(), Vec::new());
                let (uid, node, instance) = (uid.clone(), node.clone(), instance.clone());
                self.bound.insert(pod.clone(), ClusterPod { uid, node, instance });
            }
        }
    }

    /// The pods that the cluster reported, and their nodes.
    pub fn bound_pods(&self) -> impl Iterator<Item = (&PodName, &str)> {
        self.bound.iter().map(|(pod, known)| (pod, known.node.as_str()))
    }

    /// The writes that the cluster lacks.
    pub fn writes(
        &self,
        instances: &BTreeMap<String, InstanceId>,
        seen: &ClusterSnapshot,
    ) -> Vec<ClusterWrite> {
        let ours = || seen.nodes.iter().filter(|(name, _)| instances.contains_key(*name));
        let unmade = ours().filter(|(name, _)| !seen.cni_nodes.contains_key(*name));
        let make = unmade.map(|(node, of)| {
            let (node, uid) = (node.clone(), of.uid.clone());
            ClusterWrite::CreateCniNode { node, uid }
        });
        let announce = ours().filter_map(|(node, of)| {
            let branches = self.nodes.get(instances.get(node)?).and_then(Node::announced)?;
            let is_announced = of.labeled && of.branches == [Some(branches); 2];
            (!is_announced).then(|| ClusterWrite::AnnounceTrunk { node: node.clone(), branches })
        });
        let annotate = self.bound.iter().filter_map(|(pod, known)| {
            let annotation = self.branch_of(&known.instance, pod)?.annotation();
            let now = seen.pods.get(pod).filter(|now| now.uid == known.uid)?;
            let (pod, uid) = (pod.clone(), known.uid.clone());
            (now.annotation.as_ref() != Some(&annotation)).then_some(ClusterWrite::Annotate {
                pod,
                uid,
                annotation,
            })
        });
        make.chain(announce).chain(annotate).collect()
    }
}

/// Where a trunk is wanted; `None` if none is, or while the ENIConfig that is named is not there.
fn trunk_request(
    features: &BTreeMap<String, String>,
    seen: &ClusterSnapshot,
) -> Option<TrunkRequest> {
    features.get(SECURITY_GROUPS)?;
    match features.get(CUSTOM_NETWORKING) {
        Some(config) => seen.eni_configs.get(config).cloned(),
        None => Some(TrunkRequest::default()),
    }
}
