//! What do we own, and who uses it: card → ENI → block → address.
//!
//! An address is free unless [`Book::use_of`] says otherwise. Uses are kept by address, apart from
//! the blocks: an address that a pod holds stays held even while no ENI is seen that has it.

mod eni;
mod kernel;
#[cfg(test)]
mod tests;

pub(crate) use eni::{Eni, EniFacts, Readiness, Task};

use config_model::{CardIndex, DeviceIndex, EniId, PodKey, PodName, Time};
use ipnet::Ipv4Net;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// What an address that is not free is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Held(PodKey),
    Cooling(Cooling),
}

/// An address that rests until its time is over and the kernel was seen without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cooling {
    pub(crate) eni: EniId,
    pub(crate) since: Time,
    pub(crate) until: Time,
    pub(crate) kernel_clean: bool,
    /// Its dirt was reported.
    pub(crate) reported: bool,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pod: PodName,
    pub(crate) address: Ipv4Addr,
    pub(crate) eni: EniId,
    pub(crate) card: CardIndex,
    pub(crate) device: DeviceIndex,
    pub(crate) since: Time,
    /// When it lapses, unless it is confirmed before.
    pub(crate) lapses: Option<Time>,
    pub(crate) host_interface: Option<String>,
}

/// The address book.
#[derive(Debug, Default)]
pub(crate) struct Book {
    enis: BTreeMap<EniId, Eni>,
    /// Every block by its network address.
    blocks: BTreeMap<Ipv4Addr, (Ipv4Net, EniId)>,
    uses: BTreeMap<Ipv4Addr, Use>,
    holders: BTreeMap<PodKey, Holder>,
    lapsing: BTreeSet<(Time, PodKey)>,
    /// Cooling and seen clean: only time is missing.
    ripening: BTreeSet<(Time, Ipv4Addr)>,
    /// Cooling and not seen clean.
    dirty: BTreeSet<Ipv4Addr>,
    /// What the newest observation of the kernel showed in use, and when it began.
    kernel_in_use: BTreeSet<Ipv4Addr>,
    kernel_seen: Option<Time>,
}

impl Book {
    pub(crate) fn enis(&self) -> impl Iterator<Item = &Eni> {
        self.enis.values()
    }

    pub(crate) fn eni(&self, id: &EniId) -> Option<&Eni> {
        self.enis.get(id)
    }

    pub(crate) fn eni_mut(&mut self, id: &EniId) -> Option<&mut Eni> {
        self.enis.get_mut(id)
    }

    pub(crate) fn holder(&self, key: &PodKey) -> Option<&Holder> {
        self.holders.get(key)
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = (&PodKey, &Holder)> {
        self.holders.iter()
    }

    pub(crate) fn use_of(&self, address: Ipv4Addr) -> Option<&Use> {
        self.uses.get(&address)
    }

    /// Every address that cools, on a known ENI or not.
    pub(crate) fn cooling(&self) -> impl Iterator<Item = (Ipv4Addr, &Cooling)> {
        let of = |address: &Ipv4Addr| match self.uses.get(address) {
            Some(Use::Cooling(cooling)) => Some((*address, cooling)),
            Some(Use::Held(_)) | None => None,
        };
        self.dirty.iter().chain(self.ripening.iter().map(|(_, address)| address)).filter_map(of)
    }

    pub(crate) fn cools_anything(&self) -> bool {
        !self.dirty.is_empty() || !self.ripening.is_empty()
    }

    pub(crate) fn reserved(&self) -> usize {
        self.lapsing.len()
    }

    /// The ENI and block that the address lies in.
    pub(crate) fn place_of(&self, address: Ipv4Addr) -> Option<(&EniId, Ipv4Net)> {
        let (_, (net, eni)) = self.blocks.range(..=address).next_back()?;
        net.contains(&address).then_some((eni, *net))
    }

    pub(crate) fn add_eni(&mut self, eni: Eni) {
        self.enis.entry(eni.facts.id.clone()).or_insert(eni);
    }

    /// Takes the ENI and its blocks out. Uses of its addresses stay on record.
    pub(crate) fn remove_eni(&mut self, id: &EniId) -> Option<Eni> {
        let eni = self.enis.remove(id)?;
        for (net, _) in eni.blocks() {
            self.blocks.remove(&net.network());
        }
        Some(eni)
    }

    /// Puts back an ENI that [`Book::remove_eni`] took out.
    pub(crate) fn put_back(&mut self, eni: Eni, now: Time) {
        let (id, nets): (_, Vec<_>) =
            (eni.facts.id.clone(), eni.blocks().map(|(net, _)| net).collect());
        let attached_here = eni.attached_here;
        let mut back = Eni::new(eni.facts, now);
        back.attached_here = attached_here;
        self.enis.insert(id.clone(), back);
        for net in nets {
            self.add_block(&id, net, now);
        }
    }

    /// Adds a block to an ENI; false if it was known or belongs to another.
    pub(crate) fn add_block(&mut self, id: &EniId, net: Ipv4Net, now: Time) -> bool {
        if self.place_of(net.network()).is_some() {
            return false;
        }
        let Some(eni) = self.enis.get_mut(id) else { return false };
        eni.add_block(net, now);
        self.blocks.insert(net.network(), (net, id.clone()));
        for usage in self.uses.range(net.network()..=net.broadcast()).map(|(_, usage)| usage) {
            count(eni, net, usage, true);
        }
        self.hold_back_what_the_kernel_has(id, net, now);
        true
    }

    pub(crate) fn remove_block(&mut self, net: Ipv4Net) {
        let Some((net, id)) = self.blocks.remove(&net.network()) else { return };
        let Some(eni) = self.enis.get_mut(&id) else { return };
        for usage in self.uses.range(net.network()..=net.broadcast()).map(|(_, usage)| usage) {
            count(eni, net, usage, false);
        }
        eni.remove_block(net);
    }

    pub(crate) fn set_leaving(&mut self, net: Ipv4Net, leaving: bool) {
        let Some((net, id)) = self.blocks.get(&net.network()) else { return };
        if let Some(eni) = self.enis.get_mut(id) {
            eni.set_leaving(*net, leaving);
        }
    }

    /// The address that the next pod gets: of the fullest ENI that serves, the lowest. ENIs that
    /// few pods use run empty so, and can be freed.
    pub(crate) fn pick(&self, card: CardIndex) -> Option<(EniId, Ipv4Addr)> {
        self.kernel_seen?;
        let eni = self
            .enis
            .values()
            .filter(|eni| eni.facts.card == card && eni.serves() && eni.first_open().is_some())
            .max_by_key(|eni| (eni.held, eni.cooling, Reverse(eni.facts.device)))?;
        let net = eni.first_open()?;
        let address = net_addresses(net).find(|address| !self.uses.contains_key(address))?;
        Some((eni.facts.id.clone(), address))
    }

    /// How many Reserves would be served at once.
    pub(crate) fn usable(&self) -> u32 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        self.enis.values().filter(|eni| eni.serves()).map(Eni::free).sum()
    }

    /// Gives the address to the key. It must be free, or cooling on the way from an older record.
    pub(crate) fn hold(&mut self, key: PodKey, holder: Holder) {
        self.set_use(holder.address, Some(Use::Held(key.clone())));
        if let Some(lapses) = holder.lapses {
            self.lapsing.insert((lapses, key.clone()));
        }
        self.holders.insert(key, holder);
    }

    /// A repeated Reserve starts the reservation's time anew.
    pub(crate) fn extend(&mut self, key: &PodKey, lapses: Time) {
        let Some(holder) = self.holders.get_mut(key) else { return };
        if let Some(old) = holder.lapses.replace(lapses) {
            self.lapsing.remove(&(old, key.clone()));
        }
        self.lapsing.insert((lapses, key.clone()));
    }

    pub(crate) fn confirm(&mut self, key: &PodKey, host_interface: String) {
        let Some(holder) = self.holders.get_mut(key) else { return };
        if let Some(lapses) = holder.lapses.take() {
            self.lapsing.remove(&(lapses, key.clone()));
        }
        holder.host_interface = Some(host_interface);
    }

    /// Ends the hold; the address cools.
    pub(crate) fn release(&mut self, key: &PodKey, now: Time, until: Time) -> Option<Holder> {
        let holder = self.holders.remove(key)?;
        if let Some(lapses) = holder.lapses {
            self.lapsing.remove(&(lapses, key.clone()));
        }
        self.cool(holder.address, holder.eni.clone(), now, until);
        Some(holder)
    }

    /// Lets an address rest.
    pub(crate) fn cool(&mut self, address: Ipv4Addr, eni: EniId, since: Time, until: Time) {
        let cooling = Cooling { eni, since, until, kernel_clean: false, reported: false };
        self.set_use(address, Some(Use::Cooling(cooling)));
    }

    /// The key whose reservation has lapsed longest ago.
    pub(crate) fn lapsed(&self, now: Time) -> Option<PodKey> {
        self.lapsing.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
    }

    pub(crate) fn next_lapse(&self) -> Option<Time> {
        self.lapsing.first().map(|(at, _)| *at)
    }

    pub(crate) fn next_ripe(&self) -> Option<Time> {
        self.ripening.first().map(|(at, _)| *at)
    }

    /// Frees one address whose time is over and which the kernel was seen without.
    pub(crate) fn free_ripe(&mut self, now: Time) -> Option<Ipv4Addr> {
        let (_, address) = *self.ripening.first().filter(|(at, _)| *at <= now)?;
        self.set_use(address, None);
        Some(address)
    }

    /// The one place where the use of an address changes, so that every count follows.
    fn set_use(&mut self, address: Ipv4Addr, usage: Option<Use>) {
        let old = match usage.clone() {
            Some(usage) => self.uses.insert(address, usage),
            None => self.uses.remove(&address),
        };
        if let Some(Use::Cooling(cooling)) = &old {
            self.dirty.remove(&address);
            self.ripening.remove(&(cooling.until, address));
        }
        if let Some(Use::Cooling(cooling)) = &usage {
            if cooling.kernel_clean {
                self.ripening.insert((cooling.until, address));
            } else {
                self.dirty.insert(address);
            }
        }
        let Some((id, net)) = self.place_of(address).map(|(id, net)| (id.clone(), net)) else {
            return;
        };
        let Some(eni) = self.enis.get_mut(&id) else { return };
        for (usage, more) in [(&old, false), (&usage, true)] {
            if let Some(usage) = usage {
                count(eni, net, usage, more);
            }
        }
    }
}

fn count(eni: &mut Eni, net: Ipv4Net, usage: &Use, more: bool) {
    let counter = match usage {
        Use::Held(_) => &mut eni.held,
        Use::Cooling(_) => &mut eni.cooling,
    };
    *counter = if more { *counter + 1 } else { counter.saturating_sub(1) };
    eni.count_use(net, more);
}

/// All addresses of a block, the first and the last among them.
pub(crate) fn net_addresses(net: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    (u32::from(net.network())..=u32::from(net.broadcast())).map(Ipv4Addr::from)
}

/// The block of a single address.
pub(crate) fn single(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::from(address)
}
