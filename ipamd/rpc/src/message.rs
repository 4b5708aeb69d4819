//! The messages as Rust types. [`conversion`] checks what arrives.

pub(crate) mod conversion;

use config_model::{
    DeviceIndex, EniId, HostEndMode, Mac, PodKey, PodName, RuleLayout, Span, TableId,
};
use ipnet::Ipv4Net;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A part of a message that breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} is not {wanted}")]
pub struct Malformed {
    pub field: &'static str,
    pub value: String,
    /// The expected content, with an article.
    pub wanted: &'static str,
}

/// The pod that an interface belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: PodName,
    /// `None` if the runtime did not send it.
    pub uid: Option<String>,
    /// amazon-vpc-cni's name of the sandbox; `None` if the runtime did not send it.
    pub infra_container_id: Option<String>,
}

/// A request for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The interface. The same key gets the same addresses.
    pub key: PodKey,
    pub pod: Pod,
    /// The pod's network namespace, as the runtime named it.
    pub netns: String,
    /// The longest wait for an address. It is shorter than the call's deadline, so that a refusal with its reason
    /// arrives in time.
    pub wait: Span,
    /// One address from each network card.
    pub multi_nic: bool,
}

/// The answer to [`Reserve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The addresses are reserved. The caller confirms them once they are set up.
    Reserved(Reservation),
    /// The pod's branch ENI is reserved instead of addresses.
    ReservedBranch(Branch),
    /// No address is reserved.
    Refused(Refusal),
}

/// Reserved addresses and the settings for their set-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// At least one. Each interface of the pod has one.
    pub addresses: Vec<PodAddress>,
    /// The VPC's IPv4 ranges.
    pub vpc_v4_cidrs: Vec<Ipv4Net>,
    /// Another device translates source addresses (`AWS_VPC_K8S_CNI_EXTERNALSNAT`).
    pub use_external_snat: bool,
    /// The layout of the host's rules for pods (`FERRULE_RULES`).
    pub rules: RuleLayout,
    /// The pod reaches the other family's destinations by a second address of its first interface.
    pub egress: bool,
    /// The mode of the host ends of all interfaces.
    pub host_end: HostEndMode,
}

/// A pod's address with its route table: IPv4, IPv6 or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodAddress {
    pub ipv4: Option<Ipv4Addr>,
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

/// The branch ENI of a pod with its own security groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub eni: EniId,
    /// Its MAC address.
    pub mac: Mac,
    /// The VLAN of the trunk that carries it: 1 to 4094.
    pub vlan: u16,
    /// The pod's address, of the pods' family.
    pub address: IpAddr,
    /// The router of the branch's subnet.
    pub gateway: IpAddr,
    /// The MAC address of the trunk ENI.
    pub trunk: Mac,
    /// The part of the pod's traffic that passes the branch.
    pub enforcing: Enforcing,
}

/// `POD_SECURITY_GROUP_ENFORCING_MODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcing {
    /// All traffic passes the branch, also traffic from and to the node.
    Strict,
    /// Traffic of the pod to destinations outside the node passes the branch.
    Standard,
}

/// The refusal of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: Reason,
    /// The failed action, its object and the cause.
    pub message: String,
    /// The next step for a person.
    pub next_step: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No address in time; another try may find one. Also any reason that a newer daemon may give.
    TryAgain,
    /// The subnet, the ENI or the instance type has no room.
    Exhausted,
    /// The request contradicts itself or the address book.
    Invalid,
    /// The daemon is stopping.
    Stopping,
}

/// The plugin has built the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirm {
    pub key: PodKey,
    pub host_interface: String,
}

/// The release of an interface's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Of which interface.
    pub key: PodKey,
    /// `None` if the DEL does not name it.
    pub pod: Option<Pod>,
    pub cause: ReleaseCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    PodDeleted,
    /// The plugin could not set up the pod's network.
    SetupFailed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The key had these addresses.
    Known(Vec<PodAddress>),
    /// The key had no assignment.
    Unknown,
}

/// The assignment of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// `None` from a daemon that is older than the field.
    pub pod: Option<PodName>,
    pub addresses: Vec<PodAddress>,
    /// The branch ENI, if the key has one instead of addresses.
    pub branch: Option<Branch>,
    /// The plugin has sent [`Confirm`].
    pub confirmed: bool,
    /// The layout of the host's rules for pods.
    pub rules: RuleLayout,
    /// The mode of the host ends of all interfaces. A branch ENI's is always routed.
    pub host_end: HostEndMode,
}

/// The state of the pool and of running pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// The reasons why an ADD would fail; empty if it would succeed.
    pub unavailable: Vec<String>,
    /// The faults of running pods' networks.
    pub impaired: Vec<String>,
}

/// A request to release all interfaces of a network that are not in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    /// Interfaces of other networks stay.
    pub network: String,
    /// The interfaces that stay; keys of this network.
    pub valid: BTreeSet<PodKey>,
}

/// The result for the interfaces of a network that were not in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The released interfaces and their addresses.
    pub released: BTreeMap<PodKey, Vec<PodAddress>>,
    /// The interfaces of ADDs under way, which stay.
    pub spared: BTreeSet<PodKey>,
    /// The interfaces that could not be released, with the cause.
    pub failed: BTreeMap<PodKey, String>,
}
