//! The messages in our words. Checked in both directions: see `conversion` for the rules.

pub(crate) mod conversion;

use config_model::{DeviceIndex, EniId, Mac, PodKey, PodName, RuleLayout, Span, TableId};
use ipnet::Ipv4Net;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Part of a message that breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} is not {wanted}")]
pub struct Malformed {
    /// Which part.
    pub field: &'static str,
    /// What it held.
    pub value: String,
    /// What belongs there, with an article.
    pub wanted: &'static str,
}

/// The pod that an interface belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub name: PodName,
    /// Its uid, when the runtime told it.
    pub uid: Option<String>,
    /// The sandbox by the name that amazon-vpc-cni uses, when the runtime told it.
    pub infra_container_id: Option<String>,
}

/// Asks for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// For which interface. The same key gets the same addresses.
    pub key: PodKey,
    /// Of which pod.
    pub pod: Pod,
    /// The pod's network namespace, as the runtime named it.
    pub netns: String,
    /// How long to wait for an address. Shorter than the call's deadline, or the refusal that says
    /// why comes too late.
    pub wait: Span,
    /// One address from each network card.
    pub multi_nic: bool,
}

/// The answer to [`Reserve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The addresses are the caller's; to be confirmed once they are set up.
    Reserved(Reservation),
    /// The pod's branch ENI is the caller's, in the place of addresses.
    ReservedBranch(Branch),
    /// There is none.
    Refused(Refusal),
}

/// Addresses held for a caller, and what it needs to set them up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// One for each interface of the pod; at least one.
    pub addresses: Vec<PodAddress>,
    /// The VPC's IPv4 ranges.
    pub vpc_v4_cidrs: Vec<Ipv4Net>,
    /// Somebody else translates source addresses.
    pub use_external_snat: bool,
    /// How the host's rules for pods are laid out.
    pub rules: RuleLayout,
    /// The pod reaches the other family's destinations by a second address of its first interface.
    pub egress: bool,
}

/// An address and the way out of it. Has an IPv4 or an IPv6 address or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The ENI's device number on its card; 0 without an ENI.
    pub device: DeviceIndex,
    /// The ENI's route table; the main table without an ENI.
    pub table: TableId,
    /// `None` for an address of a pod CIDR of the node; empty on the wire.
    pub eni: Option<EniId>,
}

impl PodAddress {
    /// The addresses of both families.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let v4 = self.ipv4.map(IpAddr::V4);
        v4.into_iter().chain(self.ipv6.map(IpAddr::V6))
    }
}

/// The branch ENI of a pod with security groups of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The ENI.
    pub eni: EniId,
    /// Its MAC address.
    pub mac: Mac,
    /// The VLAN of the trunk that carries it: 1 to 4094.
    pub vlan: u16,
    /// Its address, of the pods' family: the pod's.
    pub address: IpAddr,
    /// The router of its subnet.
    pub gateway: IpAddr,
    /// The MAC address of the trunk that carries it.
    pub trunk: Mac,
    /// Which of the pod's traffic passes the branch.
    pub enforcing: Enforcing,
}

/// `POD_SECURITY_GROUP_ENFORCING_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcing {
    /// All of it, that from and to the node included.
    Strict,
    /// What the pod sends beyond the node.
    Standard,
}

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of reason.
    pub reason: Reason,
    /// What happened, and to which object.
    pub message: String,
    /// What a person can do about it.
    pub next_step: String,
}

/// The kinds of reason for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No address in time; another try may find one. Also any reason that a newer daemon may give.
    TryAgain,
    /// The subnet, the ENI or the instance type has no room.
    Exhausted,
    /// The request contradicts itself or what is known.
    Invalid,
    /// The daemon is going away.
    Stopping,
}

/// Says that everything is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirm {
    /// Of which interface.
    pub key: PodKey,
    /// The name of its host end.
    pub host_interface: String,
}

/// Gives addresses back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Of which interface.
    pub key: PodKey,
    /// Of which pod, when known: a DEL may come without its name.
    pub pod: Option<Pod>,
    /// Why.
    pub cause: ReleaseCause,
}

/// Why addresses come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// The pod is gone.
    PodDeleted,
    /// Its network could not be set up.
    SetupFailed,
}

/// What was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The key held these.
    Known(Vec<PodAddress>),
    /// The key held nothing.
    Unknown,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its addresses.
    pub addresses: Vec<PodAddress>,
    /// Its branch ENI, in the place of addresses.
    pub branch: Option<Branch>,
    /// Whether [`Confirm`] was seen.
    pub confirmed: bool,
    /// How the host's rules for pods are laid out.
    pub rules: RuleLayout,
}

/// How the pool and the pods that run are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// What keeps an ADD from succeeding; empty if one would succeed.
    pub unavailable: Vec<String>,
    /// What running pods suffer from.
    pub impaired: Vec<String>,
}

/// Asks to release all of a network but what is in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    /// The network. Others are not touched.
    pub network: String,
    /// What is to stay; keys of this network.
    pub valid: BTreeSet<PodKey>,
}

/// What became of the interfaces of a network that were not in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// These gave their addresses back.
    pub released: BTreeMap<PodKey, Vec<PodAddress>>,
    /// These are of ADDs under way, and nobody may touch them.
    pub spared: BTreeSet<PodKey>,
    /// These are still held, and why.
    pub failed: BTreeMap<PodKey, String>,
}
