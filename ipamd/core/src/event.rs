//! What happens to the core.

use crate::{CloudAnswer, CloudFault, ClusterFact, Limits, OpId, SeenEni};
use config_model::{EniId, PodKey, PodName, Time};
use std::{collections::BTreeSet, net::IpAddr};

/// One request that waits for its [`Answer`](crate::Answer). The daemon numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who showed the node's ENIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Witness {
    /// The instance metadata service. It may lag.
    Imds,
    /// `DescribeNetworkInterfaces`. It may lag too, and differently.
    Ec2,
}

/// From which network cards a pod gets addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cards {
    /// One, of card 0.
    #[default]
    First,
    /// One of each card that has a pool; all or none.
    All,
}

/// Why an address is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseCause {
    /// The sandbox is gone.
    PodDeleted,
    /// The plugin could not build it.
    SetupFailed,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pod interface wants an address. Answered by `Reserved`, `ReservedBranch` or `Refused`.
    Reserve {
        /// Who is answered.
        ticket: Ticket,
        /// The interface.
        key: PodKey,
        /// Its pod.
        pod: PodName,
        /// From which cards.
        cards: Cards,
        /// The uid of a pod that asks for a branch ENI (`vpc.amazonaws.com/pod-eni` among its
        /// limits): it gets that one's address and none of the pool, and waits until the branch is
        /// known. An earlier pod's of the same name is none of its own.
        branch: Option<String>,
        /// When the caller stops waiting.
        give_up_at: Time,
    },
    /// The caller of this Reserve went away; it wants no answer any more.
    Abandoned {
        /// Whose.
        ticket: Ticket,
    },
    /// The plugin has built the interface. Answered by `Confirmed`.
    Confirm {
        /// Who is answered.
        ticket: Ticket,
        /// The interface.
        key: PodKey,
        /// The host end's name.
        host_interface: String,
    },
    /// The interface is gone or was never built. Answered by `Released`.
    Release {
        /// Who is answered.
        ticket: Ticket,
        /// The interface.
        key: PodKey,
        /// Why.
        cause: ReleaseCause,
    },
    /// A cloud call came to its end. Every [`Effect::Cloud`](crate::Effect::Cloud) leads to exactly
    /// one of these; a time-out is a fault with [`Remedy::Unknown`](crate::Remedy::Unknown).
    CloudDone {
        /// Which.
        op: OpId,
        /// How.
        result: Result<CloudAnswer, CloudFault>,
    },
    /// The answer to [`Effect::Look`](crate::Effect::Look): all ENIs attached to this instance.
    Sighting {
        /// Who showed it.
        witness: Witness,
        /// When the question was sent.
        started: Time,
        /// All of them.
        enis: Vec<SeenEni>,
    },
    /// [`Effect::Look`](crate::Effect::Look) failed.
    LookFailed {
        /// Who did not answer.
        witness: Witness,
        /// How.
        fault: CloudFault,
    },
    /// A repair pass has observed the kernel (and applied its plan).
    KernelSeen {
        /// When the observation began.
        started: Time,
        /// The addresses that some pod route or pod rule in the kernel names. An ENI's own
        /// primary address and its rule 32765 do not count.
        in_use: BTreeSet<IpAddr>,
    },
    /// The ENI's link was found and its routing verified: its addresses may be given out.
    EniReady {
        /// The ENI.
        eni: EniId,
    },
    /// The ENI's link is missing, or its routing could not be made right.
    EniNotReady {
        /// The ENI.
        eni: EniId,
        /// Why.
        why: String,
    },
    /// EC2 does not tell what the instance type allows. It is sent before all else to a core that
    /// began with [`Limits::boundless`], and again when the fault is another.
    LimitsUntold {
        /// The type.
        instance_type: String,
        /// Why not.
        fault: CloudFault,
    },
    /// EC2 tells after all.
    LimitsTold {
        /// What the type allows.
        limits: Limits,
        /// [`PoolConfig::max_pods`](crate::PoolConfig::max_pods) that goes with it.
        max_pods: u32,
    },
    /// Kubernetes tells something.
    Cluster(ClusterFact),
    /// Time passed: [`Core::wake_at`](crate::Core::wake_at) is reached.
    Tick,
    /// The process is about to end: all who wait are answered; no new calls are made.
    Stopping,
}
