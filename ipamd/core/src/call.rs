//! What the core asks of the cloud, and how the cloud answers.

mod seen;

pub use seen::{AttachmentState, EniKind, Leftover, SeenAttachment, SeenEni, SeenSubnet};

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, SecurityGroupId, Span, SubnetId, VpcId,
};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// One call to the cloud; its result comes back under the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(pub u64);

/// How many blocks of which kind a call asks for. A new ENI may be asked for without any.
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
    /// How many blocks: each takes one of the places that the ENI has for addresses.
    pub fn blocks(self) -> u16 {
        match self {
            Self::Addresses(count) | Self::Prefixes(count) | Self::Ipv6Prefixes(count) => count,
        }
    }

    /// How many addresses they hold together.
    pub fn addresses(self) -> u64 {
        match self {
            Self::Addresses(count) => u64::from(count),
            Self::Prefixes(count) => u64::from(count) << 4,
            Self::Ipv6Prefixes(count) => u64::from(count) << 48,
        }
    }
}

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
        /// What it holds beside its primary address.
        want: Want,
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
    /// Assign addresses or prefixes; answered by [`CloudAnswer::Assigned`].
    Assign {
        /// The ENI.
        eni: EniId,
        /// What.
        want: Want,
    },
    /// Give blocks back, all of one kind: single addresses, /28 or /80. [`CloudAnswer::Done`].
    Unassign {
        /// The ENI.
        eni: EniId,
        /// Which.
        blocks: Vec<IpNet>,
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
    /// Replace an ENI's security groups. [`CloudAnswer::Done`].
    SetGroups {
        /// The ENI.
        eni: EniId,
        /// All that it is to have.
        groups: Vec<SecurityGroupId>,
    },
    /// Add tags to an ENI; a tag of the same name is replaced. [`CloudAnswer::Done`].
    TagEni {
        /// The ENI.
        eni: EniId,
        /// The tags.
        tags: BTreeMap<String, String>,
    },
    /// Look at the subnets of a zone, all pages; answered by [`CloudAnswer::Subnets`].
    DescribeSubnets {
        /// The VPC.
        vpc: VpcId,
        /// The availability zone, such as `eu-central-1a`.
        zone: String,
    },
    /// Look for ENIs that nobody uses, all pages; answered by [`CloudAnswer::Leftovers`].
    FindLeftovers {
        /// The VPC.
        vpc: VpcId,
        /// Tags that they carry, all of them.
        tags: BTreeMap<String, String>,
        /// How their descriptions begin.
        description_prefix: String,
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
    /// `AssignIpv6Addresses`
    AssignIpv6,
    /// `UnassignIpv6Addresses`
    UnassignIpv6,
    /// `DetachNetworkInterface`
    Detach,
    /// `DeleteNetworkInterface`
    Delete,
    /// `DescribeNetworkInterfaces`
    Describe,
    /// `DescribeSubnets`
    DescribeSubnets,
    /// `CreateTags`
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
    /// The kind of this call.
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
            Self::DescribeEni { .. } | Self::FindLeftovers { .. } => Action::Describe,
            Self::DescribeSubnets { .. } => Action::DescribeSubnets,
            Self::TagEni { .. } => Action::Tag,
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
    /// These blocks were added by this call (not: all that the ENI has).
    Assigned {
        /// The added addresses (/32) or prefixes (/28, /80).
        blocks: Vec<IpNet>,
    },
    /// The ENI as EC2 shows it. That it does not exist is a fault with [`Remedy::Gone`].
    Described(SeenEni),
    /// The subnets.
    Subnets(Vec<SeenSubnet>),
    /// ENIs that nobody uses.
    Leftovers(Vec<Leftover>),
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
