//! Sets of numbers that are small and many.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn insert(&mut self, number: u32) {
        let (word, bit) = place(number);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let (word, bit) = place(number);
        if let Some(word) = self.0.get_mut(word) {
            *word &= !bit;
        }
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(crate) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a & b).collect())
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        let other = other.0.iter().copied().chain(std::iter::repeat(0));
        Self(self.0.iter().zip(other).map(|(a, b)| a & !b).collect())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.0).flat_map(|(at, word)| {
            (0..64_u32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }
}

fn place(number: u32) -> (usize, u64) {
    ((number / 64) as usize, 1 << (number % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::btree_set, prelude::*};
    use std::collections::BTreeSet;

    fn of(numbers: &BTreeSet<u32>) -> Bits {
        let mut bits = Bits::default();
        numbers.iter().for_each(|number| bits.insert(*number));
        bits
    }

    proptest! {
        #[test]
        fn they_are_sets(a in btree_set(0..200_u32, 0..40), b in btree_set(0..200_u32, 0..40)) {
            let (x, y) = (of(&a), of(&b));
            prop_assert!(x.iter().eq(a.iter().copied()));
            prop_assert_eq!(x.len() as usize, a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert!(x.and(&y).iter().eq(a.intersection(&b).copied()));
            prop_assert!(x.without(&y).iter().eq(a.difference(&b).copied()));
            let mut both = x.clone();
            both.add(&y);
            prop_assert!(both.iter().eq(a.union(&b).copied()));
            prop_assert!((0..200).all(|number| x.has(number) == a.contains(&number)));
            b.iter().for_each(|number| both.remove(*number));
            prop_assert!(both.iter().eq(a.difference(&b).copied()));
        }
    }
}
