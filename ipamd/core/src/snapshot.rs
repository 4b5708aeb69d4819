//! The state of the core for the repair pass, introspection and metrics.

use crate::{Action, BranchEni, EniKind, PodAddress, Remedy, SubnetSample, Ticket, Waiting};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, Mac, PodKey, PodName, SubnetId, TableId, Time,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The whole state at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By card and device number.
    pub enis: Vec<EniView>,
    /// The pods with an assignment, by key.
    pub pods: Vec<PodView>,
    pub cooling: Vec<CoolingView>,
    /// The node's pod CIDRs in the book, also removed ones with addresses in use.
    pub node_cidrs: Vec<NodeCidrView>,
    pub counts: Counts,
    /// The addresses that the targets lack; requests under way count as present.
    pub short: u64,
    /// Pods use all addresses that card 0 and the node's pod CIDRs may have. The type's ENIs and the pod limit bound
    /// them; if another program provides them, only the present ones count.
    pub full: bool,
    /// The delayed steps of the planner.
    pub waiting: Vec<Waiting>,
    /// The reason why the trunk ENI is missing, once it is overdue.
    pub trunk_missing: Option<TrunkMissing>,
    /// The Reserves that have waited longest, in order.
    pub waiters: Vec<WaiterView>,
    /// The budgets of actions that were called at least once.
    pub budgets: Vec<BudgetView>,
    /// The subnets of the zone with IPv4 addresses. Empty until EC2 has described them.
    pub subnets: Vec<SubnetView>,
}

/// A subnet of the zone in EC2's last answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetView {
    pub id: SubnetId,
    pub zone: String,
    pub cidr: Ipv4Net,
    /// EC2's count of free addresses, those of fragmented ranges included.
    pub available: u32,
    /// The start of the call that counted them.
    pub counted: Time,
    /// New ENIs may use it.
    pub for_pods: bool,
    /// Its tag `kubernetes.io/role/cni` is 0.
    pub excluded: bool,
    /// The node has an ENI there.
    pub in_use: bool,
    /// The last request for a prefix there was refused.
    pub fragmented: bool,
    /// Oldest first; the last is the present count.
    pub samples: Vec<SubnetSample>,
}

impl SubnetView {
    /// The addresses that EC2 can assign, free or not: it reserves the first four and the last.
    pub fn total(&self) -> u64 {
        (1_u64 << (32 - self.cidr.prefix_len())).saturating_sub(5)
    }
}

/// The reason why pods with branch ENIs cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrunkMissing {
    pub cause: &'static str,
    pub next_step: &'static str,
}

/// A Reserve that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    pub ticket: Ticket,
    pub pod: PodName,
    /// The Reserve is for a branch ENI instead of an address of the pool.
    pub branch: bool,
}

/// The token bucket of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    pub action: Action,
    /// Calls that may be made at once, in thousandths.
    pub milli_tokens: u64,
    /// The current rate, in thousandths of a call per second.
    pub rate_milli_per_second: u64,
    /// The rate without throttling.
    pub ceiling_milli_per_second: u64,
    /// The most calls at once.
    pub burst: u32,
    /// EC2's last fault and its remedy, until a call succeeds.
    pub fault: Option<(Arc<str>, Remedy)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EniView {
    pub id: EniId,
    /// `None` while unknown.
    pub attachment: Option<AttachmentId>,
    /// Identifies the link.
    pub mac: Mac,
    pub card: CardIndex,
    /// The device number; 0 on card 0 is the primary ENI.
    pub device: DeviceIndex,
    /// The route table.
    pub table: TableId,
    pub subnet: SubnetId,
    /// The gateway is the first address after the network address.
    pub subnet_cidr: Option<Ipv4Net>,
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// `None` for ENIs of IPv6-only subnets.
    pub primary_address: Option<Ipv4Addr>,
    /// The first of its own IPv6 addresses.
    pub primary_v6: Option<Ipv6Addr>,
    /// `None` until EC2 has shown it.
    pub kind: Option<EniKind>,
    /// All blocks for pods, whatever their state.
    pub blocks: Vec<IpNet>,
    /// Pods get no new addresses of it; assigned ones stay.
    pub excluded: bool,
    /// A repair pass found its link and routing as desired.
    pub ready: bool,
    /// Pods may use it. Other ENIs only occupy a place, and the daemon does not touch their networking.
    pub managed: bool,
    /// The ENI is being removed, and its host networking too.
    pub leaving: bool,
    /// Two witnesses lack it, but pods still use its addresses.
    pub missing: bool,
    /// Blocks that two witnesses lack and pods still use.
    pub lost: Vec<IpNet>,
    pub counts: Counts,
}

/// A pod CIDR of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeCidrView {
    pub cidr: IpNet,
    /// The number of addresses that pods may get: without the network, gateway and broadcast addresses.
    pub total: u64,
    /// The number of addresses that are assigned or cool.
    pub used: u64,
    /// The CIDR is no longer in use: pods get no new addresses of it, and assigned ones stay.
    pub removed: bool,
}

/// The assignment of a pod's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub key: PodKey,
    pub pod: PodName,
    /// One, or one of each card.
    pub addresses: Vec<PodAddress>,
    /// The branch ENI, if it has one instead of addresses.
    pub branch: Option<BranchEni>,
    /// The plugin confirmed it. The repair pass repairs confirmed interfaces and leaves others alone.
    pub confirmed: bool,
    /// `None` until it is confirmed.
    pub host_interface: Option<String>,
    /// amazon-vpc-cni built it, so its host end has no alias.
    pub adopted: bool,
    /// The time of the reservation, or of this process's start.
    pub since: Time,
}

/// A cooling address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolingView {
    pub address: IpAddr,
    /// The time of the release.
    pub released: Time,
    /// The end of the cooldown.
    pub until: Time,
    /// An observation of the kernel since the release lacks it.
    pub kernel_clean: bool,
}

/// The pool in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All ENIs, also those that only occupy a place.
    pub enis: u32,
    /// The limit of the type or `MAX_ENI`.
    pub max_enis: u32,
    /// All addresses of the pool, used or free. A /80 counts with all its 2⁴⁸.
    pub total: u64,
    /// Assigned to pods, confirmed or not.
    pub assigned: u32,
    /// Keys whose reservation is not confirmed yet.
    pub reserved: u32,
    pub cooling: u32,
    /// Neither assigned nor cooling.
    pub free: u64,
    /// Free addresses that a Reserve would get at once.
    pub usable: u64,
    /// Reserves that wait.
    pub waiting: u32,
    /// Pods that are bound to the node and have not asked yet.
    pub coming: u32,
    /// Cloud calls under way.
    pub calls: u32,
}
