//! Names and UIDs of a kind's objects. A new list is compared with them to find objects that were removed without an
//! event.

use std::collections::BTreeMap;

/// All objects of a kind.
#[derive(Debug, Default)]
pub(crate) struct ObjectTracker {
    /// By namespace and name: the UID, and the number of the last list with the object.
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
    /// Starts a list.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// Records an existing object. Returns the previous object of its name if that has another UID.
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

    /// Removes an object. With a non-empty UID, only if the object has it.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str, uid: &str) {
        let key = key(namespace, name);
        if self.objects.get(&key).is_some_and(|(had, _)| **had == *uid || uid.is_empty()) {
            self.objects.remove(&key);
        }
    }

    /// Ends a list. Removes and returns the objects that it lacks.
    pub(crate) fn end(&mut self) -> Vec<Gone> {
        let round = self.round;
        let gone = |(key, (uid, _)): (Box<str>, (Box<str>, u32))| of(&key, &uid);
        self.objects.extract_if(.., |_, (_, seen)| *seen != round).map(gone).collect()
    }

    /// Removes and returns all objects, as the kind is gone.
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
    fn objects_that_a_list_lacks_are_removed() {
        let mut tracker = ObjectTracker::default();
        tracker.begin();
        tracker.put("a", "x", "1");
        tracker.put("", "y", "2");
        assert_eq!(tracker.end(), []);
        tracker.put("a", "z", "3");
        tracker.begin();
        tracker.put("", "y", "2");
        assert_eq!(tracker.end(), [gone("a", "x", "1"), gone("a", "z", "3")]);
        assert_eq!(tracker.clear(), [gone("", "y", "2")]);
        assert_eq!(tracker.len(), 0);
    }

    #[test]
    fn an_object_replaces_another_of_the_same_name() {
        let mut tracker = ObjectTracker::default();
        tracker.put("a", "x", "1");
        assert_eq!(tracker.put("a", "x", "1"), None);
        assert_eq!(tracker.put("a", "x", "2"), Some(gone("a", "x", "1")));
        // The event of the first object's removal comes late.
        tracker.remove("a", "x", "1");
        assert_eq!(tracker.len(), 1);
        tracker.remove("a", "x", "2");
        assert_eq!(tracker.len(), 0);
    }
}
