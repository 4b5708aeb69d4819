//! The facts that adapters report to the core.

use crate::{CloudAnswer, CloudFault, ClusterFact, Limits, OpId, SeenEni};
use config_model::{EniId, PodKey, PodName, Time};
use ipnet::IpNet;
use std::{collections::BTreeSet, net::IpAddr};

/// A request that waits for its [`Answer`](crate::Answer). The daemon numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A source of observations of the node's ENIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Witness {
    /// The instance metadata service. Its answers may lag.
    Imds,
    /// `DescribeNetworkInterfaces`. Its answers may lag independently.
    Ec2,
}

/// The network cards whose addresses a pod gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cards {
    /// One address of card 0.
    #[default]
    First,
    /// One address of each card that has a pool; all or none.
    All,
}

/// The reason for a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseCause {
    /// The sandbox is gone.
    PodDeleted,
    /// The plugin could not build the interface.
    SetupFailed,
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pod interface needs an address. The answer is `Reserved`, `ReservedBranch` or `Refused`.
    Reserve {
        ticket: Ticket,
        key: PodKey,
        pod: PodName,
        cards: Cards,
        /// The UID of a pod with `vpc.amazonaws.com/pod-eni` among its limits. It gets the address of its branch ENI,
        /// none of the pool, and waits until the branch is known. Branches of earlier pods with the same name do not
        /// count.
        branch: Option<String>,
        /// The time at which the caller stops waiting.
        give_up_at: Time,
    },
    /// The caller of this Reserve has disconnected; it gets no answer.
    Abandoned { ticket: Ticket },
    /// The plugin has built the interface. The answer is `Confirmed`.
    Confirm {
        ticket: Ticket,
        key: PodKey,
        /// The name of the host end.
        host_interface: String,
    },
    /// The interface is gone or was never built. The answer is `Released`.
    Release { ticket: Ticket, key: PodKey, cause: ReleaseCause },
    /// A cloud call has ended. Every [`Effect::Cloud`](crate::Effect::Cloud) leads to exactly one of these; a time-out
    /// is a fault with [`Remedy::Unknown`](crate::Remedy::Unknown).
    CloudDone { op: OpId, result: Result<CloudAnswer, CloudFault> },
    /// The answer to [`Effect::Look`](crate::Effect::Look): all ENIs attached to this instance.
    Sighting {
        witness: Witness,
        /// The time when the question was sent.
        started: Time,
        enis: Vec<SeenEni>,
    },
    /// [`Effect::Look`](crate::Effect::Look) failed.
    LookFailed { witness: Witness, fault: CloudFault },
    /// A repair pass has observed the kernel (and applied its plan).
    KernelSeen {
        /// The start of the observation.
        started: Time,
        /// The addresses in any pod route or pod rule of the kernel. An ENI's own primary address and its rule 32765
        /// do not count.
        in_use: BTreeSet<IpAddr>,
    },
    /// The ENI's link was found and its routing verified, so pods may get its addresses.
    EniReady { eni: EniId },
    /// The ENI's link is missing, or its routing could not be repaired.
    EniNotReady { eni: EniId, why: String },
    /// EC2 does not report the limits of the instance type. It is the first event of a core that started with
    /// [`Limits::boundless`], and repeats if the fault changes.
    LimitsUnknown { instance_type: String, fault: CloudFault },
    /// EC2 has reported the limits after all.
    LimitsReported {
        limits: Limits,
        /// The matching [`PoolConfig::max_pods`](crate::PoolConfig::max_pods).
        max_pods: u32,
    },
    /// A fact from Kubernetes.
    Cluster(ClusterFact),
    /// The complete list of the node's pod CIDRs. Pods keep the assigned addresses of a CIDR that is no longer in it.
    NodeCidrs(Vec<IpNet>),
    /// [`Core::wake_at`](crate::Core::wake_at) is reached.
    Tick,
    /// The process is about to stop: all waiting requests are answered, and no new calls are made.
    Stopping,
}
