//! What does Kubernetes tell?

use crate::{Core, Severity, Topic, ctx::Ctx};
use config_model::{EniId, Mac, PodName, SecurityGroupId, SubnetId, Time};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr},
};

/// A fact that Kubernetes tells. Each replaces the earlier one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFact {
    /// The node's `.status.capacity.pods`.
    MaxPods(u32),
    /// Whether the node takes new pods: no taint `node.kubernetes.io/unschedulable:NoSchedule`.
    Schedulable(bool),
    /// The node's ENIConfig.
    EniConfig(EniConfig),
    /// The pods that are bound to this node and want an address of the pool: not on the host's
    /// network, not at their end. The core takes off those that it knows.
    Coming(BTreeSet<PodName>),
    /// A pod's annotation `vpc.amazonaws.com/pod-eni`; `None` when pod or annotation is gone.
    Branch {
        /// The pod.
        pod: PodName,
        /// Its uid: the next pod of its name has another.
        uid: String,
        /// Its branch ENI.
        branch: Option<BranchEni>,
    },
    /// Whether this daemon is the elected collector of forgotten ENIs.
    Collector(bool),
}

/// The node's ENIConfig: where and how ENIs are made with custom networking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EniConfig {
    /// Not read yet.
    #[default]
    Unknown,
    /// There is none that could be used.
    Missing {
        /// The name that label or annotation say.
        name: String,
        /// Why it cannot be used.
        why: String,
    },
    /// Found.
    Found {
        /// Its name.
        name: String,
        /// The subnet of new ENIs.
        subnet: SubnetId,
        /// Their security groups; empty means those of the primary ENI.
        groups: Vec<SecurityGroupId>,
    },
}

/// A branch ENI, as the resource controller announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchEni {
    /// The ENI.
    pub eni: EniId,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IPv4 address: the pod's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Addr>,
    /// Its IPv6 address: the pod's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_v6: Option<Ipv6Addr>,
    /// Its VLAN on the trunk.
    pub vlan: u16,
    /// The subnet's IPv4 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_cidr: Option<Ipv4Net>,
    /// The subnet's IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet_cidr_v6: Option<Ipv6Net>,
}

/// The facts told so far.
#[derive(Debug)]
pub(crate) struct Cluster {
    max_pods: Option<u32>,
    schedulable: bool,
    eni_config: EniConfig,
    coming: BTreeSet<PodName>,
    /// Those of them that have asked, or have no need to. A pod that asked and gave back is about
    /// to end: it is not expected again.
    met: BTreeSet<PodName>,
    /// With the uids of their pods.
    branches: BTreeMap<PodName, (String, BranchEni)>,
}

impl Default for Cluster {
    /// Before Kubernetes has said anything nothing waits for it.
    fn default() -> Self {
        Self {
            max_pods: None,
            schedulable: true,
            eni_config: EniConfig::Unknown,
            coming: BTreeSet::new(),
            met: BTreeSet::new(),
            branches: BTreeMap::new(),
        }
    }
}

impl Cluster {
    pub(crate) fn told(&mut self, fact: ClusterFact) {
        match fact {
            ClusterFact::MaxPods(max) => self.max_pods = Some(max),
            ClusterFact::Schedulable(schedulable) => self.schedulable = schedulable,
            ClusterFact::EniConfig(config) => self.eni_config = config,
            ClusterFact::Coming(pods) => {
                self.met.retain(|pod| pods.contains(pod));
                self.coming = pods;
            }
            ClusterFact::Branch { pod, uid, branch: Some(branch) } => {
                self.branches.insert(pod, (uid, branch));
            }
            ClusterFact::Branch { pod, branch: None, .. } => {
                self.branches.remove(&pod);
            }
            // The leak collector keeps it.
            ClusterFact::Collector(_) => {}
        }
    }

    pub(crate) fn max_pods(&self) -> Option<u32> {
        self.max_pods
    }

    pub(crate) fn is_schedulable(&self) -> bool {
        self.schedulable
    }

    pub(crate) fn eni_config(&self) -> &EniConfig {
        &self.eni_config
    }

    /// The pod's branch ENI, with the pod's UID.
    pub(crate) fn branch(&self, pod: &PodName) -> Option<&(String, BranchEni)> {
        self.branches.get(pod)
    }

    /// The pod has asked for its address, or needs none.
    pub(crate) fn met(&mut self, pod: &PodName) {
        if self.coming.contains(pod) {
            self.met.insert(pod.clone());
        }
    }

    /// The pod will ask again.
    fn unmet(&mut self, pod: &PodName) {
        self.met.remove(pod);
    }

    /// Pods that are bound to the node.
    pub(crate) fn coming(&self) -> &BTreeSet<PodName> {
        &self.coming
    }

    /// How many pods are bound to the node and have not asked yet.
    pub(crate) fn expected(&self) -> u32 {
        u32::try_from(self.coming.len() - self.met.len()).unwrap_or(u32::MAX)
    }
}

impl Core {
    pub(crate) fn cluster_told(&mut self, fact: ClusterFact, now: Time) {
        match &fact {
            ClusterFact::Collector(elected) => self.leaks.elect(&mut self.ctx, *elected),
            ClusterFact::Schedulable(schedulable)
                if *schedulable != self.ctx.cluster.is_schedulable() =>
            {
                let cause = match (schedulable, self.ctx.config.manage_unschedulable) {
                    (true, _) => "schedulable again",
                    (false, true) => "unschedulable; the pool is managed all the same",
                    (false, false) => "unschedulable: the pool neither grows nor shrinks",
                };
                let object = self.ctx.node.instance_id.clone();
                self.ctx.report(Severity::Info, Topic::Unschedulable, object, cause, "");
            }
            ClusterFact::MaxPods(max) => self.ctx.targets.max_pods = *max,
            ClusterFact::EniConfig(_) => self.ctx.subnets.forget_missing(),
            ClusterFact::Schedulable(_) | ClusterFact::Coming(_) | ClusterFact::Branch { .. } => {}
        }
        let (pods_came, branch_of) = match &fact {
            ClusterFact::Coming(_) => (true, None),
            ClusterFact::Branch { pod, .. } => (false, Some(pod.clone())),
            ClusterFact::MaxPods(_)
            | ClusterFact::Schedulable(_)
            | ClusterFact::EniConfig(_)
            | ClusterFact::Collector(_) => (false, None),
        };
        self.ctx.cluster.told(fact);
        if let Some(pod) = branch_of {
            self.ctx.cluster.met(&pod);
            self.serve_branch(&pod, now);
        }
        if pods_came {
            self.meet_known_pods();
        }
    }

    /// Pods that hold or wait, and those with branch ENIs, are demand already or none of the pool.
    fn meet_known_pods(&mut self) {
        let known = |pod: &&PodName| {
            let branch = self.ctx.cluster.branch(pod).is_some();
            branch || self.ctx.book.has_pod(pod) || self.ctx.queue.has_pod(pod)
        };
        let known: Vec<PodName> = self.ctx.cluster.coming().iter().filter(known).cloned().collect();
        for pod in known {
            self.ctx.cluster.met(&pod);
        }
    }
}

impl Ctx {
    /// The pod's ADD came to nothing. The kubelet tries again, unless the pod has gone, which
    /// Kubernetes tells.
    pub(crate) fn expect_again(&mut self, pod: &PodName) {
        let branch = self.cluster.branch(pod).is_some();
        if !branch && !self.book.has_pod(pod) && !self.queue.has_pod(pod) {
            self.cluster.unmet(pod);
        }
    }
}
