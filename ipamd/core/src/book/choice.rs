//! Which address does the next pod get, and how many could be given at once?

use super::{AddressBook, Eni, EniFacts};
use crate::HeldAddress;
use config_model::CardIndex;
use std::{cmp::Reverse, net::IpAddr};

impl AddressBook {
    /// The address that the next pod gets on the card: of the fullest ENI that serves, the lowest of
    /// its fullest block. ENIs and prefixes that few pods use run empty so, and can be freed.
    ///
    /// ENIs are looked at one by one: they are as few as the instance type allows. Addresses and
    /// blocks are not.
    pub(crate) fn pick(&self, card: CardIndex) -> Option<HeldAddress> {
        self.kernel_seen?;
        let on_card = self.enis.values().filter(|eni| eni.facts.card == card && eni.serves());
        let open = on_card.filter_map(|eni| eni.first_open().map(|open| (eni, open)));
        let best = |(eni, (second_choice, _)): &(&Eni, (bool, IpAddr))| {
            (!second_choice, eni.held, eni.cooling, Reverse(eni.facts.device))
        };
        let (eni, (_, address)) = open.max_by_key(best)?;
        let EniFacts { id, device, .. } = &eni.facts;
        Some(HeldAddress { address, eni: id.clone(), card, device: *device })
    }

    /// How many addresses Reserves would get at once.
    pub(crate) fn usable(&self) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        self.enis.values().filter(|eni| eni.serves()).map(Eni::free).sum()
    }

    /// How many addresses of the card Reserves would get at once.
    pub(crate) fn usable_on(&self, card: CardIndex) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        let on_card = self.enis.values().filter(|eni| eni.facts.card == card && eni.serves());
        on_card.map(Eni::free).sum()
    }
}
