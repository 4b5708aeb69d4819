//! DNS answers to pods: read from the ring of the programs, and sent to the pods by a packet socket.

mod maps;
mod packets;
mod reader;

pub(crate) use maps::NamesMaps;

use crate::LoadError;
use config_model::{Time, causes};
use datapath_names::{Counters, Limits, Names, Streams, Wanted};
use packets::Packets;
use reader::Reader;
use runtime_lock::lock;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex},
};
use tokio::sync::Notify;

/// The names of a node's rules, with their addresses.
pub(crate) struct Resolver {
    shared: Arc<Shared>,
    /// Reads answers as long as rules have names.
    reader: Option<Reader>,
    /// Policies whose names cannot be resolved, each with the cause.
    failing: BTreeMap<String, String>,
}

/// The state of the reader and the backend.
struct Shared {
    state: Mutex<State>,
    /// Addresses were added or have expired.
    changed: Notify,
}

struct State {
    maps: Arc<Mutex<NamesMaps>>,
    names: Names,
    streams: Streams,
    /// The UIDs of the pods whose rules have names, by link.
    pods: BTreeMap<u32, String>,
    packets: Option<Packets>,
    faults: Faults,
}

/// Numbers of answers that the agent did not use.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    /// No DNS message, or a damaged packet.
    malformed: u64,
    /// Answers that were held by an earlier process for too long.
    stale: u64,
    /// Packets that could not be sent to their pod.
    unsent: u64,
}

impl Resolver {
    /// Starts with the names that an earlier process left.
    pub(crate) fn new(maps: Arc<Mutex<NamesMaps>>) -> Result<Self, LoadError> {
        let earlier = lock(&maps).names()?;
        let state = State {
            names: Names::new(Limits::NODE, earlier),
            maps,
            streams: Streams::default(),
            pods: BTreeMap::new(),
            packets: None,
            faults: Faults::default(),
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Notify::new() });
        Ok(Self { shared, reader: None, failing: BTreeMap::new() })
    }

    /// Sets the rules before they are put into force. `pods` are the UIDs of the pods by link. From now on answers to
    /// these pods are held.
    pub(crate) fn prepare(
        &mut self,
        wanted: Wanted,
        pods: BTreeMap<u32, String>,
    ) -> Result<(), LoadError> {
        self.failing.clear();
        let policies: BTreeSet<String> = wanted.policies().into_iter().map(str::to_owned).collect();
        let is_used = !policies.is_empty();
        let mut state = lock(&self.shared.state);
        state.names.set_wanted(wanted);
        if is_used && state.packets.is_none() {
            match Packets::open() {
                Ok(packets) => state.packets = Some(packets),
                Err(why) => self.failing = fail(&policies, &why),
            }
        }
        let pods = if state.packets.is_some() { pods } else { BTreeMap::new() };
        let links: BTreeSet<u32> = pods.keys().copied().collect();
        lock(&state.maps).set_pods(&links, true)?;
        state.pods = pods;
        state.store()?;
        drop(state);
        if is_used && self.failing.is_empty() && self.reader.is_none() {
            match Reader::start(Arc::clone(&self.shared)) {
                Ok(reader) => self.reader = Some(reader),
                Err(error) => {
                    let why = format!("cannot start the reader of DNS answers: {}", causes(&error));
                    self.failing = fail(&policies, &why);
                }
            }
        }
        Ok(())
    }

    /// The addresses to put into force, with their version.
    pub(crate) fn resolved(&self) -> (u64, datapath_plan::Names) {
        lock(&self.shared.state).names.resolved()
    }

    /// The addresses of this version are in force: the answers with them are sent. Other pods' answers pass from now on.
    pub(crate) fn finish(&mut self, version: u64) -> Result<(), LoadError> {
        let mut state = lock(&self.shared.state);
        let frames = state.names.in_force(version);
        state.send_all(&frames);
        let links: BTreeSet<u32> = state.pods.keys().copied().collect();
        lock(&state.maps).set_pods(&links, false)?;
        if links.is_empty() {
            drop(state);
            self.reader = None;
        }
        Ok(())
    }

    /// Policies whose names cannot be resolved, by UID, each with the cause.
    pub(crate) fn failing(&self) -> BTreeMap<String, String> {
        self.failing.clone()
    }

    /// Removes addresses that have expired. A sweep has noted the connections that are open since `swept`.
    pub(crate) fn expire(&self, swept: u64) -> Result<(), LoadError> {
        let mut state = lock(&self.shared.state);
        let used = lock(&state.maps).used_since(swept)?;
        state.names.expire(now(), |address| used.contains(&address));
        state.store()?;
        if state.names.is_changed() {
            self.shared.changed.notify_one();
        }
        Ok(())
    }

    /// Waits until addresses have changed. It may be dropped at any time.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// The first difference between the pods that are in force and those of the kernel.
    pub(crate) fn drift(&self) -> Result<Option<String>, LoadError> {
        let state = lock(&self.shared.state);
        let links: BTreeSet<u32> = state.pods.keys().copied().collect();
        let found = lock(&state.maps).pods()?;
        let drift = "the pods whose DNS answers are read differ";
        Ok((found != links).then(|| drift.to_owned()))
    }

    /// The numbers of answers and addresses, by reason.
    pub(crate) fn counters(&self) -> Result<BTreeMap<&'static str, u64>, LoadError> {
        let state = lock(&self.shared.state);
        let mut counters = lock(&state.maps).counters()?;
        let Counters { added, displaced, refused, overload, late } = state.names.counters();
        let Faults { malformed, stale, unsent } = state.faults;
        counters.extend([
            ("dns_added", added),
            ("dns_displaced", displaced),
            ("dns_refused", refused),
            ("dns_overload", overload),
            ("dns_late", late),
            ("dns_malformed", malformed),
            ("dns_stale", stale),
            ("dns_unsent", unsent),
        ]);
        Ok(counters)
    }

    /// Removes all names: no answer is read.
    pub(crate) fn clear(&mut self) -> Result<(), LoadError> {
        self.reader = None;
        let mut state = lock(&self.shared.state);
        state.names.set_wanted(Wanted::default());
        state.pods.clear();
        state.store()?;
        lock(&state.maps).set_pods(&BTreeSet::new(), false)
    }
}

impl State {
    /// Writes the changes of names to the map from which the next process reads them.
    fn store(&mut self) -> Result<(), LoadError> {
        let changes = self.names.take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        let removed: BTreeSet<IpAddr> =
            changes.iter().filter(|(_, of)| of.is_none()).map(|(row, _)| row.address).collect();
        let left: BTreeSet<IpAddr> = match removed.is_empty() {
            true => BTreeSet::new(),
            false => self.names.rows().map(|(row, _)| row.address).collect(),
        };
        let mut maps = lock(&self.maps);
        for (row, expires) in &changes {
            maps.set_name(row, *expires)?;
        }
        for address in removed.difference(&left) {
            maps.forget_address(*address)?;
        }
        Ok(())
    }

    /// Sends a frame to a pod.
    fn send(&mut self, link: u32, frame: &[u8]) {
        let Some(packets) = &mut self.packets else { return };
        if let Err(why) = packets.send(link, frame) {
            self.faults.unsent += 1;
            tracing::debug!(link, why, "cannot send a DNS answer to its pod");
        }
    }
}

/// The result for policies whose names cannot be resolved.
fn fail(policies: &BTreeSet<String>, why: &str) -> BTreeMap<String, String> {
    let why = |uid: &String| (uid.clone(), format!("its DNS names match no address: {why}"));
    policies.iter().map(why).collect()
}

/// Nanoseconds on the clock of the programs.
pub(crate) fn nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    let (seconds, rest) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + rest
}

fn now() -> Time {
    Time(nanoseconds() / 1_000_000)
}
