//! The map `places`: a copy of one endpoint for each value of the lowest bits of links, and the counts of `own_places`.

use crate::{
    AddressKey, EndpointValue,
    bytes::{part, words_of},
};

/// A place as a value.
pub type PlaceValue = [u8; 64];

/// The number of places.
pub const PLACES: u32 = 1 << 12;

/// The programs use a copy whose link they look for, and search `endpoints` only if the count is not 0. So a copy is complete
/// before it has a link, and the count is never too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(PlaceValue);

impl Place {
    /// The number of the place of a link.
    pub fn of(link: u32) -> u32 {
        link % PLACES
    }

    pub fn from_bytes(bytes: PlaceValue) -> Self {
        Self(bytes)
    }

    fn link(&self) -> u32 {
        u32::from_ne_bytes(part(&self.0, 0))
    }

    /// At least the number of the endpoints there. 0 beside an endpoint is an error.
    pub fn count(&self) -> u32 {
        u32::from_ne_bytes(part(&self.0, 4))
    }

    fn with_link(mut self, link: u32) -> Self {
        self.0[..4].copy_from_slice(&link.to_ne_bytes());
        self
    }

    /// The same with another count.
    #[must_use]
    pub fn with_count(mut self, count: u32) -> Self {
        self.0[4..8].copy_from_slice(&count.to_ne_bytes());
        self
    }

    fn with_pod(mut self, endpoint: &EndpointValue) -> Self {
        self.0[8..48].copy_from_slice(&endpoint[..40]);
        self
    }

    /// True if the programs find this endpoint, which is a row of `endpoints`.
    pub fn finds(&self, link: u32, endpoint: &EndpointValue) -> bool {
        match self.link() == link {
            true => self.0[8..48] == endpoint[..40],
            false => self.count() > 0,
        }
    }

    /// The values before and after an endpoint is a row of `endpoints`. `is_new` is true if it was no row.
    pub fn add(self, link: u32, endpoint: &EndpointValue, is_new: bool) -> [Vec<PlaceValue>; 2] {
        let counted = if is_new { self.with_count(self.count().saturating_add(1)) } else { self };
        let has_other = self.link() != 0 && self.link() != link;
        if has_other {
            return [vec![counted.0], Vec::new()];
        }
        let without = counted.with_link(0);
        let complete = without.with_pod(endpoint);
        let mut before = vec![without.0];
        before.extend((complete != without).then_some(complete.0));
        [before, vec![complete.with_link(link).0]]
    }

    /// The values before and after an endpoint is removed from `endpoints`.
    pub fn remove(self, link: u32) -> [PlaceValue; 2] {
        let without = if self.link() == link { self.with_link(0) } else { self };
        [without.0, without.with_count(self.count().saturating_sub(1)).0]
    }
}

/// The number of places of the node's own addresses.
pub const OWN_PLACES: u32 = 1 << 12;

/// The place of an own address, as `is_own_address` of `datapath/bpf/policy.bpf.c` has it.
pub fn place_of_own(address: &AddressKey) -> u32 {
    let [high, low]: [u64; 2] = words_of(address);
    let product = (low ^ high).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    u32::try_from(product >> 52).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Endpoint;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The endpoint that the programs find for a link.
    fn found(
        places: &BTreeMap<u32, Place>,
        endpoints: &BTreeMap<u32, EndpointValue>,
        link: u32,
    ) -> Option<[u8; 40]> {
        let place = places.get(&Place::of(link)).copied().unwrap_or(Place([0; 64]));
        if place.link() == link {
            return Some(part(&place.0, 8));
        }
        let endpoint = (place.count() > 0).then(|| endpoints.get(&link)).flatten();
        endpoint.map(|value| part(value, 0))
    }

    proptest! {
        /// The programs find each link's endpoint in each order of changes, and after each single write.
        #[test]
        fn the_programs_find_what_was_added(
            changes in prop::collection::vec((0_usize..6, 0_u32..3), 1..60),
        ) {
            // Three links have one place.
            let links = [5, 5 + PLACES, 5 + 2 * PLACES, 6, 7, 7 + PLACES];
            let (mut places, mut endpoints) = (BTreeMap::new(), BTreeMap::new());
            for (at, slot) in changes {
                let link = links[at];
                let place = places.get(&Place::of(link)).copied().unwrap_or(Place([0; 64]));
                let was = found(&places, &endpoints, link);
                // The last number stands for a removal.
                let (wanted, [before, after]) = if slot == 2 {
                    let [one, other] = place.remove(link);
                    if !endpoints.contains_key(&link) {
                        continue;
                    }
                    (None, [vec![one], vec![other]])
                } else {
                    let value = Endpoint { slot, ..Endpoint::default() }.to_bytes();
                    let is_new = !endpoints.contains_key(&link);
                    (Some(value), place.add(link, &value, is_new))
                };
                let is = wanted.map(|value| part(&value, 0));
                let check = |places: &_, endpoints: &_| {
                    let found = found(places, endpoints, link);
                    prop_assert!(found == was || found == is);
                    for other in links.iter().filter(|other| **other != link) {
                        let wanted = endpoints.get(other).map(|value| part(value, 0));
                        prop_assert_eq!(super::tests::found(places, endpoints, *other), wanted);
                    }
                    Ok(())
                };
                for value in before {
                    places.insert(Place::of(link), Place(value));
                    check(&places, &endpoints)?;
                }
                match wanted {
                    Some(value) => drop(endpoints.insert(link, value)),
                    None => drop(endpoints.remove(&link)),
                }
                check(&places, &endpoints)?;
                for value in after {
                    places.insert(Place::of(link), Place(value));
                    check(&places, &endpoints)?;
                }
                prop_assert_eq!(found(&places, &endpoints, link), is);
            }
            for link in links {
                let count = endpoints.keys().filter(|of| Place::of(**of) == Place::of(link)).count();
                let place = places.get(&Place::of(link)).map_or(0, Place::count);
                prop_assert_eq!(usize::try_from(place).unwrap_or_default(), count);
            }
        }
    }
}
