//! Assigned addresses of a subnet.

use crate::{Ec2Error, ReservationKind, rng::Rng};
use config_model::EniId;
use ipnet::Ipv4Net;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// EC2 keeps the first four addresses of a subnet and the last one.
const RESERVED: u32 = 5;
/// Addresses of a delegated prefix.
const PREFIX_SIZE: u32 = 16;
const PREFIX_LEN: u8 = 28;
/// A /28 of which every address is gone.
const FULL: u16 = u16::MAX;

/// The addresses of one subnet and who holds them.
///
/// One bit an address, one word a /28: a large subnet must not make its callers slow.
#[derive(Clone, Debug)]
pub(crate) struct AddressPool {
    cidr: Ipv4Net,
    /// Given out, or EC2's own.
    gone: Vec<u16>,
    /// Addresses that are given only as prefixes, or only by name: of reservations.
    fenced: Vec<u16>,
    /// Blocks that are given only by name.
    explicit: Vec<bool>,
    /// Holder of each single address outside prefixes; `None` is the operator.
    holders: BTreeMap<u32, Option<EniId>>,
    free: u32,
}

impl AddressPool {
    pub(crate) fn new(cidr: Ipv4Net) -> Self {
        let cidr = cidr.trunc();
        let size = size_of(cidr);
        let blocks = usize::try_from(size / PREFIX_SIZE).unwrap_or(1);
        let mut pool = Self {
            cidr,
            gone: vec![0; blocks],
            fenced: vec![0; blocks],
            explicit: vec![false; blocks],
            holders: BTreeMap::new(),
            free: size,
        };
        for offset in (0..RESERVED - 1).chain([size - 1]) {
            pool.mark(pool.first() + offset);
        }
        pool
    }

    fn first(&self) -> u32 {
        u32::from(self.cidr.network())
    }

    fn size(&self) -> u32 {
        size_of(self.cidr)
    }

    /// Number of free addresses.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// The word and the bit of an address of this subnet.
    fn place(&self, address: u32) -> (usize, u16) {
        let offset = address.wrapping_sub(self.first());
        (usize::try_from(offset / PREFIX_SIZE).unwrap_or(usize::MAX), 1 << (offset % PREFIX_SIZE))
    }

    fn mark(&mut self, address: u32) {
        let (word, bit) = self.place(address);
        if let Some(word) = self.gone.get_mut(word).filter(|word| **word & bit == 0) {
            *word |= bit;
            self.free -= 1;
        }
    }

    fn unmark(&mut self, address: u32) {
        let (word, bit) = self.place(address);
        if let Some(word) = self.gone.get_mut(word).filter(|word| **word & bit != 0) {
            *word &= !bit;
            self.free += 1;
        }
    }

    fn is_reserved(&self, address: u32) -> bool {
        let offset = address - self.first();
        offset < RESERVED - 1 || offset == self.size() - 1
    }

    /// True if an address is assigned, by itself or within a prefix.
    pub(crate) fn is_held(&self, address: Ipv4Addr) -> bool {
        let (word, bit) = self.place(address.into());
        self.gone.get(word).is_some_and(|word| word & bit != 0) && !self.is_reserved(address.into())
    }

    /// Holder of a single address.
    pub(crate) fn holder(&self, address: Ipv4Addr) -> Option<&EniId> {
        self.holders.get(&u32::from(address))?.as_ref()
    }

    /// Checks that a request could name this address.
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

    /// Checks that a request could name this prefix.
    pub(crate) fn check_prefix(&self, prefix: Ipv4Net) -> Result<(), Ec2Error> {
        if prefix.prefix_len() != PREFIX_LEN || prefix.trunc() != prefix {
            return Err(Ec2Error::invalid_value(format!("{prefix} is not a /28 prefix")));
        }
        if !self.cidr.contains(&prefix) {
            let message =
                format!("Prefix {prefix} does not fall within the subnet's address range");
            return Err(Ec2Error::invalid_value(message));
        }
        let (block, _) = self.place(prefix.network().into());
        if self.gone.get(block) == Some(&0) { Ok(()) } else { Err(Ec2Error::no_cidr_blocks()) }
    }

    /// Gives an address that was checked to be free; to the operator, if to no ENI.
    pub(crate) fn take(&mut self, address: Ipv4Addr, eni: Option<&EniId>) {
        self.mark(address.into());
        self.holders.insert(address.into(), eni.cloned());
    }

    /// Gives this many addresses, or none.
    pub(crate) fn take_some(
        &mut self,
        count: usize,
        eni: Option<&EniId>,
        rng: &mut Rng,
    ) -> Result<Vec<Ipv4Addr>, Ec2Error> {
        let mut given = Vec::new();
        while given.len() < count {
            let Some(address) = self.any_free(rng) else {
                given.iter().for_each(|address| self.release(*address));
                return Err(Ec2Error::subnet_full());
            };
            self.take(address, eni);
            given.push(address);
        }
        Ok(given)
    }

    /// A random address that is free and not fenced.
    fn any_free(&self, rng: &mut Rng) -> Option<Ipv4Addr> {
        if self.free == 0 {
            return None;
        }
        let start = u32::try_from(rng.below(u64::from(self.size()))).ok()?;
        let (first, bit) = self.place(self.first() + start);
        let open = |at: usize| {
            let gone = self.gone.get(at).copied().unwrap_or(FULL);
            !(gone | self.fenced.get(at).copied().unwrap_or_default())
        };
        // From the bit on, then the words after it, and at last what was left out before it.
        let begin = (first, open(first) & !(bit - 1));
        let around = (1..=self.gone.len()).map(|step| (first + step) % self.gone.len());
        let (at, open) = std::iter::once(begin)
            .chain(around.map(|at| (at, open(at))))
            .find(|(_, open)| *open != 0)?;
        let at = u32::try_from(at).ok()?;
        Some(Ipv4Addr::from(self.first() + at * PREFIX_SIZE + open.trailing_zeros()))
    }

    /// Gives this many /28 prefixes, or none; those that are reserved for prefixes first.
    pub(crate) fn take_prefixes(
        &mut self,
        count: usize,
        rng: &mut Rng,
    ) -> Result<Vec<Ipv4Net>, Ec2Error> {
        let blocks = self.gone.len();
        let start = usize::try_from(rng.below(u64::try_from(blocks).unwrap_or(1))).unwrap_or(0);
        let free = |block: &usize| {
            self.gone.get(*block) == Some(&0) && self.explicit.get(*block) == Some(&false)
        };
        let fenced = |block: &usize| self.fenced.get(*block) == Some(&FULL);
        let around = || (0..blocks).map(|step| (start + step) % blocks).filter(free);
        let found: Vec<Ipv4Net> = around()
            .filter(fenced)
            .chain(around().filter(|block| !fenced(block)))
            .take(count)
            .filter_map(|block| self.prefix_at(block))
            .collect();
        if found.len() < count {
            return Err(Ec2Error::no_cidr_blocks());
        }
        found.iter().for_each(|prefix| self.take_prefix(*prefix));
        Ok(found)
    }

    fn prefix_at(&self, block: usize) -> Option<Ipv4Net> {
        let offset = u32::try_from(block).ok()? * PREFIX_SIZE;
        Ipv4Net::new(Ipv4Addr::from(self.first() + offset), PREFIX_LEN).ok()
    }

    /// Gives a prefix that was checked to be free.
    pub(crate) fn take_prefix(&mut self, prefix: Ipv4Net) {
        let start = u32::from(prefix.network());
        (start..start + PREFIX_SIZE).for_each(|address| self.mark(address));
    }

    /// Takes an address back.
    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        if self.holders.remove(&u32::from(address)).is_some() {
            self.unmark(address.into());
        }
    }

    /// Takes a prefix back.
    pub(crate) fn release_prefix(&mut self, prefix: Ipv4Net) {
        let start = u32::from(prefix.network());
        (start..start + PREFIX_SIZE).for_each(|address| self.unmark(address));
    }

    /// Number of prefixes that can still be assigned without naming them.
    pub(crate) fn free_prefixes(&self) -> usize {
        let blocks = self.gone.iter().zip(&self.explicit);
        blocks.filter(|(gone, explicit)| **gone == 0 && !**explicit).count()
    }

    /// The operator takes one address of each /28 that is still whole.
    pub(crate) fn fragment(&mut self, rng: &mut Rng) -> Vec<Ipv4Addr> {
        let whole: Vec<u32> =
            (0..).zip(&self.gone).filter(|(_, g)| **g == 0).map(|w| w.0).collect();
        let address = |block: u32, at: u64| {
            let at = u32::try_from(at).unwrap_or_default();
            Ipv4Addr::from(self.first() + block * PREFIX_SIZE + at)
        };
        let taken: Vec<Ipv4Addr> =
            whole.into_iter().map(|block| address(block, rng.below(16))).collect();
        taken.iter().for_each(|address| self.take(*address, None));
        taken
    }

    /// Addresses of the operator.
    pub(crate) fn operators(&self) -> Vec<Ipv4Addr> {
        let operators = self.holders.iter().filter(|(_, holder)| holder.is_none());
        operators.map(|(address, _)| Ipv4Addr::from(*address)).collect()
    }

    /// Keeps whole /28 blocks for prefixes or for those who name them, or any addresses for those
    /// who name them.
    pub(crate) fn reserve(&mut self, cidr: Ipv4Net, kind: ReservationKind) {
        self.fence(cidr, Some(kind));
    }

    /// Ends a reservation of [`Self::reserve`]; assigned addresses stay assigned.
    pub(crate) fn unreserve(&mut self, cidr: Ipv4Net) {
        self.fence(cidr, None);
    }

    fn fence(&mut self, cidr: Ipv4Net, kind: Option<ReservationKind>) {
        let start = u32::from(cidr.network());
        for address in start..start + size_of(cidr) {
            let (word, bit) = self.place(address);
            if let Some(fenced) = self.fenced.get_mut(word) {
                *fenced = if kind.is_some() { *fenced | bit } else { *fenced & !bit };
            }
            if let Some(explicit) = self.explicit.get_mut(word) {
                *explicit = kind == Some(ReservationKind::Explicit);
            }
        }
    }
}

/// A subnet is a /16 at most, so its size fits.
fn size_of(cidr: Ipv4Net) -> u32 {
    1 << (32 - u32::from(cidr.prefix_len()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may fail")]
    use super::*;

    fn pool(cidr: &str) -> (AddressPool, EniId, Rng) {
        (AddressPool::new(cidr.parse().unwrap()), EniId::new("eni-1"), Rng::new(1))
    }

    #[test]
    fn a_subnet_gives_all_but_five_addresses_each_once() {
        let (mut pool, eni, mut rng) = pool("10.0.0.16/28");
        assert_eq!(pool.free(), 11);
        let mut given = pool.take_some(11, Some(&eni), &mut rng).unwrap();
        given.sort();
        let all: Vec<Ipv4Addr> = (20..31).map(|last| Ipv4Addr::new(10, 0, 0, last)).collect();
        assert_eq!((given, pool.free()), (all, 0));
        let refused = pool.take_some(1, Some(&eni), &mut rng).unwrap_err();
        assert_eq!(refused.code, "InsufficientFreeAddressesInSubnet");
        pool.release(Ipv4Addr::new(10, 0, 0, 25));
        assert_eq!(pool.take_some(1, Some(&eni), &mut rng).unwrap(), [Ipv4Addr::new(10, 0, 0, 25)]);
    }

    #[test]
    fn one_address_breaks_a_prefix() {
        let (mut pool, eni, mut rng) = pool("10.0.0.0/26");
        // Of four blocks the first and the last hold EC2's own addresses.
        pool.take("10.0.0.20".parse().unwrap(), Some(&eni));
        let given = pool.take_prefixes(1, &mut rng).unwrap();
        assert_eq!(given, ["10.0.0.32/28".parse::<Ipv4Net>().unwrap()]);
        assert_eq!(pool.free(), 64 - 5 - 1 - 16);
        let refused = pool.take_prefixes(1, &mut rng).unwrap_err();
        assert_eq!(refused.code, "InsufficientCidrBlocks");
        pool.release_prefix(given[0]);
        assert_eq!(pool.free(), 64 - 5 - 1);
    }

    #[test]
    fn a_fragmented_subnet_has_single_addresses_and_no_prefix() {
        let (mut pool, eni, mut rng) = pool("10.0.0.0/24");
        assert_eq!(pool.free_prefixes(), 14);
        let taken = pool.fragment(&mut rng);
        assert_eq!((taken.len(), pool.free_prefixes(), pool.free()), (14, 0, 256 - 5 - 14));
        assert_eq!(pool.operators().len(), 14);
        assert!(pool.take_prefixes(1, &mut rng).is_err());
        assert_eq!(pool.take_some(40, Some(&eni), &mut rng).unwrap().len(), 40);
        // Whole again where the subnet has no other assignment.
        let (mut other, _, mut rng) = self::pool("10.0.0.0/24");
        other.fragment(&mut rng).into_iter().for_each(|address| other.release(address));
        assert_eq!((other.free_prefixes(), other.free()), (14, 251));
    }

    #[test]
    fn reserved_blocks_are_given_as_prefixes_first_and_never_as_single_addresses() {
        let (mut pool, eni, mut rng) = pool("10.0.0.0/26");
        let reserved: Ipv4Net = "10.0.0.32/28".parse().unwrap();
        pool.reserve(reserved, ReservationKind::Prefix);
        let singles = pool.take_some(64 - 5 - 16, Some(&eni), &mut rng).unwrap();
        assert!(singles.iter().all(|address| !reserved.contains(address)));
        assert!(pool.take_some(1, Some(&eni), &mut rng).is_err());
        singles.into_iter().for_each(|address| pool.release(address));
        assert_eq!(pool.take_prefixes(1, &mut rng).unwrap(), [reserved]);
        pool.unreserve(reserved);
        pool.release_prefix(reserved);
        pool.reserve(reserved, ReservationKind::Explicit);
        let other: Ipv4Net = "10.0.0.16/28".parse().unwrap();
        assert_eq!(pool.take_prefixes(1, &mut rng).unwrap(), [other]);
        assert!(pool.take_prefixes(1, &mut rng).is_err());
        assert_eq!(pool.check_prefix(reserved), Ok(()));
    }

    #[test]
    fn a_random_address_is_found_wherever_it_is() {
        let (mut pool, eni, mut rng) = pool("10.0.0.0/22");
        let mut all = pool.take_some(1024 - 5, Some(&eni), &mut rng).unwrap();
        all.sort();
        all.dedup();
        assert_eq!((all.len(), pool.free()), (1019, 0));
        for last in [all[0], all[500], all[1018]] {
            pool.release(last);
            assert_eq!(pool.take_some(1, Some(&eni), &mut rng).unwrap(), [last]);
        }
    }
}
