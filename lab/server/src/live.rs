//! The pure model under a real clock.

use config_model::{InstanceId, Span, Time};
use lab_cloud::{Action, Cloud, CloudSpec, OperateError};
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};
use tokio::sync::Notify;

/// A [`Cloud`] that knows the time; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct LiveCloud {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    cloud: Mutex<Cloud>,
    changed: Notify,
    started: Instant,
    epoch_unix_ms: u64,
    calls: Mutex<BTreeMap<(String, String), u64>>,
    sources: Mutex<Sources>,
    lossy: Mutex<Option<ReplyLoss>>,
}

/// Answers that get lost on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyLoss {
    /// Of this action; of all that change something if absent.
    pub action: Option<Action>,
    /// Every how many calls.
    pub every: u32,
    /// Number of calls.
    pub calls: u32,
}

/// Owner of each source address; rebuilt if the version of the truth changes.
#[derive(Debug, Default)]
struct Sources {
    version: Option<u64>,
    owners: BTreeMap<Ipv4Addr, Source>,
    prefixes: Vec<(ipnet::Ipv4Net, Source)>,
}

/// The instance that an address belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub instance: InstanceId,
    /// The IP TTL of the metadata service's answers to it.
    pub hop_limit: u8,
}

impl LiveCloud {
    /// The cloud of this spec; its `epoch_unix_ms` is replaced by the wall clock's now.
    ///
    /// # Errors
    /// If the spec contradicts itself.
    pub fn new(mut spec: CloudSpec, seed: u64) -> Result<Self, OperateError> {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        spec.epoch_unix_ms = millis(wall);
        let epoch_unix_ms = spec.epoch_unix_ms;
        let shared = Shared {
            cloud: Mutex::new(Cloud::new(spec, seed)?),
            changed: Notify::new(),
            started: Instant::now(),
            epoch_unix_ms,
            calls: Mutex::default(),
            sources: Mutex::default(),
            lossy: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The current time of the model.
    pub fn now(&self) -> Time {
        Time(millis(self.shared.started.elapsed()))
    }

    /// The wall clock at the model's time 0.
    pub fn epoch_unix_ms(&self) -> u64 {
        self.shared.epoch_unix_ms
    }

    /// Lets `ask` look at the model, or change it.
    pub fn with<R>(&self, ask: impl FnOnce(&mut Cloud, Time) -> R) -> R {
        let answer = {
            let mut cloud = unpoisoned(&self.shared.cloud);
            // Read under the lock, so that the model never sees time go back.
            let now = self.now();
            ask(&mut cloud, now)
        };
        self.shared.changed.notify_one();
        answer
    }

    /// As [`LiveCloud::with`], for frequent callers that rarely change anything. The closure also returns true if
    /// it changed the model.
    pub(crate) fn change<R>(&self, ask: impl FnOnce(&mut Cloud, Time) -> (R, bool)) -> R {
        let (answer, changed) = {
            let mut cloud = unpoisoned(&self.shared.cloud);
            let now = self.now();
            let before = cloud.version(now);
            let (answer, changed) = ask(&mut cloud, now);
            (answer, changed || cloud.version(now) != before)
        };
        if changed {
            self.shared.changed.notify_one();
        }
        answer
    }

    /// The network as it really is; looking changes nothing.
    pub fn truth(&self) -> lab_cloud::Truth {
        let mut cloud = unpoisoned(&self.shared.cloud);
        let now = self.now();
        cloud.truth(now)
    }

    /// The truth's version; equal versions mean equal truths.
    pub fn version(&self) -> u64 {
        let mut cloud = unpoisoned(&self.shared.cloud);
        let now = self.now();
        cloud.version(now)
    }

    /// Waits until the truth may have changed: somebody asked something, or what was under way is
    /// done. One task may wait.
    pub async fn changed(&self) {
        // Not by `with`: looking when the next change comes is no change.
        let next = {
            let mut cloud = unpoisoned(&self.shared.cloud);
            let now = self.now();
            cloud.next_change_at(now).map(|at| at.since(now))
        };
        let wait = next.map_or(IDLE, |Span(ms)| Duration::from_millis(ms).min(IDLE));
        let _ = tokio::time::timeout(wait, self.shared.changed.notified()).await;
    }

    /// Current owner of this address.
    pub fn source(&self, address: Ipv4Addr) -> Option<Source> {
        let mut sources = unpoisoned(&self.shared.sources);
        let mut cloud = unpoisoned(&self.shared.cloud);
        let now = self.now();
        let version = cloud.version(now);
        if sources.version != Some(version) {
            *sources = Sources::of(&cloud.truth(now), version);
        }
        sources.find(address)
    }

    /// Number of calls by action and outcome: `ok` or EC2's code.
    pub fn calls(&self) -> BTreeMap<(String, String), u64> {
        unpoisoned(&self.shared.calls).clone()
    }

    /// Loses the answers of every n-th call, after acting; of calls that change something, unless an
    /// action is named. `None` ends it.
    pub fn lose_replies(&self, lossy: Option<ReplyLoss>) {
        *unpoisoned(&self.shared.lossy) = lossy;
    }

    /// Setting of [`LiveCloud::lose_replies`].
    pub fn lossy(&self) -> Option<ReplyLoss> {
        unpoisoned(&self.shared.lossy).clone()
    }

    /// True if the answer of this call is to be lost.
    pub(crate) fn loses(&self, action: Action) -> bool {
        let mut lossy = unpoisoned(&self.shared.lossy);
        let Some(lossy) = lossy.as_mut() else { return false };
        if lossy.action.map_or(!action.is_mutating(), |named| named != action) {
            return false;
        }
        lossy.calls = lossy.calls.wrapping_add(1);
        lossy.calls.is_multiple_of(lossy.every.max(1))
    }

    pub(crate) fn count_call(&self, action: &str, outcome: &str) {
        let key = (action.to_owned(), outcome.to_owned());
        *unpoisoned(&self.shared.calls).entry(key).or_default() += 1;
    }
}

impl Sources {
    fn of(truth: &lab_cloud::Truth, version: u64) -> Self {
        let mut sources = Self { version: Some(version), ..Self::default() };
        for instance in &truth.instances {
            let source =
                Source { instance: instance.id.clone(), hop_limit: instance.metadata_hop_limit };
            for eni in &instance.enis {
                sources.owners.extend(eni.addresses().map(|address| (address, source.clone())));
                let prefixes = eni.prefixes.iter().map(|&prefix| (prefix, source.clone()));
                sources.prefixes.extend(prefixes);
            }
        }
        sources
    }

    fn find(&self, address: Ipv4Addr) -> Option<Source> {
        let in_prefix = || self.prefixes.iter().find(|(net, _)| net.contains(&address));
        self.owners.get(&address).or_else(|| in_prefix().map(|(_, source)| source)).cloned()
    }
}

/// The model has no invariant that a panic elsewhere could leave half done for its readers.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Longest wait between checks of the model, also if no change is pending.
const IDLE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use lab_cloud::{AssignPrivateIpAddresses, Caller, Launch, Timing};

    fn cloud() -> LiveCloud {
        let spec = CloudSpec { timing: Timing::INSTANT, ..CloudSpec::two_zones() };
        LiveCloud::new(spec, 7).unwrap()
    }

    fn launch(live: &LiveCloud) -> InstanceId {
        let launch = |cloud: &mut Cloud, now| {
            let subnet = cloud.subnet_named("a").unwrap().id.clone();
            cloud.launch(now, Launch::new("n", "c5.xlarge", subnet)).unwrap()
        };
        live.with(launch)
    }

    #[test]
    fn an_address_belongs_to_its_instance_as_soon_as_it_is_assigned() {
        let live = cloud();
        let instance = launch(&live);
        let eni = live.truth().instances[0].enis[0].clone();
        let source = Source { instance, hop_limit: 1 };
        assert_eq!(live.source(eni.primary), Some(source.clone()));
        let request = AssignPrivateIpAddresses {
            network_interface_id: Some(eni.id),
            secondary_private_ip_address_count: Some(1),
            ..AssignPrivateIpAddresses::default()
        };
        live.with(|cloud, now| cloud.call(now, &Caller::Administrator, request)).unwrap();
        let secondary = live.truth().instances[0].enis[0].secondary[0];
        assert_eq!(live.source(secondary), Some(source));
        assert_eq!(live.source(Ipv4Addr::new(10, 0, 0, 1)), None);
    }

    #[test]
    fn every_second_answer_is_lost_of_calls_that_change_something() {
        let live = cloud();
        live.lose_replies(Some(ReplyLoss { action: None, every: 2, calls: 0 }));
        let lost = |action| (0..4).map(|_| live.loses(action)).collect::<Vec<_>>();
        assert_eq!(lost(Action::CreateTags), [false, true, false, true]);
        assert_eq!(lost(Action::DescribeVpcs), [false; 4]);
        live.lose_replies(None);
        assert_eq!(lost(Action::CreateTags), [false; 4]);
    }

    #[tokio::test]
    async fn a_change_wakes_the_waiter() {
        let live = cloud();
        let waiter = {
            let live = live.clone();
            tokio::spawn(async move { live.changed().await })
        };
        launch(&live);
        tokio::time::timeout(Duration::from_secs(4), waiter).await.unwrap().unwrap();
    }
}
