//! The facts from Kubernetes.

use crate::{BranchEni, Core, Severity, Topic, ctx::Ctx};
use config_model::{PodName, SecurityGroupId, SubnetId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// A fact from Kubernetes. It replaces the earlier one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFact {
    /// The node's `.status.capacity.pods`.
    MaxPods(u32),
    /// The node takes new pods: it has no taint `node.kubernetes.io/unschedulable:NoSchedule`.
    Schedulable(bool),
    EniConfig(EniConfig),
    /// The pods that are bound to this node and need an address of the pool: not on the host network, not finished.
    /// The core subtracts the pods that it knows.
    Coming(BTreeSet<PodName>),
    /// A pod's annotation `vpc.amazonaws.com/pod-eni`. The annotations of the first list come before `Coming`.
    Branch {
        pod: PodName,
        /// A later pod of the same name has another UID.
        uid: String,
        /// `None` if the pod or the annotation is gone.
        branch: Option<BranchEni>,
    },
    /// This daemon is the elected collector of leaked ENIs.
    Collector(bool),
}

/// The node's ENIConfig: the place and the groups of new ENIs with custom networking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EniConfig {
    #[default]
    Unknown,
    /// There is no usable one.
    Missing {
        /// The name in the node's label or annotation.
        name: String,
        why: String,
    },
    Found {
        name: String,
        /// The subnet of new ENIs.
        subnet: SubnetId,
        /// Their security groups; empty means those of the primary ENI.
        groups: Vec<SecurityGroupId>,
    },
}

/// The latest facts.
#[derive(Debug)]
pub(crate) struct Cluster {
    max_pods: Option<u32>,
    schedulable: bool,
    eni_config: EniConfig,
    coming: BTreeSet<PodName>,
    /// The bound pods that have asked for an address or need none. A pod that released its address is about to end and
    /// does not count again.
    met: BTreeSet<PodName>,
    /// With the UIDs of their pods.
    branches: BTreeMap<PodName, (String, BranchEni)>,
}

impl Default for Cluster {
    /// The planner does not wait for the first facts.
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
    pub(crate) fn record(&mut self, fact: ClusterFact) {
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
            // The leak collector keeps this fact.
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

    /// Notes that the pod has asked for its address or needs none.
    pub(crate) fn met(&mut self, pod: &PodName) {
        if self.coming.contains(pod) {
            self.met.insert(pod.clone());
        }
    }

    /// Notes that the pod will ask again.
    fn unmet(&mut self, pod: &PodName) {
        self.met.remove(pod);
    }

    /// The pods that are bound to the node.
    pub(crate) fn coming(&self) -> &BTreeSet<PodName> {
        &self.coming
    }

    /// The number of bound pods that have not asked yet.
    pub(crate) fn expected(&self) -> u32 {
        u32::try_from(self.coming.len() - self.met.len()).unwrap_or(u32::MAX)
    }
}

impl Core {
    pub(crate) fn take_cluster_fact(&mut self, fact: ClusterFact, now: Time) {
        match &fact {
            ClusterFact::Collector(elected) => self.leaks.elect(&mut self.ctx, *elected),
            ClusterFact::Schedulable(schedulable)
                if *schedulable != self.ctx.cluster.is_schedulable() =>
            {
                let cause = match (schedulable, self.ctx.config.manage_unschedulable) {
                    (true, _) => "schedulable again",
                    (false, true) => "unschedulable; the pool is still managed",
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
        self.ctx.cluster.record(fact);
        if let Some(pod) = branch_of {
            self.ctx.cluster.met(&pod);
            self.branches.annotated(&pod, self.ctx.cluster.branch(&pod));
            self.serve_branch(&pod, now);
        }
        if pods_came {
            // The annotations of a list come before its pods.
            self.branches.listed();
            self.meet_known_pods();
        }
    }

    /// Pods with an assignment or a waiting request count already; pods with branch ENIs need no address of the pool.
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
    /// Expects another ADD of a pod after a failed one. If the pod is gone, a fact from Kubernetes corrects this.
    pub(crate) fn expect_again(&mut self, pod: &PodName) {
        let branch = self.cluster.branch(pod).is_some();
        if !branch && !self.book.has_pod(pod) && !self.queue.has_pod(pod) {
            self.cluster.unmet(pod);
        }
    }
}
