//! The objects of the cloud, as EC2 shows them.

mod association;
mod group;
mod reservation;

pub use association::TrunkAssociation;
pub use group::{GroupIdentifier, Peer, Protocol, Rule, SecurityGroup};
pub use reservation::{Reservation, ReservationKind};

use crate::InstanceType;
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, Mac, SubnetId, Time, VpcId,
};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag {
    /// The key, unique on a resource.
    pub key: String,
    /// The value, which may be empty.
    pub value: String,
}

impl Tag {
    /// A tag.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Vpc {
    pub id: VpcId,
    /// The account.
    pub owner_id: String,
    /// Its CIDR blocks, the primary first.
    pub cidrs: Vec<Ipv4Net>,
    /// Its IPv6 blocks; Amazon gives a /56.
    pub ipv6_cidrs: Vec<Ipv6Net>,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Subnet {
    pub id: SubnetId,
    /// The name that the operator gave.
    pub name: String,
    pub vpc_id: VpcId,
    /// The account.
    pub owner_id: String,
    /// Its addresses.
    pub cidr: Ipv4Net,
    /// Its IPv6 addresses, a /64.
    pub ipv6_cidr: Option<Ipv6Net>,
    /// For example `eu-west-1a`.
    pub availability_zone: String,
    /// For example `euw1-az1`.
    pub availability_zone_id: String,
    /// Addresses that can still be given out; EC2 keeps five for itself.
    pub available_ip_address_count: u32,
    /// True if the primary ENI of a new instance gets a public address.
    pub map_public_ip_on_launch: bool,
    /// True if each new ENI gets an IPv6 address.
    pub assign_ipv6_address_on_creation: bool,
    pub tags: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EniStatus {
    /// Just made.
    Pending,
    /// Not attached.
    Available,
    /// An attached ENI; its attachment can still be attaching or already detaching.
    InUse,
    /// A branch of a trunk.
    Associated,
}

impl EniStatus {
    /// The word that EC2 uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Available => "available",
            Self::InUse => "in-use",
            Self::Associated => "associated",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentStatus {
    /// Asked for; the instance does not see the device yet.
    Attaching,
    /// Plugged in.
    Attached,
    /// Unplugging was asked for; the device is still there.
    Detaching,
}

impl AttachmentStatus {
    /// The word that EC2 uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attaching => "attaching",
            Self::Attached => "attached",
            Self::Detaching => "detaching",
        }
    }
}

/// The tie of an ENI to an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attachment {
    pub id: AttachmentId,
    pub instance_id: InstanceId,
    /// The place on the card.
    pub device_index: DeviceIndex,
    pub network_card_index: CardIndex,
    pub status: AttachmentStatus,
    /// When it was asked for.
    pub attach_time: Time,
    /// True if the end of the instance deletes the ENI.
    pub delete_on_termination: bool,
}

/// A private address of an ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PrivateAddress {
    pub address: Ipv4Addr,
    /// True for the ENI's own address.
    pub primary: bool,
}

/// Purpose of an ENI; EC2's `InterfaceType`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceKind {
    /// A plain one.
    #[default]
    Interface,
    /// With an elastic fabric adapter beside the network device.
    Efa,
    /// An elastic fabric adapter alone: no network device, no addresses.
    EfaOnly,
    /// Carries branches.
    Trunk,
    /// Not attached to an instance, but associated with a trunk by a VLAN id.
    Branch,
}

impl InterfaceKind {
    /// The word that EC2 uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Efa => "efa",
            Self::EfaOnly => "efa-only",
            Self::Trunk => "trunk",
            Self::Branch => "branch",
        }
    }
}

/// An ENI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkInterface {
    pub id: EniId,
    pub subnet_id: SubnetId,
    pub vpc_id: VpcId,
    pub availability_zone: String,
    /// The account.
    pub owner_id: String,
    /// Creator of the ENI: an access key's owner or a role session.
    pub requester_id: String,
    /// Free text.
    pub description: String,
    pub mac: Mac,
    pub status: EniStatus,
    pub kind: InterfaceKind,
    /// Its addresses, the primary first; an efa-only ENI has none.
    pub private_addresses: Vec<PrivateAddress>,
    /// Its delegated /28 prefixes.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Its IPv6 addresses, in the order in which they came.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// Its delegated /80 prefixes.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// A public address, mapped to the primary one.
    pub public_ip: Option<Ipv4Addr>,
    /// Its security groups.
    pub groups: Vec<GroupIdentifier>,
    /// True if packets from or to other addresses are dropped.
    pub source_dest_check: bool,
    pub attachment: Option<Attachment>,
    pub tags: BTreeMap<String, String>,
}

impl NetworkInterface {
    /// The primary address; an efa-only ENI has none.
    pub fn primary_address(&self) -> Option<Ipv4Addr> {
        self.private_addresses.first().map(|first| first.address)
    }

    pub fn secondary_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.private_addresses.iter().filter(|a| !a.primary).map(|a| a.address)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    /// Launching, or starting after a stop.
    Pending,
    /// Up.
    Running,
    Stopping,
    /// Down, ENIs and private addresses kept.
    Stopped,
    /// Going for good.
    ShuttingDown,
    /// Gone; EC2 still shows it for an hour.
    Terminated,
}

impl InstanceState {
    /// The word that EC2 uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    /// The number that EC2 gives beside the word.
    pub const fn code(self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
            Self::Stopping => 64,
            Self::Stopped => 80,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instance {
    pub id: InstanceId,
    /// The reservation of its launch, `r-…`.
    pub reservation_id: String,
    /// The machine image, `ami-…`.
    pub image_id: String,
    /// Its type, such as `c5.xlarge`, as it is shown.
    pub instance_type: String,
    /// The type of [`InstanceType`]'s table whose limits it has.
    pub limits_of: &'static str,
    pub state: InstanceState,
    /// When it was launched, or last started.
    pub launch_time: Time,
    /// Its last boot: launch, start or reboot.
    pub boot_time: Time,
    /// Number of boots; a change means a new boot ID.
    pub boots: u32,
    /// The subnet of its primary ENI.
    pub subnet_id: SubnetId,
    pub vpc_id: VpcId,
    pub availability_zone: String,
    /// The IP TTL of IMDS answers.
    pub metadata_hop_limit: u8,
    /// True if IMDS shows its tags.
    pub metadata_tags: bool,
    /// The role of its instance profile.
    pub role: Option<String>,
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// The limits that EC2 holds it to.
    pub fn limits(&self) -> Option<&'static InstanceType> {
        InstanceType::named(self.limits_of)
    }
}
