//! The kernel's use of addresses. An address becomes free only after an observation lacks it.

use super::{AddressBook, AddressUse, Cooling};
use crate::BlockSource;
use config_model::Time;
use ipnet::IpNet;
use std::{collections::BTreeSet, net::IpAddr};

impl AddressBook {
    /// Takes an observation of the kernel. Returns false if a newer one is known.
    pub(crate) fn kernel_seen(
        &mut self,
        started: Time,
        in_use: BTreeSet<IpAddr>,
        now: Time,
    ) -> bool {
        if self.kernel_seen.is_some_and(|seen| started < seen) {
            return false;
        }
        self.kernel_seen = Some(started);
        self.kernel_in_use = in_use;
        self.mark_clean(started);
        self.hold_back_returned(now);
        true
    }

    /// Returns whether the newest observation started after `since` and shows no address of these blocks.
    pub(crate) fn kernel_clean_of(
        &self,
        since: Time,
        mut blocks: impl Iterator<Item = IpNet>,
    ) -> bool {
        let clean =
            |net: IpNet| self.kernel_in_use.range(net.network()..=net.broadcast()).next().is_none();
        self.kernel_seen.is_some_and(|seen| seen > since) && blocks.all(clean)
    }

    /// Returns whether there was an observation since the start.
    pub(crate) fn kernel_was_seen(&self) -> bool {
        self.kernel_seen.is_some()
    }

    /// Returns whether a pod uses an address of one of these blocks, or the kernel shows one in use.
    pub(crate) fn uses_any_of(&self, blocks: &[IpNet]) -> bool {
        let in_kernel = |net: &IpNet| {
            self.kernel_in_use.range(net.network()..=net.broadcast()).next().is_some()
        };
        blocks.iter().any(|net| in_kernel(net) || self.holder_within(*net).is_some())
    }

    /// Addresses that the kernel still uses `patience` after the end of their cooldown. Each is returned once.
    pub(crate) fn stuck_in_kernel(
        &mut self,
        now: Time,
        patience: config_model::Span,
    ) -> Vec<IpAddr> {
        let mut stuck = Vec::new();
        for address in &self.dirty {
            if let Some(AddressUse::Cooling(cooling)) = self.uses.get_mut(address)
                && !cooling.reported
                && now >= cooling.until + patience
                && self.kernel_in_use.contains(address)
            {
                cooling.reported = true;
                stuck.push(*address);
            }
        }
        stuck
    }

    fn mark_clean(&mut self, started: Time) {
        let gone: Vec<IpAddr> = self.dirty.difference(&self.kernel_in_use).copied().collect();
        for address in gone {
            if let Some(AddressUse::Cooling(cooling)) = self.uses.get(&address)
                && cooling.since < started
            {
                let cooling = Cooling { kernel_clean: true, ..cooling.clone() };
                self.set_use(address, Some(AddressUse::Cooling(cooling)));
            }
        }
    }

    /// Cools free addresses that the kernel shows in use: a late plugin or another program added routes or rules.
    fn hold_back_returned(&mut self, now: Time) {
        for address in self.kernel_in_use.clone() {
            match self.uses.get(&address) {
                Some(AddressUse::Assigned(_)) => {}
                Some(AddressUse::Cooling(cooling)) if !cooling.kernel_clean => {}
                Some(AddressUse::Cooling(cooling)) => {
                    let cooling = Cooling { kernel_clean: false, ..cooling.clone() };
                    self.set_use(address, Some(AddressUse::Cooling(cooling)));
                }
                None => {
                    if let Some(source) = self.block_of(address).map(|(source, _)| source.clone()) {
                        self.cool(address, source, now, now);
                    }
                }
            }
        }
    }

    pub(super) fn hold_back_in_kernel(&mut self, source: &BlockSource, net: IpNet, now: Time) {
        let within = self.kernel_in_use.range(net.network()..=net.broadcast());
        let unknown = within.filter(|address| !self.uses.contains_key(address));
        let unknown: Vec<IpAddr> = unknown.copied().collect();
        for address in unknown {
            self.cool(address, source.clone(), now, now);
        }
    }
}
