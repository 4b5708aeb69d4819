//! The calls to the cloud and their answers.

mod seen;

pub use seen::{AttachmentState, EniKind, Leftover, SeenAttachment, SeenEni, SeenSubnet};

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, SecurityGroupId, Span, SubnetId, VpcId,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The number of a call, under which its result returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub u64);

/// The number and the kind of requested blocks. A new ENI may have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// Single IPv4 addresses (`SecondaryPrivateIpAddressCount`).
    Addresses(u16),
    /// IPv4 prefixes of 16 addresses, /28 (`Ipv4PrefixCount`).
    Prefixes(u16),
    /// IPv6 prefixes, /80 (`Ipv6PrefixCount`).
    Ipv6Prefixes(u16),
}

impl Want {
    /// Each block uses one of the ENI's address slots.
    pub fn blocks(self) -> u16 {
        match self {
            Self::Addresses(count) | Self::Prefixes(count) | Self::Ipv6Prefixes(count) => count,
        }
    }

    pub fn addresses(self) -> u64 {
        match self {
            Self::Addresses(count) => u64::from(count),
            Self::Prefixes(count) => u64::from(count) << 4,
            Self::Ipv6Prefixes(count) => u64::from(count) << 48,
        }
    }
}

/// A call to the cloud with all its parameters: the adapter decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudCall {
    /// Create an ENI; the answer is [`CloudAnswer::Created`]. EC2 creates only one ENI per token.
    CreateEni {
        /// The `ClientToken`.
        token: String,
        subnet: SubnetId,
        groups: Vec<SecurityGroupId>,
        /// The blocks besides its primary address.
        want: Want,
        tags: BTreeMap<String, String>,
        description: String,
    },
    /// Attach an ENI to this instance; the answer is [`CloudAnswer::Attached`].
    AttachEni {
        eni: EniId,
        instance: InstanceId,
        card: CardIndex,
        /// The device number.
        device: DeviceIndex,
    },
    /// Set `DeleteOnTermination`, so that EC2 deletes the ENI with the instance. [`CloudAnswer::Done`].
    KeepUntilTermination { eni: EniId, attachment: AttachmentId },
    /// Assign addresses or prefixes; the answer is [`CloudAnswer::Assigned`].
    Assign { eni: EniId, want: Want },
    /// Return blocks, all of one kind: single addresses, /28 or /80. [`CloudAnswer::Done`].
    Unassign { eni: EniId, blocks: Vec<IpNet> },
    /// Detach an ENI. [`CloudAnswer::Done`] as soon as EC2 accepts it.
    DetachEni { eni: EniId, attachment: AttachmentId },
    /// Delete a detached ENI. [`CloudAnswer::Done`].
    DeleteEni { eni: EniId },
    /// Describe one ENI, for example after a lost reply; the answer is [`CloudAnswer::Described`].
    DescribeEni { eni: EniId },
    /// Describe the branch ENIs of a trunk, all pages; the answer is [`CloudAnswer::Branches`].
    DescribeBranches { trunk: EniId },
    /// Replace an ENI's security groups. [`CloudAnswer::Done`].
    SetGroups {
        eni: EniId,
        /// The complete new list.
        groups: Vec<SecurityGroupId>,
    },
    /// Add tags to an ENI; an existing tag is replaced. [`CloudAnswer::Done`].
    TagEni { eni: EniId, tags: BTreeMap<String, String> },
    /// Describe the subnets of a zone, all pages; the answer is [`CloudAnswer::Subnets`].
    DescribeSubnets {
        vpc: VpcId,
        /// The availability zone, such as `eu-central-1a`.
        zone: String,
    },
    /// Find unattached ENIs, all pages; the answer is [`CloudAnswer::Leftovers`].
    FindLeftovers {
        vpc: VpcId,
        /// Tags that the ENIs must all have.
        tags: BTreeMap<String, String>,
        description_prefix: String,
    },
}

/// The kind of a call. Back-off, budget and metrics are per action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Create,
    Attach,
    Modify,
    Assign,
    Unassign,
    AssignIpv6,
    UnassignIpv6,
    Detach,
    Delete,
    Describe,
    DescribeSubnets,
    Tag,
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
            Self::AssignIpv6 => "AssignIpv6Addresses",
            Self::UnassignIpv6 => "UnassignIpv6Addresses",
            Self::Detach => "DetachNetworkInterface",
            Self::Delete => "DeleteNetworkInterface",
            Self::Describe => "DescribeNetworkInterfaces",
            Self::DescribeSubnets => "DescribeSubnets",
            Self::Tag => "CreateTags",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CloudCall {
    pub fn action(&self) -> Action {
        match self {
            Self::CreateEni { .. } => Action::Create,
            Self::AttachEni { .. } => Action::Attach,
            Self::KeepUntilTermination { .. } | Self::SetGroups { .. } => Action::Modify,
            Self::Assign { want: Want::Ipv6Prefixes(_), .. } => Action::AssignIpv6,
            Self::Assign { .. } => Action::Assign,
            Self::Unassign { blocks, .. } => match blocks.first() {
                Some(IpNet::V6(_)) => Action::UnassignIpv6,
                Some(IpNet::V4(_)) | None => Action::Unassign,
            },
            Self::DetachEni { .. } => Action::Detach,
            Self::DeleteEni { .. } => Action::Delete,
            Self::DescribeEni { .. }
            | Self::DescribeBranches { .. }
            | Self::FindLeftovers { .. } => Action::Describe,
            Self::DescribeSubnets { .. } => Action::DescribeSubnets,
            Self::TagEni { .. } => Action::Tag,
        }
    }
}

/// The answer to a successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudAnswer {
    /// The new ENI, not attached yet.
    Created(SeenEni),
    /// EC2 accepted the attachment; the link appears later.
    Attached {
        attachment: AttachmentId,
    },
    /// The blocks that this call added, not all blocks of the ENI.
    Assigned {
        /// Addresses (/32) or prefixes (/28, /80).
        blocks: Vec<IpNet>,
    },
    /// The ENI in EC2's answer. An ENI that does not exist is a fault with [`Remedy::Gone`].
    Described(SeenEni),
    /// The branch ENIs of one trunk, by the tags of the VPC resource controller.
    Branches(Vec<SeenEni>),
    Subnets(Vec<SeenSubnet>),
    /// The unattached ENIs.
    Leftovers(Vec<Leftover>),
    Done,
}

/// A failed call. The adapter sorts its errors by what the core should do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct CloudFault {
    /// EC2's error code, or the adapter's (`Timeout`, `Dispatch`).
    pub code: String,
    pub message: String,
    pub remedy: Remedy,
}

/// The next step after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// EC2 did nothing, and the same call may succeed later: throttling, an internal error that EC2 reported, an
    /// attachment between two states.
    RetryAfter {
        /// The pause that EC2 asks for, if any.
        wait: Option<Span>,
    },
    /// EC2 did nothing, because the place is taken or full. Create and Assign: the subnet has no free addresses
    /// (`InsufficientFreeAddressesInSubnet`, or an `InvalidParameterValue` with this meaning). Attach: the device
    /// index is in use.
    TryElsewhere,
    /// EC2 did nothing, and only a person can help: a missing permission, a rejected parameter.
    NotifyOperator,
    /// The object does not exist: `…NotFound`.
    Gone,
    /// EC2 did nothing, because a limit of the ENI, the instance or the account is reached:
    /// `PrivateIpAddressLimitExceeded`, `AttachmentLimitExceeded`, `NetworkInterfaceLimitExceeded`.
    LimitReached,
    /// The reply was lost: time-out, broken connection. EC2 may have acted, so check first.
    Unknown,
}
