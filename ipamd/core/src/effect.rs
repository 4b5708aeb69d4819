//! The actions that the core requests.

use crate::{BlockSource, BranchEni, CloudCall, Notice, OpId, Record, Ticket, Witness};
use config_model::{CardIndex, DeviceIndex, PodKey, PodName, TableId};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An action. The caller carries out effects in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append to the checkpoint before any later `Reply` or `Cloud` in this list or the next ones. A record that
    /// [`Record::outlives_the_boot`] must be durable by then, any other one written. One sync may serve several
    /// records.
    Persist(Record),
    /// Answer a request. Each ticket is answered once.
    Reply { ticket: Ticket, answer: Answer },
    /// Call the cloud, in parallel with other calls. The result is an [`Event::CloudDone`](crate::Event::CloudDone).
    Cloud { op: OpId, call: CloudCall },
    /// Ask a witness for all ENIs of this instance. The result is an [`Event::Sighting`](crate::Event::Sighting) or an
    /// [`Event::LookFailed`](crate::Event::LookFailed).
    Look { witness: Witness },
    /// The desired host networking may have changed: run a repair pass.
    NodeChanged,
    /// Request a trunk ENI from the VPC resource controller: CNINode feature `SecurityGroupsForPods`, with custom
    /// networking `CustomNetworking` before it. The effect repeats while the trunk is missing.
    AskForTrunk,
    /// Withdraw the admission of an interface whose reservation lapsed: no DEL will report it.
    Forget {
        key: PodKey,
        /// Another sandbox of this pod may exist.
        pod: PodName,
    },
    /// Log, count or publish a notice.
    Report(Notice),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The interface gets these addresses.
    Reserved {
        /// At least one: an address of each network card in use.
        addresses: Vec<PodAddress>,
    },
    /// The interface gets a branch ENI and no address of the pool.
    ReservedBranch(BranchEni),
    Refused(Refusal),
    /// The reply to a confirmation. If it is false, the plugin removes what it built.
    Confirmed {
        /// The reservation was valid, and the daemon repairs the interface from now on.
        confirmed: bool,
    },
    /// The addresses are released.
    Released {
        /// The interface had an assignment.
        known: bool,
        /// The released addresses, without those of a branch ENI.
        addresses: Vec<PodAddress>,
    },
}

/// An assigned address as the book and the checkpoint keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldAddress {
    pub address: IpAddr,
    /// A field `eni` or `node_cidr` in the checkpoint.
    #[serde(flatten)]
    pub source: BlockSource,
    #[serde(default)]
    pub card: CardIndex,
    /// The ENI's device number; 0 for a pod CIDR of the node.
    pub device: DeviceIndex,
}

impl HeldAddress {
    pub(crate) fn of_node_cidr(address: IpAddr, cidr: IpNet) -> Self {
        let source = BlockSource::NodeCidr(cidr);
        Self { address, source, card: CardIndex(0), device: DeviceIndex(0) }
    }
}

/// An address of a pod with its current route table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    pub address: IpAddr,
    pub source: BlockSource,
    pub card: CardIndex,
    /// The ENI's device number; 0 for a pod CIDR of the node.
    pub device: DeviceIndex,
    /// The ENI's table; the main table for a pod CIDR of the node.
    pub table: TableId,
}

/// The refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: RefusalReason,
    /// The failed action, its object and the cause.
    pub message: String,
    pub next_step: String,
}

/// The kind of a refusal, as in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// No address in time; another try may succeed.
    TryAgain,
    /// The subnet or the instance type has no room, and no address is about to become free.
    Exhausted,
    /// The request contradicts the book.
    Invalid,
    /// The daemon is stopping.
    Stopping,
}
