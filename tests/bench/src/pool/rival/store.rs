//! amazon-vpc-cni's data store: attached ENIs with their blocks and the pods of their addresses.
//!
//! An address in cooldown counts as available. ENIs and blocks are visited in random order, as Go iterates
//! over its maps.

use crate::pool::{requests::Pod, rng::Rng};
use config_model::{EniId, Span, Time};
use ipnet::Ipv4Net;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// Addresses in a delegated prefix.
pub(super) const PREFIX_SIZE: u32 = 16;
/// An ENI stays in the store for at least this time.
const MIN_ENI_LIFE: Span = Span::seconds(60);

/// The store of network card 0.
#[derive(Debug)]
pub(super) struct Store {
    /// True for prefixes, false for single addresses.
    prefixes: bool,
    cooldown: Span,
    enis: BTreeMap<EniId, Interface>,
}

#[derive(Debug)]
struct Interface {
    added: Time,
    primary: bool,
    blocks: BTreeMap<Ipv4Net, Block>,
}

/// A single address or a prefix. It contains only addresses that were ever used.
#[derive(Debug, Default)]
struct Block(BTreeMap<Ipv4Addr, Address>);

#[derive(Clone, Copy, Debug)]
struct Address {
    holder: Option<Pod>,
    released: Option<Time>,
}

/// Counts of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) total: u32,
    pub(super) assigned: u32,
    pub(super) prefixes: u32,
    /// Prefixes without a pod, including those with cooling addresses.
    pub(super) free_prefixes: u32,
}

impl Stats {
    /// The addresses that amazon-vpc-cni counts as assignable, including cooling ones.
    pub(super) fn available(self) -> u32 {
        self.total.saturating_sub(self.assigned)
    }
}

/// The minimum that must remain on the other ENIs before one is freed. 0 means no condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Remainder {
    pub(super) free: u32,
    pub(super) total: u32,
    pub(super) free_prefixes: u32,
}

fn size(net: Ipv4Net) -> u32 {
    1 << (32 - u32::from(net.prefix_len()))
}

impl Address {
    fn cools(self, cooldown: Span, now: Time) -> bool {
        self.released.is_some_and(|released| now.since(released) <= cooldown)
    }
}

impl Block {
    fn assigned(&self) -> u32 {
        let held = self.0.values().filter(|address| address.holder.is_some()).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// An address whose cooldown is over (all such addresses are forgotten), or else the lowest that was
    /// never used.
    fn unused(&mut self, net: Ipv4Net, cooldown: Span, now: Time) -> Option<Ipv4Addr> {
        let mut rested = None;
        self.0.retain(|address, entry| {
            let kept = entry.holder.is_some() || entry.cools(cooldown, now);
            if !kept {
                rested.get_or_insert(*address);
            }
            kept
        });
        let first = u32::from(net.network());
        let mut all = (first..first + size(net)).map(Ipv4Addr::from);
        rested.or_else(|| all.find(|address| !self.0.contains_key(address)))
    }
}

impl Interface {
    fn of_mode(&self, prefixes: bool) -> impl Iterator<Item = (&Ipv4Net, &Block)> {
        self.blocks.iter().filter(move |(net, _)| (net.prefix_len() < 32) == prefixes)
    }

    fn stats(&self, prefixes: bool) -> Stats {
        let mut stats = Stats::default();
        for (net, block) in self.of_mode(prefixes) {
            stats.total += size(*net);
            stats.assigned += block.assigned();
            stats.prefixes += u32::from(prefixes);
            stats.free_prefixes += u32::from(prefixes && block.assigned() == 0);
        }
        stats
    }

    fn has_pods(&self) -> bool {
        self.blocks.values().any(|block| block.assigned() > 0)
    }
}

impl Store {
    pub(super) fn new(prefixes: bool, cooldown: Span) -> Self {
        Self { prefixes, cooldown, enis: BTreeMap::new() }
    }

    pub(super) fn stats(&self) -> Stats {
        self.enis.values().map(|eni| eni.stats(self.prefixes)).fold(Stats::default(), |sum, eni| {
            Stats {
                total: sum.total + eni.total,
                assigned: sum.assigned + eni.assigned,
                prefixes: sum.prefixes + eni.prefixes,
                free_prefixes: sum.free_prefixes + eni.free_prefixes,
            }
        })
    }

    pub(super) fn add_eni(&mut self, id: EniId, primary: bool, now: Time) {
        let new = || Interface { added: now, primary, blocks: BTreeMap::new() };
        self.enis.entry(id).or_insert_with(new);
    }

    pub(super) fn add_block(&mut self, eni: &EniId, net: Ipv4Net) {
        if let Some(eni) = self.enis.get_mut(eni) {
            eni.blocks.entry(net).or_default();
        }
    }

    /// Removes a block. A block with pods is removed only with `force`.
    pub(super) fn remove_block(&mut self, eni: &EniId, net: Ipv4Net, force: bool) -> bool {
        let Some(eni) = self.enis.get_mut(eni) else { return false };
        let removable = eni.blocks.get(&net).is_some_and(|block| force || block.assigned() == 0);
        if removable {
            eni.blocks.remove(&net);
        }
        removable
    }

    pub(super) fn remove_eni(&mut self, eni: &EniId) {
        self.enis.remove(eni);
    }

    pub(super) fn enis(&self) -> impl Iterator<Item = &EniId> {
        self.enis.keys()
    }

    pub(super) fn has(&self, eni: &EniId) -> bool {
        self.enis.contains_key(eni)
    }

    pub(super) fn blocks(&self, eni: &EniId) -> Vec<Ipv4Net> {
        self.enis.get(eni).map(|eni| eni.blocks.keys().copied().collect()).unwrap_or_default()
    }

    /// Blocks without a pod. Cooling addresses do not count.
    pub(super) fn freeable_blocks(&self, eni: &EniId) -> Vec<Ipv4Net> {
        let Some(eni) = self.enis.get(eni) else { return Vec::new() };
        eni.blocks.iter().filter(|(_, block)| block.assigned() == 0).map(|(net, _)| *net).collect()
    }

    /// The pod's address: the same as before, or a random one. `None` if every address is in use or cools.
    pub(super) fn assign(&mut self, pod: Pod, now: Time, rng: &mut Rng) -> Option<Ipv4Addr> {
        if let Some(address) = self.address_of(pod) {
            return Some(address);
        }
        let (prefixes, cooldown) = (self.prefixes, self.cooldown);
        let ids = rng.shuffled(self.enis.keys().cloned());
        for id in ids {
            let Some(eni) = self.enis.get_mut(&id) else { continue };
            let nets = rng.shuffled(eni.of_mode(prefixes).map(|(net, _)| *net));
            for net in nets {
                let Some(block) = eni.blocks.get_mut(&net) else { continue };
                if let Some(address) = block.unused(net, cooldown, now) {
                    block.0.insert(address, Address { holder: Some(pod), released: None });
                    return Some(address);
                }
            }
        }
        None
    }

    pub(super) fn release(&mut self, pod: Pod, now: Time) {
        let blocks = self.enis.values_mut().flat_map(|eni| eni.blocks.values_mut());
        for address in blocks.flat_map(|block| block.0.values_mut()) {
            if address.holder == Some(pod) {
                *address = Address { holder: None, released: Some(now) };
            }
        }
    }

    fn address_of(&self, pod: Pod) -> Option<Ipv4Addr> {
        let mut blocks = self.enis.values().flat_map(|eni| eni.blocks.values());
        blocks.find_map(|block| {
            block.0.iter().find(|(_, entry)| entry.holder == Some(pod)).map(|(address, _)| *address)
        })
    }

    /// True if an ENI besides the primary one has no pods.
    pub(super) fn has_eni_without_pods(&self) -> bool {
        self.enis.values().any(|eni| !eni.primary && !eni.has_pods())
    }

    /// The first deletable ENI, in random order.
    pub(super) fn deletable_eni(&self, keep: Remainder, now: Time, rng: &mut Rng) -> Option<EniId> {
        rng.shuffled(self.enis.keys())
            .into_iter()
            .find(|id| self.is_deletable(id, keep, now))
            .cloned()
    }

    fn is_deletable(&self, id: &EniId, keep: Remainder, now: Time) -> bool {
        let Some(eni) = self.enis.get(id) else { return false };
        let entries = || eni.blocks.values().flat_map(|block| block.0.values());
        if eni.primary
            || now.since(eni.added) < MIN_ENI_LIFE
            || eni.has_pods()
            || entries().any(|address| address.cools(self.cooldown, now))
        {
            return false;
        }
        let (all, own) = (self.stats(), eni.stats(self.prefixes));
        let others_free = all.available() - own.available();
        let others_total = all.total - own.total;
        others_free >= keep.free
            && others_total >= keep.total
            && all.free_prefixes - own.free_prefixes >= keep.free_prefixes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOLDOWN: Span = Span::seconds(30);

    fn store(prefixes: bool, nets: &[&str]) -> Store {
        let mut store = Store::new(prefixes, COOLDOWN);
        store.add_eni("eni-1".into(), true, Time(0));
        for net in nets {
            store.add_block(&"eni-1".into(), net.parse().expect("a test's network"));
        }
        store
    }

    #[test]
    fn an_address_that_cools_counts_as_available_and_is_not_given() {
        let (mut store, mut rng) = (store(false, &["10.0.0.9/32"]), Rng::new(1));
        let address = store.assign(Pod(1), Time(0), &mut rng);
        assert!(address.is_some());
        assert_eq!(store.assign(Pod(1), Time(1), &mut rng), address);
        store.release(Pod(1), Time(1000));
        assert_eq!(store.stats().available(), 1);
        assert_eq!(store.assign(Pod(2), Time(31_000), &mut rng), None);
        assert_eq!(store.assign(Pod(2), Time(31_001), &mut rng), address);
    }

    #[test]
    fn all_sixteen_addresses_of_a_prefix_are_given() {
        let (mut store, mut rng) = (store(true, &["10.0.0.16/28", "10.0.0.9/32"]), Rng::new(1));
        let given = (0..17).filter(|pod| store.assign(Pod(*pod), Time(0), &mut rng).is_some());
        assert_eq!(given.count(), 16);
        let stats = store.stats();
        assert_eq!((stats.total, stats.prefixes, stats.free_prefixes), (16, 1, 0));
    }

    #[test]
    fn a_block_whose_address_cools_is_freeable() {
        let (mut store, mut rng) = (store(false, &["10.0.0.9/32"]), Rng::new(1));
        store.assign(Pod(1), Time(0), &mut rng);
        let net = "10.0.0.9/32".parse().expect("a test's network");
        assert!(!store.remove_block(&"eni-1".into(), net, false));
        store.release(Pod(1), Time(5));
        assert_eq!(store.freeable_blocks(&"eni-1".into()), [net]);
    }

    #[test]
    fn an_eni_goes_when_it_is_old_empty_and_cool_and_the_others_are_enough() {
        let (mut store, mut rng) = (store(false, &["10.0.0.9/32"]), Rng::new(1));
        store.add_eni("eni-2".into(), false, Time(0));
        store.add_block(&"eni-2".into(), "10.0.0.10/32".parse().expect("a test's network"));
        let minute = Time(60_000);
        let mut may = |keep, now| store.deletable_eni(keep, now, &mut rng).is_some();
        assert!(may(Remainder::default(), minute));
        assert!(!may(Remainder::default(), Time(59_999)));
        assert!(may(Remainder { free: 1, total: 1, ..Remainder::default() }, minute));
        assert!(!may(Remainder { free: 2, ..Remainder::default() }, minute));
        assert!(!may(Remainder { total: 2, ..Remainder::default() }, minute));
        while store.assign(Pod(7), minute, &mut rng) != Some(Ipv4Addr::new(10, 0, 0, 10)) {
            store.remove_block(&"eni-1".into(), "10.0.0.9/32".parse().expect("a net"), true);
        }
        assert_eq!(store.deletable_eni(Remainder::default(), minute, &mut rng), None);
        store.release(Pod(7), minute);
        assert_eq!(store.deletable_eni(Remainder::default(), minute, &mut rng), None);
        assert!(store.deletable_eni(Remainder::default(), Time(90_001), &mut rng).is_some());
    }
}
