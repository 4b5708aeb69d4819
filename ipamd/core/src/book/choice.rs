//! The choice of the next address, and the number of addresses that can be assigned at once.

use super::{AddressBook, Eni, EniFacts};
use crate::{BlockSource, HeldAddress};
use config_model::CardIndex;
use ipnet::IpNet;
use std::{cmp::Reverse, net::IpAddr};

impl AddressBook {
    /// Returns the address of an ENI for the next pod on the card: the lowest of the fullest block of the fullest ready ENI.
    /// ENIs and prefixes with few pods thus become unused and can be freed.
    ///
    /// The search is linear in ENIs, which are few per instance type, and logarithmic in blocks and addresses.
    pub(crate) fn pick(&self, card: CardIndex) -> Option<HeldAddress> {
        self.kernel_seen?;
        let on_card = self.enis.values().filter(|eni| eni.facts.card == card && eni.serves());
        let open = on_card.filter_map(|eni| eni.blocks.first_open().map(|open| (eni, open)));
        let best = |(eni, (second_choice, ..)): &(&Eni, (bool, IpNet, IpAddr))| {
            (!second_choice, eni.blocks.held(), eni.blocks.cooling(), Reverse(eni.facts.device))
        };
        let (eni, (_, _, address)) = open.max_by_key(best)?;
        let EniFacts { id, device, .. } = &eni.facts;
        let source = BlockSource::Eni(id.clone());
        Some(HeldAddress { address, source, card, device: *device })
    }

    /// Returns the lowest free address of the fullest pod CIDR of the node.
    pub(crate) fn pick_of_node_cidrs(&self) -> Option<HeldAddress> {
        self.kernel_seen?;
        let (_, cidr, address) = self.node_cidrs.first_open()?;
        Some(HeldAddress::of_node_cidr(address, cidr))
    }

    /// The number of addresses that pods would get at once, those of the node's pod CIDRs included.
    pub(crate) fn usable(&self) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        let of_enis = self.enis.values().filter(|eni| eni.serves()).map(|eni| eni.blocks.free());
        of_enis.chain([self.node_cidrs.free()]).sum()
    }

    /// The number of addresses of the card's ENIs that pods would get at once.
    pub(crate) fn usable_on(&self, card: CardIndex) -> u64 {
        if self.kernel_seen.is_none() {
            return 0;
        }
        let on_card = self.enis.values().filter(|eni| eni.facts.card == card && eni.serves());
        on_card.map(|eni| eni.blocks.free()).sum()
    }
}
