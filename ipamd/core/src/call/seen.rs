//! ENIs and subnets as the cloud shows them, possibly with a lag.

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, Span, SubnetId,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A subnet in an EC2 answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSubnet {
    pub id: SubnetId,
    /// `None` for an IPv6-only subnet.
    pub cidr: Option<Ipv4Net>,
    pub cidr_v6: Option<Ipv6Net>,
    /// Free IPv4 addresses by EC2's count, those of fragmented ranges included.
    pub free_addresses: u32,
    pub tags: BTreeMap<String, String>,
}

/// An ENI that is attached to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    pub eni: EniId,
    pub subnet: SubnetId,
    pub tags: BTreeMap<String, String>,
    pub description: String,
    /// The time since its creation, by its tag `node.k8s.amazonaws.com/createdAt` and the adapter's wall clock. `None`
    /// if the tag is missing or unreadable.
    pub age: Option<Span>,
    /// The tag exists but is not a time.
    pub created_unreadable: bool,
    /// EC2's status is `available`: attached to nothing.
    pub available: bool,
}

/// The purpose of an ENI by EC2's `InterfaceType`; EFA has a field of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EniKind {
    Standard,
    /// With an Elastic Fabric Adapter besides its addresses.
    Efa,
    /// An Elastic Fabric Adapter without addresses.
    EfaOnly,
    /// Carries branch ENIs.
    Trunk,
    /// A branch ENI, which a trunk carries.
    Branch,
    /// An ENI of an AWS service.
    Other,
}

/// An ENI in a witness's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEni {
    pub id: EniId,
    /// Identifies the link.
    pub mac: Mac,
    pub subnet: SubnetId,
    /// `None` from EC2; IMDS shows it.
    pub subnet_cidr: Option<Ipv4Net>,
    /// `None` from EC2; IMDS shows it.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// No pod gets it. ENIs of IPv6-only subnets have none.
    pub primary_address: Option<Ipv4Addr>,
    /// The ENI's own IPv6 addresses, which no pod gets.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// The blocks for pods: secondary addresses (/32), prefixes (/28 and /80).
    pub blocks: Vec<IpNet>,
    /// `None` if it is attached to nothing.
    pub attachment: Option<SeenAttachment>,
    /// `None` from IMDS; EC2 shows it.
    pub kind: Option<EniKind>,
    /// `None` if the witness does not show them.
    pub groups: Option<Vec<SecurityGroupId>>,
    /// `None` from IMDS; EC2 shows them.
    pub tags: Option<BTreeMap<String, String>>,
}

/// The attachment of an observed ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenAttachment {
    /// `None` from IMDS.
    pub id: Option<AttachmentId>,
    pub instance: InstanceId,
    pub card: CardIndex,
    /// The device number.
    pub device: DeviceIndex,
    pub state: AttachmentState,
    /// `None` from IMDS.
    pub delete_on_termination: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttachmentState {
    /// Accepted, not visible yet.
    Attaching,
    /// The only state that IMDS shows.
    Attached,
    Detaching,
}
