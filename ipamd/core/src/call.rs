//! What the core asks of the cloud, and how the cloud answers.

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, Span, SubnetId,
};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, net::Ipv4Addr};

/// One call to the cloud; its result comes back under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub u64);

/// A call to the cloud, complete: whoever executes it decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudCall {
    /// Make an ENI; answered by [`CloudAnswer::Created`]. The same token makes it once only.
    CreateEni {
        /// The `ClientToken`.
        token: String,
        /// Where.
        subnet: SubnetId,
        /// Its security groups.
        groups: Vec<SecurityGroupId>,
        /// How many addresses beside the primary one.
        secondary_count: u16,
        /// Its tags.
        tags: BTreeMap<String, String>,
        /// Its description.
        description: String,
    },
    /// Attach an ENI to this instance; answered by [`CloudAnswer::Attached`].
    AttachEni {
        /// The ENI.
        eni: EniId,
        /// To which instance.
        instance: InstanceId,
        /// On which network card.
        card: CardIndex,
        /// At which place.
        device: DeviceIndex,
    },
    /// Set `DeleteOnTermination`, so that the ENI goes with the instance. [`CloudAnswer::Done`].
    KeepUntilTermination {
        /// The ENI.
        eni: EniId,
        /// Its attachment.
        attachment: AttachmentId,
    },
    /// Assign secondary addresses; answered by [`CloudAnswer::Assigned`].
    AssignAddresses {
        /// The ENI.
        eni: EniId,
        /// How many.
        count: u16,
    },
    /// Give secondary addresses back. [`CloudAnswer::Done`].
    UnassignAddresses {
        /// The ENI.
        eni: EniId,
        /// Which.
        addresses: Vec<Ipv4Addr>,
    },
    /// Detach an ENI. [`CloudAnswer::Done`] as soon as EC2 accepts it.
    DetachEni {
        /// The ENI.
        eni: EniId,
        /// Its attachment.
        attachment: AttachmentId,
    },
    /// Delete a detached ENI. [`CloudAnswer::Done`].
    DeleteEni {
        /// The ENI.
        eni: EniId,
    },
    /// Look at one ENI after a reply was lost; answered by [`CloudAnswer::Described`].
    DescribeEni {
        /// The ENI.
        eni: EniId,
    },
}

/// The kind of a call: back-off, budget and metrics are kept for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// `CreateNetworkInterface`
    Create,
    /// `AttachNetworkInterface`
    Attach,
    /// `ModifyNetworkInterfaceAttribute`
    Modify,
    /// `AssignPrivateIpAddresses`
    Assign,
    /// `UnassignPrivateIpAddresses`
    Unassign,
    /// `DetachNetworkInterface`
    Detach,
    /// `DeleteNetworkInterface`
    Delete,
    /// `DescribeNetworkInterfaces`
    Describe,
}

impl Action {
    /// EC2's name of the action.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateNetworkInterface",
            Self::Attach => "AttachNetworkInterface",
            Self::Modify => "ModifyNetworkInterfaceAttribute",
            Self::Assign => "AssignPrivateIpAddresses",
            Self::Unassign => "UnassignPrivateIpAddresses",
            Self::Detach => "DetachNetworkInterface",
            Self::Delete => "DeleteNetworkInterface",
            Self::Describe => "DescribeNetworkInterfaces",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CloudCall {
    /// The kind of this call.
    pub fn action(&self) -> Action {
        match self {
            Self::CreateEni { .. } => Action::Create,
            Self::AttachEni { .. } => Action::Attach,
            Self::KeepUntilTermination { .. } => Action::Modify,
            Self::AssignAddresses { .. } => Action::Assign,
            Self::UnassignAddresses { .. } => Action::Unassign,
            Self::DetachEni { .. } => Action::Detach,
            Self::DeleteEni { .. } => Action::Delete,
            Self::DescribeEni { .. } => Action::Describe,
        }
    }
}

/// The answer to a call that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudAnswer {
    /// The ENI as it was made, not attached yet.
    Created(SeenEni),
    /// EC2 accepted the attachment; the link appears later.
    Attached {
        /// The new attachment.
        attachment: AttachmentId,
    },
    /// These addresses were added by this call (not: all that the ENI has).
    Assigned {
        /// The added addresses.
        addresses: Vec<Ipv4Addr>,
    },
    /// The ENI as EC2 shows it. That it does not exist is a fault with [`Remedy::Gone`].
    Described(SeenEni),
    /// Done; there is nothing to tell.
    Done,
}

/// A call that failed. The adapter sorts its errors by what the core should do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CloudFault {
    /// EC2's error code, or a word of the adapter's (`Timeout`, `Dispatch`).
    pub code: String,
    /// EC2's message.
    pub message: String,
    /// What to do next.
    pub remedy: Remedy,
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Nothing was done, and the same call may succeed later: throttling, an internal error that
    /// EC2 itself reported, an attachment that is still changing.
    RetryAfter {
        /// How long EC2 asks us to wait, if it says so.
        wait: Option<Span>,
    },
    /// Nothing was done, and the place is taken or full. Create and Assign: the subnet has no free
    /// addresses (`InsufficientFreeAddressesInSubnet`, and `InvalidParameterValue` that says so).
    /// Attach: the device index is in use.
    TryElsewhere,
    /// Nothing was done; only a person can help: missing permission, a parameter that is refused.
    TellOperator,
    /// The object does not exist (any more): `…NotFound`.
    Gone,
    /// Nothing was done; a limit of the ENI, the instance or the account is reached:
    /// `PrivateIpAddressLimitExceeded`, `AttachmentLimitExceeded`, `NetworkInterfaceLimitExceeded`.
    LimitReached,
    /// The reply was lost: time-out, broken connection. It may have been done; look first.
    Unknown,
}

/// An ENI as a witness shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEni {
    /// The ENI.
    pub id: EniId,
    /// Its MAC address, by which the link is found.
    pub mac: Mac,
    /// Its subnet.
    pub subnet: SubnetId,
    /// The subnet's addresses, where the witness knows them (IMDS does, EC2 does not).
    pub subnet_cidr: Option<Ipv4Net>,
    /// Its primary address, which no pod gets.
    pub primary_address: Ipv4Addr,
    /// Its secondary addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// Its attachment; `None` if it is attached to nothing.
    pub attachment: Option<SeenAttachment>,
    /// Its tags, where the witness knows them (EC2 does, IMDS does not).
    pub tags: Option<BTreeMap<String, String>>,
}

/// Where a seen ENI is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenAttachment {
    /// The attachment's id; IMDS does not tell it.
    pub id: Option<AttachmentId>,
    /// The instance.
    pub instance: InstanceId,
    /// The network card.
    pub card: CardIndex,
    /// The place on it.
    pub device: DeviceIndex,
    /// How far it is.
    pub state: AttachmentState,
    /// `DeleteOnTermination`; IMDS does not tell it.
    pub delete_on_termination: Option<bool>,
}

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachmentState {
    /// Accepted, not there yet.
    Attaching,
    /// There. All that IMDS shows is.
    Attached,
    /// On its way out.
    Detaching,
}
