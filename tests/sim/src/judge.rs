//! The laws, checked against the world and not against the core's own view.

mod deadlines;
mod quiet;
mod returns;

pub(crate) use deadlines::{Add, Demand};

use crate::host::Host;
use config_model::{EniId, PodKey, Span, TableId, Time};
use ipamd_core::{BlockSource, PodAddress};
use ipnet::IpNet;
use lab_cloud::NetworkInterface;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

/// A state that must never occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// Two pods have the same address.
    OnTwoPods,
    /// An address is given before the end of its cooldown.
    NotCooled,
    /// An address is given while the kernel has routes or rules of it.
    KernelDirty,
    /// An address is given that its ENI does not have, or with a wrong table.
    NotOnEni,
    /// A key gets another address than before.
    Readdressed,
    /// An address that is assigned, cools or is in the kernel goes back to EC2.
    Returned,
    /// A running pod loses its routes or rules.
    CutOff,
    /// The address of a running pod is routed to the link of another.
    LinkOfAnother,
    /// The node has more ENIs or addresses than the type or `MAX_ENI` allow.
    AboveLimits,
    /// A reply or a call leaves before its record is on disk.
    AheadOfDisk,
    /// A request is answered twice or never.
    NotAnsweredOnce,
    /// A request that could be served was refused.
    NotServed,
    /// The core schedules wake-ups without end.
    NeverRests,
    /// A branch ENI is given to another pod than its own.
    BranchOfAnother,
    /// A call is made that the mode forbids.
    Forbidden,
    /// An ENI is leaked.
    Leaked,
    /// The pool has less than its targets require.
    PoolShort,
    /// The pool has far more than its targets require.
    PoolOver,
    /// Compacting the checkpoint changes its meaning.
    Checkpoint,
    /// The model of the world is inconsistent.
    World,
}

/// A broken law.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub law: Law,
    pub at: Time,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.what)
    }
}

/// The assignment of an address as the world saw it.
#[derive(Clone, Debug)]
struct Assignment {
    key: PodKey,
    source: BlockSource,
    /// The time of the last reservation.
    reserved: Time,
    /// The ADD has succeeded and no DEL has started.
    running: bool,
    /// True once the ADD has succeeded, so that its reservation does not lapse.
    ran: bool,
    /// The time when it became unneeded: the DEL was sent, or the node lost its power.
    over: Option<Time>,
    /// A reply has left. Before that, a crash may undo the assignment.
    replied: bool,
    /// The start of its cooldown before this assignment.
    rested: Option<Time>,
}

impl Assignment {
    /// The earliest start of its cooldown.
    fn rests_from(&self, lifetime: Span) -> Time {
        let lapses = self.reserved + lifetime;
        match self.over {
            Some(over) if self.ran => over,
            Some(over) => over.min(lapses),
            None => lapses,
        }
    }
}

/// The judge of one life.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) broken: Option<Violation>,
    holds: BTreeMap<IpAddr, Assignment>,
    /// The start of the cooldown of each unassigned address.
    resting: BTreeMap<IpAddr, Time>,
    cooldown: Span,
    lifetime: Span,
    /// Addresses and ENIs that others removed, and the ENIs of the addresses.
    pub(crate) harmed: BTreeMap<IpNet, EniId>,
    pub(crate) harmed_enis: BTreeSet<EniId>,
    /// Assignments whose reply a crash prevented. Their record may be on disk.
    unreplied: BTreeMap<IpAddr, PodKey>,
    adds: BTreeMap<u32, Add>,
    /// The time since which there is no fault.
    pub(crate) calm_since: Time,
}

impl Judge {
    pub(crate) fn new(cooldown: Span, lifetime: Span, now: Time) -> Self {
        Self {
            broken: None,
            holds: BTreeMap::new(),
            resting: BTreeMap::new(),
            cooldown,
            lifetime,
            harmed: BTreeMap::new(),
            harmed_enis: BTreeSet::new(),
            unreplied: BTreeMap::new(),
            adds: BTreeMap::new(),
            calm_since: now,
        }
    }

    /// Records the first broken law.
    pub(crate) fn report_violation(&mut self, law: Law, at: Time, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            self.broken = Some(Violation { law, at, what: what() });
        }
    }

    pub(crate) fn demand(
        &mut self,
        holds: bool,
        law: Law,
        at: Time,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.report_violation(law, at, what);
        }
    }

    /// The core assigns an address of these ENIs or of the node's pod CIDR.
    pub(crate) fn given(
        &mut self,
        key: &PodKey,
        given: &PodAddress,
        host: &Host,
        (enis, pod_cidr): (&[Arc<NetworkInterface>], Option<IpNet>),
        now: Time,
    ) {
        let address = given.address;
        if let Some(hold) = self.holds.get_mut(&address)
            && hold.key == *key
            && hold.over.is_none()
        {
            hold.reserved = now;
            return;
        }
        let before = self.holds.iter().find(|(_, hold)| hold.key == *key && hold.over.is_none());
        if let Some((other, hold)) = before.map(|(other, hold)| (*other, hold.clone()))
            && other.is_ipv4() == address.is_ipv4()
            && same_card((other, &hold), given, enis)
        {
            self.report_violation(Law::Readdressed, now, || {
                format!("{key} had {other}, now {address}")
            });
        }
        let rested = self.judge_rest(key, address, now);
        let dirty = host.in_use().contains(&address);
        self.demand(!dirty, Law::KernelDirty, now, || {
            format!("{address} is given to {key} while the kernel has it")
        });
        match &given.source {
            BlockSource::Eni(eni) => self.judge_eni(key, given, eni, enis, now),
            BlockSource::NodeCidr(cidr) => {
                // A repeated Reserve returns an assignment that is older than the removal of the CIDR.
                let older = self.unreplied.get(&address) == Some(key);
                let current = older || pod_cidr == Some(*cidr);
                let right = current && is_for_pods(*cidr, given);
                self.demand(right, Law::NotOnEni, now, || {
                    format!("{key} gets {given:?}; the node's pod CIDR is {pod_cidr:?}")
                });
            }
        }
        let (key, source, reserved) = (key.clone(), given.source.clone(), now);
        let hold = Assignment {
            key,
            source,
            reserved,
            running: false,
            ran: false,
            over: None,
            replied: false,
            rested,
        };
        self.holds.insert(address, hold);
        self.resting.remove(&address);
    }

    /// Law: the cooldown of the address is over.
    fn judge_rest(&mut self, key: &PodKey, address: IpAddr, now: Time) -> Option<Time> {
        let (cooldown, lifetime) = (self.cooldown, self.lifetime);
        let rests_from = match self.holds.get(&address).cloned() {
            Some(hold)
                if hold.running || (hold.over.is_none() && now < hold.reserved + lifetime) =>
            {
                self.report_violation(Law::OnTwoPods, now, || {
                    format!("{address} is given to {key} while {} has it", hold.key)
                });
                return None;
            }
            Some(hold) => Some(hold.rests_from(lifetime)),
            None => self.resting.get(&address).copied(),
        };
        if let Some(from) = rests_from {
            self.demand(now >= from + cooldown, Law::NotCooled, now, || {
                let rested = now.since(from).0;
                format!("{address} is given to {key} after {rested} of {} ms", cooldown.0)
            });
        }
        rests_from
    }

    fn judge_eni(
        &mut self,
        key: &PodKey,
        given: &PodAddress,
        eni: &EniId,
        enis: &[Arc<NetworkInterface>],
        now: Time,
    ) {
        if self.is_harmed(given.address, eni) {
            return;
        }
        let place = |eni: &Arc<NetworkInterface>| {
            let attachment = eni.attachment.as_ref()?;
            Some((attachment.network_card_index, attachment.device_index))
        };
        let right = enis.iter().any(|of| {
            of.id == *eni && has(of, given.address) && place(of) == Some((given.card, given.device))
        });
        self.demand(right, Law::NotOnEni, now, || {
            let holder = enis.iter().find(|eni| has(eni, given.address)).map(|eni| eni.id.clone());
            format!("{key} gets {} of {eni}; it is on {holder:?}", given.address)
        });
    }

    pub(crate) fn is_harmed(&self, address: IpAddr, eni: &EniId) -> bool {
        let taken = |(net, of): (&IpNet, &EniId)| of == eni && net.contains(&address);
        self.harmed_enis.contains(eni) || self.harmed.iter().any(taken)
    }

    /// The ENI has these addresses again.
    pub(crate) fn are_back(&mut self, eni: &EniId, blocks: &[IpNet]) {
        let (harmed, pulled) = (&mut self.harmed, &self.harmed_enis);
        harmed.retain(|block, of| of != eni || pulled.contains(of) || !blocks.contains(block));
    }

    /// The reply has left.
    pub(crate) fn replied(&mut self, key: &PodKey) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            hold.replied = true;
        }
    }

    /// The process ended: assignments without a reply may be lost.
    pub(crate) fn forget_unreplied(&mut self) {
        let unreplied: Vec<IpAddr> = self
            .holds
            .iter()
            .filter(|(_, hold)| !hold.replied)
            .map(|(address, _)| *address)
            .collect();
        for address in unreplied {
            let Some(hold) = self.holds.remove(&address) else { continue };
            self.resting.extend(hold.rested.map(|from| (address, from)));
            self.unreplied.insert(address, hold.key);
        }
    }

    /// The addresses of the key that others removed before it was reserved.
    pub(crate) fn harmed_of(&self, key: &PodKey) -> Vec<IpNet> {
        let taken = |(address, hold): &(&IpAddr, &Assignment)| {
            let eni = hold.source.eni().filter(|_| hold.key == *key);
            eni.is_some_and(|eni| self.is_harmed(**address, eni))
        };
        self.holds.iter().filter(taken).map(|(address, _)| IpNet::from(*address)).collect()
    }

    /// The ADD has succeeded.
    pub(crate) fn runs(&mut self, key: &PodKey) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            hold.running = true;
            hold.ran = true;
        }
    }

    /// The DEL starts, so the address is no longer needed.
    pub(crate) fn ends(&mut self, key: &PodKey) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            hold.running = false;
        }
    }

    /// The daemon has taken a release that was sent at `sent`.
    pub(crate) fn released(&mut self, key: &PodKey, sent: Time) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            // Only its own DEL releases a running pod, and then it no longer runs.
            if !hold.running {
                hold.over.get_or_insert(sent);
            }
        }
    }

    /// The node and every pod lost their power.
    pub(crate) fn power_lost(&mut self, now: Time) {
        self.forget_unreplied();
        for hold in self.holds.values_mut() {
            hold.running = false;
            hold.over.get_or_insert(now);
        }
    }
}

/// True if the addresses are of the same card, or if one of them is of a pod CIDR. A pod with an address of
/// the pod CIDR has no other.
fn same_card(
    (address, hold): (IpAddr, &Assignment),
    given: &PodAddress,
    enis: &[Arc<NetworkInterface>],
) -> bool {
    let of = enis.iter().find(|eni| has(eni, address));
    let of_cidr = [&hold.source, &given.source].iter().any(|source| source.eni().is_none());
    of_cidr
        || of
            .and_then(|eni| eni.attachment.as_ref())
            .is_some_and(|attachment| attachment.network_card_index == given.card)
}

/// True if a pod may have this address of a pod CIDR. The network, gateway and broadcast addresses are
/// excluded, and the table must be main.
fn is_for_pods(cidr: IpNet, given: &PodAddress) -> bool {
    cidr.hosts().skip(1).any(|host| host == given.address) && given.table == TableId::MAIN
}

/// Returns whether pods may have the address of this ENI.
pub(crate) fn has(eni: &NetworkInterface, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            eni.secondary_addresses().any(|other| other == v4)
                || eni.ipv4_prefixes.iter().any(|net| net.contains(&v4))
        }
        IpAddr::V6(v6) => eni.ipv6_prefixes.iter().any(|net| net.contains(&v6)),
    }
}
