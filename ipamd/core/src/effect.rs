//! What the core wants done.

use crate::{BranchEni, CloudCall, Notice, OpId, Record, Ticket, Witness};
use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, TableId};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Something to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append to the checkpoint. Durable, as far as [`Record::outlives_the_boot`] asks for it (else
    /// written), before any `Reply` or `Cloud` that comes later (in this
    /// list or the next): when both must wait for the same write, one sync serves them.
    Persist(Record),
    /// Answer a request. Each ticket is answered once.
    Reply {
        /// Whom.
        ticket: Ticket,
        /// What.
        answer: Answer,
    },
    /// Call the cloud, side by side with other calls; report by
    /// [`Event::CloudDone`](crate::Event::CloudDone).
    Cloud {
        /// The number of the call.
        op: OpId,
        /// The call.
        call: CloudCall,
    },
    /// Ask a witness for all ENIs of this instance; report by
    /// [`Event::Sighting`](crate::Event::Sighting) or
    /// [`Event::LookFailed`](crate::Event::LookFailed).
    Look {
        /// Whom.
        witness: Witness,
    },
    /// The desired host networking may have changed: run a repair pass.
    NodeChanged,
    /// Tell the resource controller that this node wants a trunk ENI: CNINode feature
    /// `SecurityGroupsForPods`, with custom networking `CustomNetworking` before it. Repeated while
    /// the trunk is missing.
    AskForTrunk,
    /// Tell who enforces policy that this interface never came to be: its reservation has lapsed. No DEL tells of it.
    Forget {
        /// Whose reservation it was.
        key: PodKey,
        /// The pod's name. Another sandbox of that pod may live.
        pod: PodName,
    },
    /// Something that people or metrics should know.
    Report(Notice),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The interface has these addresses.
    Reserved {
        /// One for each network card in use.
        addresses: Vec<PodAddress>,
    },
    /// The interface has a branch ENI, and no address of the pool.
    ReservedBranch(BranchEni),
    /// The interface gets none.
    Refused(Refusal),
    /// Whether the reservation stood; otherwise the plugin undoes what it built.
    Confirmed {
        /// It stood, and the daemon defends the interface from now on.
        confirmed: bool,
    },
    /// The addresses are given back.
    Released {
        /// Whether the interface had any.
        known: bool,
        /// Those it had; a branch ENI's are not among them.
        addresses: Vec<PodAddress>,
    },
}

/// An address that a pod holds, as the book keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldAddress {
    /// The address.
    pub address: IpAddr,
    /// Its ENI.
    pub eni: EniId,
    /// The ENI's network card.
    #[serde(default)]
    pub card: CardIndex,
    /// The ENI's place on it.
    pub device: DeviceIndex,
}

/// An address of a pod and where it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The address.
    pub address: IpAddr,
    /// Its ENI.
    pub eni: EniId,
    /// The ENI's network card.
    pub card: CardIndex,
    /// The ENI's place on it.
    pub device: DeviceIndex,
    /// The ENI's route table.
    pub table: TableId,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub reason: RefusalReason,
    /// What happened, and to which object.
    pub message: String,
    /// What a person can do about it.
    pub next_step: String,
}

/// The kind of a refusal, as the protocol knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// No address in time; another try may find one.
    TryAgain,
    /// The subnet or the instance type has no room, and no address is about to come free.
    Exhausted,
    /// The request contradicts what is known.
    Invalid,
    /// The daemon is going away.
    Stopping,
}
