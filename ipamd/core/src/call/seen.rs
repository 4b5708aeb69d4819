//! What the cloud shows: ENIs and subnets as they are, or were a while ago.

use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, Span, SubnetId,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A subnet as EC2 shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSubnet {
    /// The subnet.
    pub id: SubnetId,
    /// Its IPv4 addresses; an IPv6-only subnet has none.
    pub cidr: Option<Ipv4Net>,
    /// Its IPv6 addresses.
    pub cidr_v6: Option<Ipv6Net>,
    /// IPv4 addresses that nobody has, as EC2 counts them: those of fragmented ranges too.
    pub free_addresses: u32,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// An ENI that nobody uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The ENI.
    pub eni: EniId,
    /// Its subnet.
    pub subnet: SubnetId,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Its description.
    pub description: String,
    /// How long ago it was made by its tag `node.k8s.amazonaws.com/createdAt` and the adapter's
    /// wall clock; `None` if there is no such tag or it cannot be read.
    pub age: Option<Span>,
    /// The tag is there and is no time.
    pub created_unreadable: bool,
    /// EC2's status of it is `available`: attached to nothing.
    pub available: bool,
}

/// What an ENI is for, as EC2 sorts it (`InterfaceType`, and EFA by its own field).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EniKind {
    /// An ordinary one.
    Standard,
    /// With an Elastic Fabric Adapter beside its addresses.
    Efa,
    /// Nothing but an Elastic Fabric Adapter: it has no addresses.
    EfaOnly,
    /// It carries branch ENIs: pods with security groups of their own.
    Trunk,
    /// Carried by a trunk.
    Branch,
    /// Somebody's service.
    Other,
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
    /// The subnet's IPv4 addresses, where the witness knows them (IMDS does, EC2 does not).
    pub subnet_cidr: Option<Ipv4Net>,
    /// The subnet's IPv6 addresses, where the witness knows them.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// Its primary IPv4 address, which no pod gets; ENIs of IPv6-only subnets have none.
    pub primary_address: Option<Ipv4Addr>,
    /// Its own IPv6 addresses, which no pod gets.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// What pods may get of it: secondary addresses (/32), prefixes (/28 and /80).
    pub blocks: Vec<IpNet>,
    /// Its attachment; `None` if it is attached to nothing.
    pub attachment: Option<SeenAttachment>,
    /// What it is for, where the witness knows it (EC2 does, IMDS does not).
    pub kind: Option<EniKind>,
    /// Its security groups, where the witness tells them.
    pub groups: Option<Vec<SecurityGroupId>>,
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
