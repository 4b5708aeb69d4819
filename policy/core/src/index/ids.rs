//! Small sorted sets of numbers: most hold up to four and cost no allocation.

#[derive(Clone, Debug)]
pub(super) enum Ids {
    Few(u8, [u32; 4]),
    Many(Vec<u32>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Few(0, [0; 4])
    }
}

impl Ids {
    pub(super) fn as_slice(&self) -> &[u32] {
        match self {
            Self::Few(count, ids) => &ids[..usize::from(*count)],
            Self::Many(ids) => ids,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.as_slice().iter().copied()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.as_slice().binary_search(&id).is_ok()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(super) fn insert(&mut self, id: u32) {
        let at = match self.as_slice() {
            // Numbers rise as things come.
            [.., last] if *last < id => self.as_slice().len(),
            ids => match ids.binary_search(&id) {
                Ok(_) => return,
                Err(at) => at,
            },
        };
        match self {
            Self::Few(count, ids) if usize::from(*count) < ids.len() => {
                ids[at..].rotate_right(1);
                ids[at] = id;
                *count += 1;
            }
            Self::Few(_, ids) => {
                let mut many = ids.to_vec();
                many.insert(at, id);
                *self = Self::Many(many);
            }
            Self::Many(ids) => ids.insert(at, id),
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        let Ok(at) = self.as_slice().binary_search(&id) else { return };
        match self {
            Self::Few(count, ids) => {
                ids[at..].rotate_left(1);
                *count -= 1;
            }
            Self::Many(ids) => {
                ids.remove(at);
                if let &[a, b, c] = ids.as_slice() {
                    *self = Self::Few(3, [a, b, c, 0]);
                }
            }
        }
    }
}

impl FromIterator<u32> for Ids {
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let (mut few, mut ids) = (Self::default(), ids.into_iter());
        while let Some(id) = ids.next() {
            if few.as_slice().len() < 4 || few.contains(id) {
                few.insert(id);
                continue;
            }
            let mut many: Vec<u32> = few.iter().chain([id]).chain(ids).collect();
            many.sort_unstable();
            many.dedup();
            many.shrink_to_fit();
            return Self::Many(many);
        }
        few
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ids_are_a_set(steps in proptest::collection::vec((any::<bool>(), 0..12u32), 0..60)) {
            let (mut ids, mut model) = (Ids::default(), BTreeSet::new());
            for (put, id) in steps {
                if put {
                    ids.insert(id);
                    model.insert(id);
                } else {
                    ids.remove(id);
                    model.remove(&id);
                }
                prop_assert!(ids.iter().eq(model.iter().copied()));
                let anew: Ids = model.iter().rev().chain(&model).copied().collect();
                prop_assert_eq!(anew.as_slice(), ids.as_slice());
                prop_assert!((0..12).all(|id| ids.contains(id) == model.contains(&id)));
            }
        }
    }
}
