//! The core's state for those who only look: the repair pass, introspection, metrics.

use crate::{Action, BranchEni, EniKind, PodAddress, Remedy, Ticket, Waiting};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, Mac, PodKey, PodName, SubnetId, TableId, Time,
};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The whole state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The ENIs in use, by card and place.
    pub enis: Vec<EniView>,
    /// The pods that hold an address, by key.
    pub pods: Vec<PodView>,
    /// The addresses that cool.
    pub cooling: Vec<CoolingView>,
    /// The pool in numbers.
    pub counts: Counts,
    /// Addresses that the targets lack, what was asked for counted as if it were there.
    pub short: u64,
    /// Whether pods of card 0 use all the addresses that it may have: of its ENIs and of their
    /// places, or as many as the node runs pods, or all there are where others provide them.
    pub full: bool,
    /// What the planner waits for, and why.
    pub waiting: Vec<Waiting>,
    /// Why the trunk ENI that the node wants is missing, once it should have come.
    pub trunk_missing: Option<TrunkMissing>,
    /// The Reserves that have waited longest, in order.
    pub waiters: Vec<WaiterView>,
    /// How often EC2 may be called, by action; those that were never called are left out.
    pub budgets: Vec<BudgetView>,
}

/// Pods with branch ENIs cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrunkMissing {
    /// What keeps it away.
    pub cause: &'static str,
    /// What a person can do.
    pub next_step: &'static str,
}

/// A Reserve that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Whose answer it waits for.
    pub ticket: Ticket,
    /// The pod.
    pub pod: PodName,
    /// Whether it waits for its branch ENI, and not for an address of the pool.
    pub branch: bool,
}

/// The token bucket of one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// The action.
    pub action: Action,
    /// Calls that may be made at once, in thousandths.
    pub milli_tokens: u64,
    /// Calls that come to it, in thousandths a second.
    pub rate_milli_per_second: u64,
    /// What would come to it if EC2 throttled nothing.
    pub ceiling_milli_per_second: u64,
    /// Calls that it holds at most.
    pub burst: u32,
    /// What EC2 answered last, and what is to be done about it, if no call has gone through since.
    pub fault: Option<(Arc<str>, Remedy)>,
}

/// An ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EniView {
    /// The ENI.
    pub id: EniId,
    /// Its attachment, as far as known.
    pub attachment: Option<AttachmentId>,
    /// Its MAC address, by which the link is found.
    pub mac: Mac,
    /// Its network card.
    pub card: CardIndex,
    /// Its place on it; 0 on card 0 is the primary ENI.
    pub device: DeviceIndex,
    /// Its route table.
    pub table: TableId,
    /// Its subnet.
    pub subnet: SubnetId,
    /// The subnet's IPv4 addresses; the gateway is the first after the network address.
    pub subnet_cidr: Option<Ipv4Net>,
    /// The subnet's IPv6 addresses.
    pub subnet_cidr_v6: Option<Ipv6Net>,
    /// Its primary IPv4 address; ENIs of IPv6-only subnets have none.
    pub primary_address: Option<Ipv4Addr>,
    /// The first of its own IPv6 addresses.
    pub primary_v6: Option<Ipv6Addr>,
    /// What it is for, once EC2 has told.
    pub kind: Option<EniKind>,
    /// The blocks of addresses that it holds for pods, whatever their state.
    pub blocks: Vec<IpNet>,
    /// Whether pods may get no new addresses of it; held ones stay.
    pub excluded: bool,
    /// Whether a repair pass found its link and routing right.
    pub ready: bool,
    /// Whether the core uses it. Others only occupy a place, and nobody touches their networking.
    pub managed: bool,
    /// Whether it is on its way out: its host networking is to go.
    pub leaving: bool,
    /// Whether two witnesses say that it is gone, while pods still hold addresses of it.
    pub missing: bool,
    /// The blocks that two witnesses say are gone from it, while pods still hold addresses of them.
    pub lost: Vec<IpNet>,
    /// The numbers of this ENI.
    pub counts: Counts,
}

/// A pod's interface that holds an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// The interface.
    pub key: PodKey,
    /// Its pod.
    pub pod: PodName,
    /// Its addresses: one, or one of each card.
    pub addresses: Vec<PodAddress>,
    /// Its branch ENI, if it has one instead.
    pub branch: Option<BranchEni>,
    /// Whether the plugin confirmed it; the repair pass defends confirmed ones and spares others.
    pub confirmed: bool,
    /// The host end's name, once confirmed.
    pub host_interface: Option<String>,
    /// When it was reserved, or taken over by this process.
    pub since: Time,
}

/// An address that cools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoolingView {
    /// The address.
    pub address: IpAddr,
    /// When it was released.
    pub released: Time,
    /// When its cooldown is over.
    pub until: Time,
    /// Whether the kernel was seen without it since.
    pub kernel_clean: bool,
}

/// Addresses in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// ENIs, those that only occupy a place among them.
    pub enis: u32,
    /// ENIs that may be attached: the type's limit or `MAX_ENI`.
    pub max_enis: u32,
    /// All addresses that pods hold, held or may hold. A /80 counts with all its 2⁴⁸.
    pub total: u64,
    /// Held by pods, confirmed or not.
    pub assigned: u32,
    /// Keys whose reservation is not confirmed yet.
    pub reserved: u32,
    /// Cooling.
    pub cooling: u32,
    /// Neither.
    pub free: u64,
    /// Of the free ones: those that a Reserve would get at once.
    pub usable: u64,
    /// Reserves that wait.
    pub waiting: u32,
    /// Pods that Kubernetes has bound to the node and that have not asked yet.
    pub coming: u32,
    /// Cloud calls under way.
    pub calls: u32,
}
