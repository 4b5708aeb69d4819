//! The address book, the record of the node's addresses and their users: source → block → address.
//!
//! The source of a block is an ENI or a pod CIDR of the node. Witnesses, growth and shrink work on ENIs, so they never
//! touch a block of the node.
//!
//! An address without an [`AddressUse`] is free. Uses are indexed by address, not by block: an address stays assigned
//! even if no known ENI has it.

mod block;
mod block_set;
mod choice;
mod eni;
mod free_ranges;
mod kernel;
#[cfg(test)]
mod tests;

pub(crate) use block::{amount, block_size, is_prefix, pod_offsets, single};
pub(crate) use block_set::{Block, BlockSet, BlockState};
pub(crate) use eni::{Eni, EniFacts, KEEP_LAG, Readiness, ReturnState, Task};

use crate::{BlockSource, Family, checkpoint::AssignedResource, warm::Unit};
use config_model::{EniId, PodKey, PodName, Time, VethHash};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    net::IpAddr,
};

/// The use of an address that is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressUse {
    Assigned(PodKey),
    Cooling(Cooling),
}

/// A released address. It becomes free when its time is over and an observation of the kernel lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cooling {
    pub(crate) source: BlockSource,
    pub(crate) since: Time,
    pub(crate) until: Time,
    pub(crate) kernel_clean: bool,
    /// A problem with it was reported.
    pub(crate) reported: bool,
}

/// The assignment of a pod key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) pod: PodName,
    pub(crate) what: AssignedResource,
    pub(crate) since: Time,
    /// The end of the reservation; `None` once it is confirmed.
    pub(crate) lapses: Option<Time>,
    pub(crate) host_interface: Option<String>,
    /// amazon-vpc-cni built it, so its host end has no alias.
    pub(crate) adopted: bool,
}

impl Assignment {
    /// The hashes in the names of its host veths.
    fn veths(&self) -> impl Iterator<Item = VethHash> {
        veths(&self.pod, self.what.addresses().len())
    }
}

#[derive(Debug, Default)]
pub(crate) struct AddressBook {
    prefixes_first: bool,
    family: Family,
    enis: BTreeMap<EniId, Eni>,
    /// The node's pod CIDRs.
    node_cidrs: BlockSet,
    /// Every block by its network address.
    blocks: BTreeMap<IpAddr, (IpNet, BlockSource)>,
    uses: BTreeMap<IpAddr, AddressUse>,
    holders: BTreeMap<PodKey, Assignment>,
    /// The number of assignments per pod.
    by_pod: BTreeMap<PodName, u32>,
    /// Every key by the names of its host veths.
    veths: BTreeMap<VethHash, BTreeSet<PodKey>>,
    lapsing: BTreeSet<(Time, PodKey)>,
    /// Cooling addresses that the kernel no longer uses; only time is missing.
    ripening: BTreeSet<(Time, IpAddr)>,
    /// Cooling addresses that the kernel may still use.
    dirty: BTreeSet<IpAddr>,
    /// The addresses in use in the newest observation of the kernel.
    kernel_in_use: BTreeSet<IpAddr>,
    kernel_seen: Option<Time>,
}

impl AddressBook {
    pub(crate) fn enis(&self) -> impl Iterator<Item = &Eni> {
        self.enis.values()
    }

    pub(crate) fn enis_mut(&mut self) -> impl Iterator<Item = &mut Eni> {
        self.enis.values_mut()
    }

    pub(crate) fn eni(&self, id: &EniId) -> Option<&Eni> {
        self.enis.get(id)
    }

    pub(crate) fn eni_mut(&mut self, id: &EniId) -> Option<&mut Eni> {
        self.enis.get_mut(id)
    }

    /// The blocks whose source is the node, one for each pod CIDR.
    pub(crate) fn node_cidrs(&self) -> &BlockSet {
        &self.node_cidrs
    }

    pub(crate) fn holder(&self, key: &PodKey) -> Option<&Assignment> {
        self.holders.get(key)
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = (&PodKey, &Assignment)> {
        self.holders.iter()
    }

    /// A key with an address of the block.
    pub(crate) fn holder_within(&self, net: IpNet) -> Option<PodKey> {
        self.uses.range(net.network()..=net.broadcast()).find_map(|(_, usage)| match usage {
            AddressUse::Assigned(key) => Some(key.clone()),
            AddressUse::Cooling(_) => None,
        })
    }

    /// All cooling addresses, with or without a known block.
    pub(crate) fn cooling(&self) -> impl Iterator<Item = (IpAddr, &Cooling)> {
        let of = |address: &IpAddr| match self.uses.get(address) {
            Some(AddressUse::Cooling(cooling)) => Some((*address, cooling)),
            Some(AddressUse::Assigned(_)) | None => None,
        };
        self.dirty.iter().chain(self.ripening.iter().map(|(_, address)| address)).filter_map(of)
    }

    pub(crate) fn cools_anything(&self) -> bool {
        !self.dirty.is_empty() || !self.ripening.is_empty()
    }

    pub(crate) fn reserved(&self) -> usize {
        self.lapsing.len()
    }

    /// The block of the address and its source.
    pub(crate) fn block_of(&self, address: IpAddr) -> Option<(&BlockSource, IpNet)> {
        let (_, (net, source)) = self.blocks.range(..=address).next_back()?;
        net.contains(&address).then_some((source, *net))
    }

    fn blocks_of(&mut self, source: &BlockSource) -> Option<&mut BlockSet> {
        match source {
            BlockSource::Eni(id) => self.enis.get_mut(id).map(|eni| &mut eni.blocks),
            BlockSource::NodeCidr(_) => Some(&mut self.node_cidrs),
        }
    }

    /// Creates a book that prefers blocks of this unit. Other blocks of the family come second; those of the other
    /// family are ignored.
    pub(crate) fn of(unit: Unit) -> Self {
        let prefixes_first = unit != Unit::Address;
        Self { prefixes_first, family: unit.family(), ..Self::default() }
    }

    /// Changes the preferred unit.
    pub(crate) fn prefer(&mut self, unit: Unit) {
        self.prefixes_first = unit != Unit::Address;
        for eni in self.enis.values_mut() {
            eni.blocks.prefer(self.prefixes_first);
        }
    }

    pub(crate) fn add_eni(&mut self, mut eni: Eni) {
        eni.blocks.prefer(self.prefixes_first);
        self.enis.entry(eni.facts.id.clone()).or_insert(eni);
    }

    /// Removes the ENI and its blocks. The uses of their addresses stay.
    pub(crate) fn remove_eni(&mut self, id: &EniId) -> Option<Eni> {
        let eni = self.enis.remove(id)?;
        for (net, _) in eni.blocks.iter() {
            self.blocks.remove(&net.network());
        }
        Some(eni)
    }

    /// Adds an ENI again that [`AddressBook::remove_eni`] removed.
    pub(crate) fn put_back(&mut self, eni: Eni, now: Time) {
        let (id, nets): (_, Vec<_>) =
            (eni.facts.id.clone(), eni.blocks.iter().map(|(net, _)| net).collect());
        let attached_here = eni.attached_here;
        let mut back = Eni::new(eni.facts, now);
        back.attached_here = attached_here;
        self.add_eni(back);
        for net in nets {
            self.add_block(&id, net, now);
        }
    }

    /// The blocks that share an address with this one, itself included.
    pub(crate) fn overlapping(&self, net: IpNet) -> impl Iterator<Item = (IpNet, &BlockSource)> {
        let around = self.block_of(net.network()).map(|(source, of)| (of, source));
        let later = self.blocks.range(net.network()..=net.broadcast());
        let later = later.map(|(_, (of, source))| (*of, source));
        around.into_iter().chain(later.filter(move |(of, _)| of.network() != net.network()))
    }

    /// Adds a block to an ENI. Returns false if the family is wrong or a known block overlaps it.
    pub(crate) fn add_block(&mut self, id: &EniId, net: IpNet, now: Time) -> bool {
        if !self.family.has(net) || self.overlapping(net).next().is_some() {
            return false;
        }
        let Some(eni) = self.enis.get_mut(id) else { return false };
        eni.blocks.add(net, now);
        self.index_block(net, BlockSource::Eni(id.clone()), now);
        true
    }

    /// Adds a pod CIDR of the node. Returns false if it has no address for pods of the family, or a known block
    /// overlaps it.
    pub(crate) fn add_node_cidr(&mut self, cidr: IpNet, now: Time) -> bool {
        let Some(offsets) = pod_offsets(cidr).filter(|_| self.family.includes(cidr)) else {
            return false;
        };
        if self.overlapping(cidr).next().is_some() {
            return false;
        }
        self.node_cidrs.add_part(cidr, offsets, now);
        self.index_block(cidr, BlockSource::NodeCidr(cidr), now);
        true
    }

    /// Finishes the addition of a block: counts the known uses of its addresses.
    fn index_block(&mut self, net: IpNet, source: BlockSource, now: Time) {
        let uses = self.uses_within(net);
        if let Some(blocks) = self.blocks_of(&source) {
            for (address, usage) in &uses {
                blocks.count(net, *address, usage, true);
            }
        }
        self.blocks.insert(net.network(), (net, source.clone()));
        self.hold_back_in_kernel(&source, net, now);
    }

    /// Removes a block of any source. The uses of its addresses stay.
    pub(crate) fn remove_block(&mut self, net: IpNet) {
        let Some((net, source)) = self.blocks.remove(&net.network()) else { return };
        let uses = self.uses_within(net);
        if let Some(blocks) = self.blocks_of(&source) {
            for (address, usage) in &uses {
                blocks.count(net, *address, usage, false);
            }
            blocks.remove(net);
        }
    }

    fn uses_within(&self, net: IpNet) -> Vec<(IpAddr, AddressUse)> {
        let within = self.uses.range(net.network()..=net.broadcast());
        within.map(|(address, usage)| (*address, usage.clone())).collect()
    }

    pub(crate) fn set_block_state(&mut self, net: IpNet, state: BlockState) {
        let Some((net, source)) = self.blocks.get(&net.network()).cloned() else { return };
        if let Some(blocks) = self.blocks_of(&source) {
            blocks.set_state(net, state);
        }
    }

    /// Returns whether a sandbox of the pod has an assignment.
    pub(crate) fn has_pod(&self, pod: &PodName) -> bool {
        self.by_pod.contains_key(pod)
    }

    /// The assignment of another pod with the name of a host veth that the pod needs for this many interfaces.
    pub(crate) fn veth_holder(
        &self,
        pod: &PodName,
        interfaces: usize,
    ) -> Option<(VethHash, &PodKey, &Assignment)> {
        veths(pod, interfaces).find_map(|hash| {
            let holders = self.veths.get(&hash)?.iter();
            let holders = holders.filter_map(|key| Some((hash, key, self.holders.get(key)?)));
            holders.into_iter().find(|(.., holder)| holder.pod != *pod)
        })
    }

    /// Adds an assignment. Its addresses must be free, or cooling by an older record.
    pub(crate) fn hold(&mut self, key: PodKey, holder: Assignment) {
        for held in holder.what.addresses() {
            self.set_use(held.address, Some(AddressUse::Assigned(key.clone())));
        }
        if let Some(lapses) = holder.lapses {
            self.lapsing.insert((lapses, key.clone()));
        }
        *self.by_pod.entry(holder.pod.clone()).or_default() += 1;
        for hash in holder.veths() {
            self.veths.entry(hash).or_default().insert(key.clone());
        }
        self.holders.insert(key, holder);
    }

    /// Extends a reservation after a repeated Reserve.
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
        holder.adopted = false;
    }

    /// Removes the assignment; its addresses cool.
    pub(crate) fn release(&mut self, key: &PodKey, now: Time, until: Time) -> Option<Assignment> {
        let holder = self.holders.remove(key)?;
        for hash in holder.veths() {
            if let Entry::Occupied(mut keys) = self.veths.entry(hash) {
                keys.get_mut().remove(key);
                if keys.get().is_empty() {
                    keys.remove();
                }
            }
        }
        if let Some(sandboxes) = self.by_pod.get_mut(&holder.pod) {
            *sandboxes -= 1;
            if *sandboxes == 0 {
                self.by_pod.remove(&holder.pod);
            }
        }
        if let Some(lapses) = holder.lapses {
            self.lapsing.remove(&(lapses, key.clone()));
        }
        for held in holder.what.addresses() {
            self.cool(held.address, held.source.clone(), now, until);
        }
        Some(holder)
    }

    pub(crate) fn cool(&mut self, address: IpAddr, source: BlockSource, since: Time, until: Time) {
        let cooling = Cooling { source, since, until, kernel_clean: false, reported: false };
        self.set_use(address, Some(AddressUse::Cooling(cooling)));
    }

    /// The key whose reservation lapsed first.
    pub(crate) fn lapsed(&self, now: Time) -> Option<PodKey> {
        self.lapsing.first().filter(|(at, _)| *at <= now).map(|(_, key)| key.clone())
    }

    pub(crate) fn next_lapse(&self) -> Option<Time> {
        self.lapsing.first().map(|(at, _)| *at)
    }

    pub(crate) fn next_ripe(&self) -> Option<Time> {
        self.ripening.first().map(|(at, _)| *at)
    }

    /// Frees one address whose cooldown is over and which the kernel no longer uses.
    pub(crate) fn free_ripe(&mut self, now: Time) -> Option<IpAddr> {
        let (_, address) = *self.ripening.first().filter(|(at, _)| *at <= now)?;
        self.set_use(address, None);
        Some(address)
    }

    /// Changes the use of an address. All changes go through here, so that every count follows.
    fn set_use(&mut self, address: IpAddr, usage: Option<AddressUse>) {
        let old = match usage.clone() {
            Some(usage) => self.uses.insert(address, usage),
            None => self.uses.remove(&address),
        };
        if let Some(AddressUse::Cooling(cooling)) = &old {
            self.dirty.remove(&address);
            self.ripening.remove(&(cooling.until, address));
        }
        if let Some(AddressUse::Cooling(cooling)) = &usage {
            if cooling.kernel_clean {
                self.ripening.insert((cooling.until, address));
            } else {
                self.dirty.insert(address);
            }
        }
        let Some((source, net)) = self.block_of(address).map(|(of, net)| (of.clone(), net)) else {
            return;
        };
        let Some(blocks) = self.blocks_of(&source) else { return };
        for (usage, more) in [(&old, false), (&usage, true)] {
            if let Some(usage) = usage {
                blocks.count(net, address, usage, more);
            }
        }
    }
}

/// The hashes in the names of a pod's host veths. A pod with a branch ENI has one interface.
fn veths(pod: &PodName, interfaces: usize) -> impl Iterator<Item = VethHash> {
    (0..=u8::MAX).take(interfaces.max(1)).map(|index| VethHash::of(pod, index))
}
