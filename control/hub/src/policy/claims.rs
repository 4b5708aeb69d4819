//! Addresses of objects that the index does not contain. An announcement of such an address is refused.

use policy_objects::Named;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// Objects that claim each address. The size is bounded by the addresses in the objects. An object's removal
/// removes its claims.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The object's UID, and its addresses, of which there is at least one.
    of: BTreeMap<Named, (String, Vec<IpAddr>)>,
    by: BTreeMap<IpAddr, BTreeSet<Named>>,
}

impl Claims {
    /// Sets the addresses of a new or changed object.
    pub(crate) fn put(&mut self, object: Named, uid: &str, addresses: &[IpAddr]) {
        self.remove(&object, "");
        if addresses.is_empty() {
            return;
        }
        let addresses: Vec<IpAddr> = addresses.iter().map(IpAddr::to_canonical).collect();
        for address in &addresses {
            self.by.entry(*address).or_default().insert(object.clone());
        }
        self.of.insert(object, (uid.to_owned(), addresses));
    }

    /// Removes an object. With a non-empty UID, only if the object has it.
    pub(crate) fn remove(&mut self, object: &Named, uid: &str) {
        if !self.of.get(object).is_some_and(|(its, _)| uid.is_empty() || its == uid) {
            return;
        }
        let (_, addresses) = self.of.remove(object).unwrap_or_default();
        for address in addresses {
            if let Some(objects) = self.by.get_mut(&address) {
                objects.remove(object);
                if objects.is_empty() {
                    self.by.remove(&address);
                }
            }
        }
    }

    /// Returns the object that holds an address; if several claim it, the first by name.
    pub(crate) fn holder(&self, address: IpAddr) -> Option<&Named> {
        self.by.get(&address)?.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Named {
        Named { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn an_address_is_claimed_as_long_as_one_object_has_it() {
        let (one, other): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut claims = Claims::default();
        // An object may contain the same address twice, also as an IPv4-mapped IPv6 address.
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 1]);
        claims.put(named("a"), "1", &[one, mapped]);
        claims.put(named("b"), "2", &[one, other]);
        assert_eq!(claims.holder(one), Some(&named("a")));
        claims.put(named("a"), "1", &[]);
        assert_eq!(claims.holder(one), Some(&named("b")));
        claims.remove(&named("b"), "of before");
        assert_eq!(claims.holder(other), Some(&named("b")));
        claims.remove(&named("b"), "2");
        assert_eq!((claims.holder(one), claims.holder(other)), (None, None));
        assert!(claims.of.is_empty() && claims.by.is_empty());
    }
}
