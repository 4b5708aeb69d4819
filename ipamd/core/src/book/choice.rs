//! The choice of the next address, and the number of addresses that can be assigned at once.

use super::{AddressBook, Eni, EniFacts};
use crate::HeldAddress;
use config_model::CardIndex;
use std::{cmp::Reverse, net::IpAddr};

impl AddressBook {
    /// Returns the address for the next pod on the card: the lowest of the fullest block of the fullest ready ENI.
    /// ENIs and prefixes with few pods thus become unused and can be freed.
    ///
    /// The search is linear in ENIs, which are few per instance type, and logarithmic in blocks and addresses.
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

    /// The number of addresses that pods would get at once.
    pub(crate) fn usable(&self) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        self.enis.values().filter(|eni| eni.serves()).map(Eni::free).sum()
    }

    /// The number of addresses of the card that pods would get at once.
    pub(crate) fn usable_on(&self, card: CardIndex) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        let on_card = self.enis.values().filter(|eni| eni.facts.card == card && eni.serves());
        on_card.map(Eni::free).sum()
    }
}
