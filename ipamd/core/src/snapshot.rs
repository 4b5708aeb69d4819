//! The core's state for those who only look: the repair pass, introspection, metrics.

use crate::Waiting;
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, Mac, PodKey, PodName, SubnetId, TableId, Time,
};
use ipnet::Ipv4Net;
use std::{collections::BTreeSet, net::Ipv4Addr};

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
    /// What the planner waits for, and why.
    pub waiting: Vec<Waiting>,
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
    /// The subnet's addresses; the gateway is the first after the network address.
    pub subnet_cidr: Ipv4Net,
    /// Its primary address.
    pub primary_address: Ipv4Addr,
    /// Its secondary addresses, whatever their state.
    pub addresses: BTreeSet<Ipv4Addr>,
    /// Whether a repair pass found its link and routing right.
    pub ready: bool,
    /// Whether the core uses it. Others only occupy a place, and nobody touches their networking.
    pub managed: bool,
    /// Whether it is on its way out: its host networking is to go.
    pub leaving: bool,
    /// Whether two witnesses say that it is gone, while pods still hold addresses of it.
    pub missing: bool,
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
    /// Its address.
    pub address: Ipv4Addr,
    /// The address's ENI.
    pub eni: EniId,
    /// The ENI's network card.
    pub card: CardIndex,
    /// The ENI's place on it.
    pub device: DeviceIndex,
    /// The ENI's route table.
    pub table: TableId,
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
    pub address: Ipv4Addr,
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
    /// All secondary addresses.
    pub total: u32,
    /// Held by pods, confirmed or not.
    pub assigned: u32,
    /// Of these: not confirmed yet.
    pub reserved: u32,
    /// Cooling.
    pub cooling: u32,
    /// Neither.
    pub free: u32,
    /// Of the free ones: those that a Reserve would get at once.
    pub usable: u32,
    /// Reserves that wait.
    pub waiting: u32,
    /// Cloud calls under way.
    pub calls: u32,
}
