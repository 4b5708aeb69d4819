//! Which objects of a kind there are, so that those that vanish while nobody looks are missed.

use std::collections::BTreeMap;

/// By namespace and name: its UID, and the list that had it last.
#[derive(Debug, Default)]
pub(crate) struct ObjectTracker {
    objects: BTreeMap<Box<str>, (Box<str>, u32)>,
    round: u32,
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl ObjectTracker {
    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// An object is there. Another of its name that was there before is gone.
    pub(crate) fn put(&mut self, namespace: &str, name: &str, uid: &str) -> Option<Gone> {
        let key = key(namespace, name);
        if let Some((had, round)) = self.objects.get_mut(&key)
            && **had == *uid
        {
            *round = self.round;
            return None;
        }
        let before = self.objects.insert(key, (uid.into(), self.round));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        before.map(|(uid, _)| Gone { namespace, name, uid: uid.into_string() })
    }

    /// An object is gone, unless another of its name has come since.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, uid: &str) {
        let key = key(namespace, name);
        if self.objects.get(&key).is_some_and(|(had, _)| **had == *uid || uid.is_empty()) {
            self.objects.remove(&key);
        }
    }

    /// The list is read to its end: what it did not have is gone.
    pub(crate) fn end(&mut self) -> Vec<Gone> {
        let round = self.round;
        let gone = |(key, (uid, _)): (Box<str>, (Box<str>, u32))| of(&key, &uid);
        self.objects.extract_if(.., |_, (_, seen)| *seen != round).map(gone).collect()
    }

    /// The kind is gone, and all of it.
    pub(crate) fn clear(&mut self) -> Vec<Gone> {
        let all = std::mem::take(&mut self.objects);
        all.iter().map(|(key, (uid, _))| of(key, uid)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

fn key(namespace: &str, name: &str) -> Box<str> {
    format!("{namespace}/{name}").into()
}

fn of(key: &str, uid: &str) -> Gone {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    Gone { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(namespace: &str, name: &str, uid: &str) -> Gone {
        Gone { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    #[test]
    fn what_a_list_lacks_is_gone() {
        let mut known = ObjectTracker::default();
        known.begin();
        known.put("a", "x", "1");
        known.put("", "y", "2");
        assert_eq!(known.end(), []);
        known.put("a", "z", "3");
        known.begin();
        known.put("", "y", "2");
        assert_eq!(known.end(), [gone("a", "x", "1"), gone("a", "z", "3")]);
        assert_eq!(known.clear(), [gone("", "y", "2")]);
        assert_eq!(known.len(), 0);
    }

    #[test]
    fn another_of_the_same_name_takes_the_place_of_the_one_before() {
        let mut known = ObjectTracker::default();
        known.put("a", "x", "1");
        assert_eq!(known.put("a", "x", "1"), None);
        assert_eq!(known.put("a", "x", "2"), Some(gone("a", "x", "1")));
        // Late word of the first one's end.
        known.remove("a", "x", "1");
        assert_eq!(known.len(), 1);
        known.remove("a", "x", "2");
        assert_eq!(known.len(), 0);
    }
}
