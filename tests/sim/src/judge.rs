//! The laws, judged by the world and not by the core's own words.

mod deadlines;
mod quiet;
mod returns;

pub(crate) use deadlines::{Add, Demand};

use crate::host::Host;
use config_model::{EniId, PodKey, Span, Time};
use ipamd_core::PodAddress;
use ipnet::IpNet;
use lab_cloud::NetworkInterface;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Law {
    /// An address is on two pods.
    OnTwoPods,
    /// An address is given before its cooldown is over.
    NotCooled,
    /// An address is given while the kernel has routes or rules of it.
    KernelDirty,
    /// An address is given that its ENI does not have, or by a wrong table.
    NotOnEni,
    /// A key gets another address than before.
    Readdressed,
    /// An address that a pod has, that cools or that the kernel has, goes back to EC2.
    Returned,
    /// A running pod loses its routes or rules.
    CutOff,
    /// More ENIs or addresses than the type or `MAX_ENI` allow.
    AboveLimits,
    /// A reply or a call leaves before the record it follows from is on disk.
    AheadOfDisk,
    /// A request is answered twice, or never.
    NotAnsweredOnce,
    /// A request that could be served was not.
    NotServed,
    /// The core asks to be woken without end.
    NeverRests,
    /// A branch ENI is given to another pod than the one that it was made for.
    BranchOfAnother,
    /// A call is made that the mode forbids.
    Forbidden,
    /// An ENI is left behind.
    Leaked,
    /// The pool has less than its targets ask for.
    PoolShort,
    /// The pool has far more than its targets ask for.
    PoolOver,
    /// Reading the checkpoint and writing it shorter changes its meaning.
    Checkpoint,
    /// The model of the world does not fit together.
    World,
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// When.
    pub at: Time,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.law, self.what)
    }
}

/// Who has an address, as the world saw it.
#[derive(Clone, Debug)]
struct Hold {
    key: PodKey,
    eni: EniId,
    /// When the reservation was made, or last made again.
    reserved: Time,
    /// The ADD has succeeded and no DEL has begun.
    running: bool,
    /// It once ran, so that no reservation lapses.
    ran: bool,
    /// From when on nobody needs it: the DEL was sent, the node lost its power.
    over: Option<Time>,
    /// Somebody has heard of it; before, a crash may undo it.
    told: bool,
    /// Since when it had rested before.
    rested: Option<Time>,
}

impl Hold {
    /// From when on it rests at the earliest.
    fn rests_from(&self, lifetime: Span) -> Time {
        let lapses = self.reserved + lifetime;
        match self.over {
            Some(over) if self.ran => over,
            Some(over) => over.min(lapses),
            None => lapses,
        }
    }
}

/// Watches.
#[derive(Debug)]
pub(crate) struct Judge {
    pub(crate) broken: Option<Violation>,
    holds: BTreeMap<IpAddr, Hold>,
    /// From when on an address rests that nobody holds.
    resting: BTreeMap<IpAddr, Time>,
    cooldown: Span,
    lifetime: Span,
    /// What somebody outside took away.
    /// What somebody took away, and from which ENI.
    pub(crate) harmed: BTreeMap<IpNet, EniId>,
    pub(crate) harmed_enis: BTreeSet<EniId>,
    adds: BTreeMap<u32, Add>,
    /// Since when nothing is out of order.
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
            adds: BTreeMap::new(),
            calm_since: now,
        }
    }

    /// The first law that is broken counts.
    pub(crate) fn accuse(&mut self, law: Law, at: Time, what: impl FnOnce() -> String) {
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
            self.accuse(law, at, what);
        }
    }

    /// The core gives an address.
    pub(crate) fn given(
        &mut self,
        key: &PodKey,
        given: &PodAddress,
        host: &Host,
        enis: &[Arc<NetworkInterface>],
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
        if let Some((other, _)) = before.map(|(other, hold)| (*other, hold.clone()))
            && other.is_ipv4() == address.is_ipv4()
            && self.same_card(other, given, enis)
        {
            self.accuse(Law::Readdressed, now, || format!("{key} had {other}, now {address}"));
        }
        let rested = self.judge_rest(key, address, now);
        let dirty = host.in_use().contains(&address);
        self.demand(!dirty, Law::KernelDirty, now, || {
            format!("{address} is given to {key} while the kernel has it")
        });
        self.judge_place(key, given, enis, now);
        let (key, eni, reserved) = (key.clone(), given.eni.clone(), now);
        let hold = Hold {
            key,
            eni,
            reserved,
            running: false,
            ran: false,
            over: None,
            told: false,
            rested,
        };
        self.holds.insert(address, hold);
        self.resting.remove(&address);
    }

    /// Whether an address lies on the card that another is given of.
    fn same_card(
        &self,
        address: IpAddr,
        given: &PodAddress,
        enis: &[Arc<NetworkInterface>],
    ) -> bool {
        let of = enis.iter().find(|eni| has(eni, address));
        of.and_then(|eni| eni.attachment.as_ref())
            .is_some_and(|attachment| attachment.network_card_index == given.card)
    }

    /// From when on the address has rested.
    fn judge_rest(&mut self, key: &PodKey, address: IpAddr, now: Time) -> Option<Time> {
        let (cooldown, lifetime) = (self.cooldown, self.lifetime);
        let rests_from = match self.holds.get(&address).cloned() {
            Some(hold)
                if hold.running || (hold.over.is_none() && now < hold.reserved + lifetime) =>
            {
                self.accuse(Law::OnTwoPods, now, || {
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

    fn judge_place(
        &mut self,
        key: &PodKey,
        given: &PodAddress,
        enis: &[Arc<NetworkInterface>],
        now: Time,
    ) {
        if self.is_harmed(given.address, &given.eni) {
            return;
        }
        let place = |eni: &Arc<NetworkInterface>| {
            let attachment = eni.attachment.as_ref()?;
            Some((attachment.network_card_index, attachment.device_index))
        };
        let right = enis.iter().any(|eni| {
            eni.id == given.eni
                && has(eni, given.address)
                && place(eni) == Some((given.card, given.device))
        });
        self.demand(right, Law::NotOnEni, now, || {
            let holder = enis.iter().find(|eni| has(eni, given.address)).map(|eni| eni.id.clone());
            format!("{key} gets {} of {}; it is on {holder:?}", given.address, given.eni)
        });
    }

    pub(crate) fn is_harmed(&self, address: IpAddr, eni: &EniId) -> bool {
        let taken = |(net, of): (&IpNet, &EniId)| of == eni && net.contains(&address);
        self.harmed_enis.contains(eni) || self.harmed.iter().any(taken)
    }

    /// The ENI has these now.
    pub(crate) fn are_back(&mut self, eni: &EniId, blocks: &[IpNet]) {
        let (harmed, pulled) = (&mut self.harmed, &self.harmed_enis);
        harmed.retain(|block, of| of != eni || pulled.contains(of) || !blocks.contains(block));
    }

    /// The reply has left.
    pub(crate) fn told(&mut self, key: &PodKey) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            hold.told = true;
        }
    }

    /// The process is gone, and what it told nobody may never have been.
    pub(crate) fn forget_untold(&mut self) {
        let untold: Vec<(IpAddr, Option<Time>)> = self
            .holds
            .iter()
            .filter(|(_, hold)| !hold.told)
            .map(|(address, hold)| (*address, hold.rested))
            .collect();
        for (address, rested) in untold {
            self.holds.remove(&address);
            self.resting.extend(rested.map(|from| (address, from)));
        }
    }

    /// The addresses of the key that somebody took away before it was known.
    pub(crate) fn harmed_of(&self, key: &PodKey) -> Vec<IpNet> {
        let taken = |(address, hold): &(&IpAddr, &Hold)| {
            hold.key == *key && self.is_harmed(**address, &hold.eni)
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

    /// Its DEL begins: nobody needs its address any more.
    pub(crate) fn ends(&mut self, key: &PodKey) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            hold.running = false;
        }
    }

    /// The daemon has taken in a release of the key that was sent at `sent`.
    pub(crate) fn released(&mut self, key: &PodKey, sent: Time) {
        for hold in self.holds.values_mut().filter(|hold| hold.key == *key) {
            // A running pod is released by its own DEL alone, and then it does not run.
            if !hold.running {
                hold.over.get_or_insert(sent);
            }
        }
    }

    /// The power is gone, and every pod.
    pub(crate) fn power_lost(&mut self, now: Time) {
        self.forget_untold();
        for hold in self.holds.values_mut() {
            hold.running = false;
            hold.over.get_or_insert(now);
        }
    }
}

/// Whether pods may have the address of this ENI.
pub(crate) fn has(eni: &NetworkInterface, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            eni.secondary_addresses().any(|other| other == v4)
                || eni.ipv4_prefixes.iter().any(|net| net.contains(&v4))
        }
        IpAddr::V6(v6) => eni.ipv6_prefixes.iter().any(|net| net.contains(&v6)),
    }
}
