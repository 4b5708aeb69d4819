//! The addresses of the pods' names.

use crate::{Answer, Frame, Wanted};
use config_model::{Span, Time};
use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
};

/// An address of a pod's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The UID of the pod's entry.
    pub pod: String,
    pub name: String,
    pub address: IpAddr,
}

/// The limits of what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Addresses of a pod's names. A new one displaces the one that expires first.
    pub addresses_of_pod: usize,
    /// Addresses of all pods' names. A further one does not count.
    pub addresses: usize,
    /// Answers of a pod that wait for their addresses. A further one is sent at once.
    pub held_of_pod: usize,
    pub held: usize,
}

impl Limits {
    /// The limits of a node.
    pub const NODE: Self =
        Self { addresses_of_pod: 1024, addresses: 16_384, held_of_pod: 64, held: 256 };
}

/// Numbers of events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Addresses that were added.
    pub added: u64,
    /// Addresses that were displaced by other addresses of their pod.
    pub displaced: u64,
    /// Addresses that did not count because the node has too many.
    pub refused: u64,
    /// Answers that were sent at once because too many were held.
    pub overload: u64,
    /// Answers that were sent before their addresses were in force.
    pub late: u64,
}

/// The effect of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// The answer's packet, if it may be sent now.
    pub frame: Option<Frame>,
    /// There are addresses to put into force.
    pub is_new: bool,
}

/// The addresses of the pods' names with their expiry, and the answers that wait for them.
///
/// Each change of the addresses has a version. The backend puts [`Self::resolved`] into force and reports its version
/// ([`Self::in_force`]).
#[derive(Clone, Debug)]
pub struct Names {
    limits: Limits,
    wanted: Wanted,
    pods: BTreeMap<String, BTreeMap<(String, IpAddr), Entry>>,
    version: u64,
    in_force: u64,
    held: VecDeque<Held>,
    changes: Vec<(Row, Option<Time>)>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    expires: Time,
    /// The version in which it was added.
    since: u64,
}

/// An answer that waits.
#[derive(Clone, Debug)]
struct Held {
    pod: String,
    version: u64,
    frame: Frame,
    until: Time,
}

/// Programs connect some time after they resolve a name, and servers return records that expire now.
const SHORTEST: Span = Span::seconds(30);
const LONGEST: Span = Span::seconds(86_400);
/// The longest time for which an answer waits. A resolver asks again after 1 s or more.
const HOLD: Span = Span::millis(1000);

impl Names {
    /// Starts with the addresses of an earlier process.
    pub fn new(limits: Limits, earlier: impl IntoIterator<Item = (Row, Time)>) -> Self {
        let mut pods: BTreeMap<String, BTreeMap<(String, IpAddr), Entry>> = BTreeMap::new();
        for (Row { pod, name, address }, expires) in earlier {
            let entry = Entry { expires, since: 0 };
            pods.entry(pod).or_default().insert((name, address), entry);
        }
        Self {
            limits,
            wanted: Wanted::default(),
            pods,
            version: 0,
            in_force: 0,
            held: VecDeque::new(),
            changes: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Sets the rules. Addresses of other pods and names are removed.
    pub fn set_wanted(&mut self, wanted: Wanted) {
        if self.wanted == wanted {
            return;
        }
        self.wanted = wanted;
        let wanted = std::mem::take(&mut self.wanted);
        self.remove(|pod, name, _, _| !wanted.contains(pod, name));
        self.wanted = wanted;
    }

    /// The rules that were set.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// An answer to a pod was received at a time that is not after `now`. With a frame the answer was held back, and the
    /// frame is sent now or later.
    pub fn learn(
        &mut self,
        pod: &str,
        answer: &Answer,
        frame: Option<Frame>,
        received: Time,
        now: Time,
    ) -> Learned {
        if !self.wanted.contains(pod, &answer.name) {
            return Learned { frame, is_new: false };
        }
        let lifetime = Span::seconds(answer.lifetime.into()).clamp(SHORTEST, LONGEST);
        let expires = received + lifetime;
        let before = self.version;
        let mut needed = 0;
        for address in &answer.addresses {
            let key = (answer.name.clone(), *address);
            let known = self.pods.get_mut(pod).and_then(|rows| rows.get_mut(&key));
            if let Some(entry) = known {
                needed = needed.max(entry.since);
                if entry.expires < expires {
                    entry.expires = expires;
                    self.change(pod, key, Some(expires));
                }
            } else if self.make_room(pod, expires) {
                self.version = before + 1;
                needed = self.version;
                self.counters.added += 1;
                let entry = Entry { expires, since: self.version };
                self.pods.entry(pod.to_owned()).or_default().insert(key.clone(), entry);
                self.change(pod, key, Some(expires));
            }
        }
        let is_new = self.version > before;
        if needed <= self.in_force {
            return Learned { frame, is_new };
        }
        let Some(frame) = frame else { return Learned { frame: None, is_new } };
        let of_pod = self.held.iter().filter(|held| held.pod == pod).count();
        if of_pod >= self.limits.held_of_pod || self.held.len() >= self.limits.held {
            self.counters.overload += 1;
            return Learned { frame: Some(frame), is_new };
        }
        let until = now + HOLD;
        self.held.push_back(Held { pod: pod.to_owned(), version: needed, frame, until });
        Learned { frame: None, is_new }
    }

    /// Makes room for an address of a pod. Returns false if the node has too many.
    fn make_room(&mut self, pod: &str, expires: Time) -> bool {
        let rows = self.pods.get(pod);
        if rows.is_some_and(|rows| rows.len() >= self.limits.addresses_of_pod) {
            let rows = rows.into_iter().flatten();
            let first = rows.min_by_key(|(_, entry)| entry.expires);
            let first = first.filter(|(_, entry)| entry.expires <= expires);
            let Some(key) = first.map(|(key, _)| key.clone()) else {
                self.counters.refused += 1;
                return false;
            };
            if let Some(rows) = self.pods.get_mut(pod) {
                rows.remove(&key);
            }
            self.counters.displaced += 1;
            self.change(pod, key, None);
            return true;
        }
        let all: usize = self.pods.values().map(BTreeMap::len).sum();
        if all >= self.limits.addresses {
            self.counters.refused += 1;
        }
        all < self.limits.addresses
    }

    fn change(&mut self, pod: &str, (name, address): (String, IpAddr), expires: Option<Time>) {
        self.changes.push((Row { pod: pod.to_owned(), name, address }, expires));
    }

    /// The addresses to put into force, with their version.
    pub fn resolved(&self) -> (u64, datapath_plan::Names) {
        let mut names = datapath_plan::Names::none();
        for rule in &self.wanted.0 {
            let rows = rule.pods.iter().filter_map(|pod| self.pods.get(pod)).flatten();
            for ((name, address), _) in rows {
                let patterns = rule.names.iter();
                for pattern in patterns.filter(|of| datapath_plan::matches(of, name)) {
                    names.add(&rule.policy, pattern, *address);
                }
            }
        }
        (self.version, names)
    }

    /// The addresses of a version are in force. Returns the answers that waited for them, in their order.
    pub fn in_force(&mut self, version: u64) -> Vec<Frame> {
        self.in_force = self.in_force.max(version);
        let in_force = self.in_force;
        self.release(|held| held.version <= in_force)
    }

    /// The answers that have waited too long.
    pub fn late(&mut self, now: Time) -> Vec<Frame> {
        let late = self.release(|held| held.until <= now);
        self.counters.late += late.len() as u64;
        late
    }

    /// The time at which [`Self::late`] has an answer.
    pub fn wake_at(&self) -> Option<Time> {
        self.held.iter().map(|held| held.until).min()
    }

    fn release(&mut self, is_due: impl Fn(&Held) -> bool) -> Vec<Frame> {
        let (due, held) = std::mem::take(&mut self.held).into_iter().partition(is_due);
        self.held = held;
        let due: VecDeque<Held> = due;
        due.into_iter().map(|held| held.frame).collect()
    }

    /// Removes addresses that have expired, except those that connections use.
    pub fn expire(&mut self, now: Time, is_used: impl Fn(IpAddr) -> bool) {
        self.remove(|_, _, address, expires| expires <= now && !is_used(address));
    }

    /// True if some addresses are not in force, or are in force still.
    pub fn is_changed(&self) -> bool {
        self.version > self.in_force
    }

    fn remove(&mut self, is_due: impl Fn(&str, &str, IpAddr, Time) -> bool) {
        let before = self.changes.len();
        for (pod, rows) in &mut self.pods {
            rows.retain(|(name, address), entry| {
                let is_due = is_due(pod, name, *address, entry.expires);
                if is_due {
                    let row = Row { pod: pod.clone(), name: name.clone(), address: *address };
                    self.changes.push((row, None));
                }
                !is_due
            });
        }
        self.pods.retain(|_, rows| !rows.is_empty());
        self.version += u64::from(self.changes.len() > before);
    }

    /// Changes of rows since the last call, in order: the expiry, or `None` for a row that was removed.
    pub fn take_changes(&mut self) -> Vec<(Row, Option<Time>)> {
        std::mem::take(&mut self.changes)
    }

    /// All addresses, with their expiry.
    pub fn rows(&self) -> impl Iterator<Item = (Row, Time)> {
        self.pods.iter().flat_map(|(pod, rows)| {
            rows.iter().map(|((name, address), entry)| {
                let (pod, name) = (pod.clone(), name.clone());
                (Row { pod, name, address: *address }, entry.expires)
            })
        })
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }
}
