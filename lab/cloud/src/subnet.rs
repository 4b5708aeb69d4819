//! Which addresses of a subnet are given out.

use crate::{Ec2Error, rng::Rng};
use config_model::EniId;
use ipnet::Ipv4Net;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// EC2 keeps the first four addresses of a subnet and the last one.
const RESERVED: u32 = 5;
/// Addresses of a delegated prefix.
const PREFIX_SIZE: u32 = 16;
const PREFIX_LEN: u8 = 28;

/// The addresses of one subnet and who holds them.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    cidr: Ipv4Net,
    held: BTreeMap<u32, EniId>,
}

impl Ledger {
    pub(crate) fn new(cidr: Ipv4Net) -> Self {
        Self { cidr: cidr.trunc(), held: BTreeMap::new() }
    }

    fn first(&self) -> u32 {
        u32::from(self.cidr.network())
    }

    /// A subnet is a /16 at most, so its size fits.
    fn size(&self) -> u32 {
        1 << (32 - u32::from(self.cidr.prefix_len()))
    }

    /// How many addresses can still be given out.
    pub(crate) fn free(&self) -> u32 {
        let held = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        self.size().saturating_sub(RESERVED).saturating_sub(held)
    }

    fn is_reserved(&self, address: u32) -> bool {
        let offset = address - self.first();
        offset < RESERVED - 1 || offset == self.size() - 1
    }

    fn is_free(&self, address: u32) -> bool {
        !self.is_reserved(address) && !self.held.contains_key(&address)
    }

    /// Who holds an address.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<&EniId> {
        self.held.get(&u32::from(address))
    }

    /// Whether an address could be asked for by name.
    pub(crate) fn check(&self, address: Ipv4Addr) -> Result<(), Ec2Error> {
        if !self.cidr.contains(&address) {
            let message =
                format!("Address {address} does not fall within the subnet's address range");
            return Err(Ec2Error::invalid_value(message));
        }
        if self.is_reserved(u32::from(address)) {
            let message = format!("Address {address} is in subnet's reserved address range");
            return Err(Ec2Error::invalid_value(message));
        }
        Ok(())
    }

    /// Whether a prefix could be asked for by name.
    pub(crate) fn check_prefix(&self, prefix: Ipv4Net) -> Result<(), Ec2Error> {
        if prefix.prefix_len() != PREFIX_LEN || prefix.trunc() != prefix {
            return Err(Ec2Error::invalid_value(format!("{prefix} is not a /28 prefix")));
        }
        if !self.cidr.contains(&prefix) {
            let message =
                format!("Prefix {prefix} does not fall within the subnet's address range");
            return Err(Ec2Error::invalid_value(message));
        }
        if self.is_free_block(u32::from(prefix.network())) {
            Ok(())
        } else {
            Err(Ec2Error::no_cidr_blocks())
        }
    }

    fn is_free_block(&self, start: u32) -> bool {
        let block = start..start + PREFIX_SIZE;
        self.held.range(block.clone()).next().is_none() && block.clone().all(|a| self.is_free(a))
    }

    /// Gives an address that was checked to be free.
    pub(crate) fn take(&mut self, address: Ipv4Addr, eni: &EniId) {
        self.held.insert(u32::from(address), eni.clone());
    }

    /// Gives this many addresses, or none.
    pub(crate) fn take_some(
        &mut self,
        count: usize,
        eni: &EniId,
        rng: &mut Rng,
    ) -> Result<Vec<Ipv4Addr>, Ec2Error> {
        if u32::try_from(count).is_ok_and(|count| count <= self.free()) {
            Ok((0..count).filter_map(|_| self.take_any(eni, rng)).collect())
        } else {
            Err(Ec2Error::subnet_full())
        }
    }

    /// Gives a random free address.
    fn take_any(&mut self, eni: &EniId, rng: &mut Rng) -> Option<Ipv4Addr> {
        let start = u32::try_from(rng.below(u64::from(self.size()))).ok()?;
        let size = self.size();
        let address = (0..size)
            .map(|step| self.first() + (start + step) % size)
            .find(|address| self.is_free(*address))?;
        self.held.insert(address, eni.clone());
        Some(Ipv4Addr::from(address))
    }

    /// Gives this many /28 prefixes, or none.
    pub(crate) fn take_prefixes(
        &mut self,
        count: usize,
        eni: &EniId,
        rng: &mut Rng,
    ) -> Result<Vec<Ipv4Net>, Ec2Error> {
        let blocks = self.size() / PREFIX_SIZE;
        let start = u32::try_from(rng.below(u64::from(blocks))).unwrap_or(0);
        let found: Vec<Ipv4Net> = (0..blocks)
            .map(|step| self.first() + (start + step) % blocks * PREFIX_SIZE)
            .filter(|block| self.is_free_block(*block))
            .take(count)
            .map(|block| Ipv4Net::new_assert(Ipv4Addr::from(block), PREFIX_LEN))
            .collect();
        if found.len() < count {
            return Err(Ec2Error::no_cidr_blocks());
        }
        for prefix in &found {
            self.take_prefix(*prefix, eni);
        }
        Ok(found)
    }

    /// Gives a prefix that was checked to be free.
    pub(crate) fn take_prefix(&mut self, prefix: Ipv4Net, eni: &EniId) {
        let start = u32::from(prefix.network());
        self.held.extend((start..start + PREFIX_SIZE).map(|address| (address, eni.clone())));
    }

    /// Takes an address back.
    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        self.held.remove(&u32::from(address));
    }

    /// Takes a prefix back.
    pub(crate) fn release_prefix(&mut self, prefix: Ipv4Net) {
        let start = u32::from(prefix.network());
        for address in start..start + PREFIX_SIZE {
            self.held.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    fn ledger(cidr: &str) -> (Ledger, EniId, Rng) {
        (Ledger::new(cidr.parse().unwrap()), EniId::new("eni-1"), Rng::new(1))
    }

    #[test]
    fn a_subnet_gives_all_but_five_addresses_each_once() {
        let (mut ledger, eni, mut rng) = ledger("10.0.0.16/28");
        assert_eq!(ledger.free(), 11);
        let mut given = ledger.take_some(11, &eni, &mut rng).unwrap();
        given.sort();
        let all: Vec<Ipv4Addr> = (20..31).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
        assert_eq!((given, ledger.free()), (all, 0));
        let refused = ledger.take_some(1, &eni, &mut rng).unwrap_err();
        assert_eq!(refused.code, "InsufficientFreeAddressesInSubnet");
        ledger.release(Ipv4Addr::new(10, 0, 0, 25));
        assert_eq!(ledger.take_some(1, &eni, &mut rng).unwrap(), [Ipv4Addr::new(10, 0, 0, 25)]);
    }

    #[test]
    fn one_address_breaks_a_prefix() {
        let (mut ledger, eni, mut rng) = ledger("10.0.0.0/26");
        // Of four blocks the first and the last hold EC2's own addresses.
        ledger.take("10.0.0.20".parse().unwrap(), &eni);
        let given = ledger.take_prefixes(1, &eni, &mut rng).unwrap();
        assert_eq!(given, ["10.0.0.32/28".parse::<Ipv4Net>().unwrap()]);
        assert_eq!(ledger.free(), 64 - 5 - 1 - 16);
        let refused = ledger.take_prefixes(1, &eni, &mut rng).unwrap_err();
        assert_eq!(refused.code, "InsufficientCidrBlocks");
        ledger.release_prefix(given[0]);
        assert_eq!(ledger.free(), 64 - 5 - 1);
    }
}
