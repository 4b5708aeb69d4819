//! Services in force: the frontends of the desired state, and the mirror of their maps.

use crate::{
    LoadError, Programs, closing::Closing, grace::GRACE, logged::remember, port_users::PortUsers,
};
use config_model::causes;
use datapath_backend::ServiceFigures;
use datapath_node::{Desired, NodeIdentity};
use service_abi::{Mirror, Plan, Refused};
use service_core::{Frontend, HealthChecks, Index, MOST_BACKENDS, NodeView, Place, Taken};
use service_objects::ObjectName;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::{Instant, sleep_until};

/// The Services of the node. Their maps stay in force when it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    index: Index,
    /// The revision of the state that the index has; `None` before the first state with Services.
    revision: Option<u64>,
    /// `None` if the maps have other rows than were planned, or rows that were not read.
    mirror: Option<Mirror>,
    /// The frontends that are not in force as they should be.
    refused: BTreeMap<Place, Refused>,
    /// The last fault, which is logged once.
    fault: Option<String>,
    /// The root of cgroup v2, or the folder with all cgroup trees. `None`: processes of the node are not served.
    cgroup: Option<PathBuf>,
    /// The cause for which processes of the node are not served, which is logged once.
    sockets_fault: Option<String>,
    /// Sockets of the node's processes whose backends were removed.
    closing: Closing,
    /// The last write. Programs that started before it may read earlier rows.
    written: Instant,
    /// The next comparison, or the next attempt after a fault.
    compare_at: Instant,
    /// The number of rows that were compared since the first one.
    compared: usize,
    /// The places of other Services that were logged, with the Service that claims each and the one that has it.
    taken: BTreeSet<(ObjectName, Place, ObjectName)>,
    port_users: PortUsers,
    /// The Services that were reported as not in force.
    reported: BTreeMap<ObjectName, String>,
    /// The Services that were logged as not in force, each with the cause.
    logged: BTreeSet<(ObjectName, String)>,
    /// The health checks of the Services in force; `None` before the first ones.
    checks: Option<Arc<HealthChecks>>,
    programming: Programming,
    /// Repairs after changes by other processes, by object.
    repairs: BTreeMap<&'static str, u64>,
    /// The folder of the maps with which the programs of sockets were attached last; `None` before the first time.
    attached: Option<PathBuf>,
}

impl Serving {
    pub(crate) fn new(cgroup: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            index: Index::default(),
            revision: None,
            mirror: None,
            refused: BTreeMap::new(),
            fault: None,
            cgroup,
            sockets_fault: None,
            closing: Closing::default(),
            written: now,
            compare_at: now + EVERY,
            compared: 0,
            taken: BTreeSet::new(),
            port_users: PortUsers::default(),
            reported: BTreeMap::new(),
            logged: BTreeSet::new(),
            checks: None,
            programming: Programming::default(),
            repairs: BTreeMap::new(),
            attached: None,
        }
    }

    /// Figures of the Services, without the counters of the programs.
    pub(crate) fn figures(&mut self) -> ServiceFigures {
        let uses = self.mirror.iter().flat_map(Mirror::uses);
        ServiceFigures {
            rows: uses.map(|of| (of.map, [of.used, of.limit])).collect(),
            repairs: self.repairs.clone(),
            programmed: self.programming.take(),
            ..ServiceFigures::default()
        }
    }

    /// Counts a repair after a change by another process.
    pub(crate) fn repaired(&mut self, object: &'static str) {
        *self.repairs.entry(object).or_default() += 1;
    }

    /// Puts the Services of a state into force. Without any Service no source has sent them yet, and the rows of an
    /// earlier process stay.
    pub(crate) async fn apply(
        &mut self,
        programs: &mut Programs,
        desired: &Desired,
    ) -> BTreeMap<ObjectName, String> {
        if !desired.services.is_empty() {
            let is_changed = self.update(desired);
            let changes = self.index.take_changes();
            self.log_taken();
            if desired.changed.is_none() || self.mirror.is_none() {
                sleep_until(self.written + GRACE).await;
                self.restore(programs);
            } else if !changes.is_empty() {
                self.change(programs, &changes);
            }
            self.note_effect();
            self.attach_sockets(programs);
            if is_changed || self.checks.is_none() {
                self.checks = Some(Arc::new(self.index.health_checks()));
            }
        }
        let failing = self.failing();
        self.log(&failing);
        self.reported = failing;
        self.reported.clone()
    }

    /// The health checks of the Services in force; `None` before the first ones, and while the last ones are not in force.
    pub(crate) fn health_checks(&self) -> Option<Arc<HealthChecks>> {
        self.checks.clone().filter(|_| self.fault.is_none())
    }

    /// The time of the next [`step`](Self::step).
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.revision?;
        let has_retired = self.mirror.as_ref().is_some_and(Mirror::has_retired);
        let quiet_at = self.written + GRACE;
        // Without the mirror it is unknown which backends exist.
        let close_at = self.mirror.as_ref().and_then(|_| self.closing.wake_at());
        let wake_at = close_at.map_or(self.compare_at, |at| at.min(self.compare_at));
        Some(if has_retired { quiet_at } else { wake_at.max(quiet_at) })
    }

    /// Frees numbers, compares rows, closes sockets and repeats what has failed, as far as it is due. Returns true if other Services than
    /// those of the last report are not in force.
    pub(crate) fn step(&mut self, programs: &mut Programs) -> bool {
        let now = Instant::now();
        if self.revision.is_none() || now < self.written + GRACE {
            return false;
        }
        if let Some(mirror) = &mut self.mirror
            && mirror.has_retired()
        {
            let removals = mirror.release();
            let removed = programs.write_services(&removals);
            self.settle(removed);
            self.retry(programs);
        }
        if now >= self.compare_at {
            self.compare_at = now + EVERY;
            self.retry(programs);
            self.compare(programs);
            self.note_effect();
            self.attach_sockets(programs);
            self.port_users.step(now, &self.index);
            // One call logs a limited number.
            self.log_taken();
            let failing = self.failing();
            self.log(&failing);
        }
        // A repair may have written rows just now.
        if let Some(mirror) = &self.mirror
            && now >= self.written + GRACE
        {
            self.closing.step(now, programs, mirror);
        }
        self.failing() != self.reported
    }

    /// Notes that the changes of endpoints so far are in force, unless the maps could not be written.
    fn note_effect(&mut self) {
        if self.fault.is_none() && self.mirror.is_some() {
            self.programming.finish(wall_ms());
        }
    }

    /// Brings the index to a state. Returns true if Services or slices may have changed.
    fn update(&mut self, desired: &Desired) -> bool {
        let NodeIdentity { name, zone } = (*desired.node).clone();
        let addresses = desired.state.node.iter().flat_map(|of| of.iter().copied()).collect();
        self.index.set_node(NodeView { name, zone, addresses });
        let (services, slices) = (&desired.services.services, &desired.services.slices);
        let changed = desired.changed.as_ref().filter(|of| Some(of.since) == self.revision);
        self.revision = Some(desired.revision);
        let (of_services, of_slices) = match changed {
            Some(changed) => (changed.services.services.clone(), changed.services.slices.clone()),
            None => {
                let world = self.index.world();
                let of_services = world.services.keys().chain(services.keys()).cloned().collect();
                (of_services, world.slices.keys().chain(slices.keys()).cloned().collect())
            }
        };
        for name in &of_slices {
            // The first state has changes of an unknown age.
            if changed.is_some() {
                let earlier = self.index.world().slices.get(name).and_then(|of| of.triggered_ms);
                let later = slices.get(name).and_then(|of| of.triggered_ms);
                self.programming.begin(name, earlier, later);
            }
            match slices.get(name) {
                Some(slice) => self.index.set_slice(slice.clone()),
                None => self.index.remove_slice(name),
            }
        }
        for name in &of_services {
            match services.get(name) {
                Some(service) => self.index.set_service(service.clone()),
                None => self.index.remove_service(name),
            }
        }
        !(of_services.is_empty() && of_slices.is_empty())
    }

    fn change(&mut self, programs: &mut Programs, changes: &BTreeMap<Place, Option<Frontend>>) {
        let Some(mirror) = &mut self.mirror else { return };
        let plan = mirror.change(changes);
        self.refused.retain(|place, _| !changes.contains_key(place));
        let written = self.write(programs, plan);
        self.settle(written);
    }

    /// Plans the frontends again that had no room.
    fn retry(&mut self, programs: &mut Programs) {
        let places = self.refused.keys();
        let changes: BTreeMap<Place, Option<Frontend>> =
            places.map(|place| (*place, self.index.frontends().get(place).cloned())).collect();
        if !changes.is_empty() {
            self.change(programs, &changes);
        }
    }

    /// Reads the maps and writes all rows that differ. No program that started before the last write may run any longer.
    fn restore(&mut self, programs: &mut Programs) {
        self.mirror = None;
        self.refused.clear();
        // An earlier process may have removed backends and closed no sockets.
        self.close_sockets();
        let written = programs.find_services().and_then(|held| {
            let mirror = self.mirror.insert(Mirror::of(held));
            let plan = mirror.replace(self.index.frontends());
            self.write(programs, plan)
        });
        self.compared = 0;
        self.settle(written);
    }

    fn write(&mut self, programs: &mut Programs, plan: Plan) -> Result<(), LoadError> {
        let removes_backends = plan.removes_backends();
        self.refused.extend(plan.refused);
        if plan.writes.is_empty() {
            return Ok(());
        }
        let written = programs.write_services(&plan.writes);
        self.written = Instant::now();
        if removes_backends {
            self.close_sockets();
        }
        written
    }

    /// Starts to close the sockets of the node's processes whose backends were removed before now.
    fn close_sockets(&mut self) {
        if self.cgroup.is_some() {
            self.closing.begin(Instant::now());
        }
    }

    /// After a fault the rows in the maps are not those of the mirror.
    fn settle(&mut self, written: Result<(), LoadError>) {
        let fault = written.err().map(|error| causes(&error));
        match (&fault, &self.fault) {
            (Some(why), last) if last.as_ref() != Some(why) => {
                tracing::error!(
                    why,
                    "cannot write Services to the maps; the agent tries again each second"
                );
            }
            (None, Some(_)) => tracing::info!("Services are in force again"),
            (Some(_) | None, _) => {}
        }
        if fault.is_some() {
            self.mirror = None;
        }
        self.fault = fault;
    }

    /// Compares the next rows with the mirror, and repairs the maps after a difference.
    fn compare(&mut self, programs: &mut Programs) {
        let Some(mirror) = &self.mirror else { return self.restore(programs) };
        match programs.compare_services(mirror.held(), self.compared, STEP) {
            Ok(None) => {
                let rows = mirror.held().rows().count();
                self.compared = if self.compared + STEP < rows { self.compared + STEP } else { 0 };
            }
            Ok(Some(map)) => {
                tracing::warn!(map, "a row of a map of Services was changed by another process");
                self.repaired("rows");
                self.restore(programs);
            }
            Err(error) => self.settle(Err(error)),
        }
    }

    /// Attaches the programs of sockets that are not attached, or attached with an earlier map.
    fn attach_sockets(&mut self, programs: &mut Programs) {
        let Some(cgroup) = &self.cgroup else { return };
        let attached = programs.attach_sockets(cgroup);
        let folder = programs.maps_folder().map(Path::to_owned);
        let fault = match attached {
            Ok(count) => {
                if count > 0 {
                    // A map that has grown has another folder, and programs of its own.
                    if folder.is_some() && folder == self.attached {
                        tracing::warn!(
                            programs = count,
                            "programs for processes of the node were detached by another process"
                        );
                        self.repaired("programs");
                    }
                    tracing::info!(programs = count, "processes of the node are served");
                }
                self.attached = folder;
                None
            }
            Err(error) => Some(causes(&error)),
        };
        if let Some(why) = fault.as_ref().filter(|why| self.sockets_fault.as_ref() != Some(*why)) {
            tracing::error!(
                why,
                "cannot serve processes of the node; the agent tries again each second"
            );
        }
        self.sockets_fault = fault;
    }

    /// Logs Services that are not in force.
    fn log(&mut self, failing: &BTreeMap<ObjectName, String>) {
        for (service, why) in self.take_unlogged(failing) {
            tracing::warn!(%service, why, "the Service is not in force as it should be");
        }
    }

    /// Returns the Services to log, each with the cause. A fault of all Services has its own message.
    fn take_unlogged(
        &mut self,
        failing: &BTreeMap<ObjectName, String>,
    ) -> Vec<(ObjectName, String)> {
        if self.fault.is_some() || self.sockets_fault.is_some() {
            return Vec::new();
        }
        let failing = failing.iter().map(|(name, why)| (name.clone(), why.clone())).collect();
        remember(&mut self.logged, &failing)
    }

    /// Logs the addresses and ports of Services that other Services have.
    fn log_taken(&mut self) {
        let owned = |of: Taken<'_>| (of.service.clone(), of.place, of.owner.clone());
        let taken: BTreeSet<_> = self.index.taken().map(owned).collect();
        for (service, at, owner) in remember(&mut self.taken, &taken) {
            tracing::warn!(
                %service,
                %at,
                %owner,
                "cannot serve an address or port of the Service: another Service has it; use another one in one of the two \
                 Services"
            );
        }
    }

    /// The Services that are not in force as they should be, each with the cause.
    fn failing(&self) -> BTreeMap<ObjectName, String> {
        if let Some(why) = self.fault.as_ref().or(self.sockets_fault.as_ref()) {
            let names = self.index.world().services.keys();
            return names.map(|name| (name.clone(), why.clone())).collect();
        }
        let mut failing: BTreeMap<ObjectName, String> = BTreeMap::new();
        for (name, count) in self.index.left_out() {
            let why = format!(
                "{count} endpoints are not used: a table has {MOST_BACKENDS} places; split the Service"
            );
            failing.insert(name.clone(), why);
        }
        let mut causes: BTreeMap<&ObjectName, BTreeSet<String>> = BTreeMap::new();
        for (place, cause) in &self.refused {
            if let Some(owner) = self.index.owner(place) {
                causes.entry(owner).or_default().insert(cause.to_string());
            }
        }
        for (name, causes) in causes {
            let causes = causes.into_iter().collect::<Vec<_>>().join("; ");
            let why = failing.remove(name).map_or(causes.clone(), |why| format!("{why}; {causes}"));
            failing.insert(name.clone(), why);
        }
        failing
    }
}

/// The time that changes of endpoints take until they are in force.
#[derive(Debug, Default)]
struct Programming {
    /// The changes that are not in force: by slice, the time of the first one in milliseconds since 1970.
    pending: BTreeMap<ObjectName, u64>,
    took: Vec<Duration>,
}

impl Programming {
    /// A slice has changed. `earlier` and `later` are the times of the causes, in milliseconds since 1970.
    fn begin(&mut self, slice: &ObjectName, earlier: Option<u64>, later: Option<u64>) {
        match later {
            Some(at) if later != earlier => {
                self.pending.entry(slice.clone()).or_insert(at);
            }
            Some(_) => {}
            None => {
                self.pending.remove(slice);
            }
        }
    }

    /// All changes are in force now. The clocks of two nodes can differ, so a change can be later.
    fn finish(&mut self, now_ms: u64) {
        let pending = std::mem::take(&mut self.pending);
        let room = MOST_TIMES.saturating_sub(self.took.len());
        let took = pending.values().map(|at| Duration::from_millis(now_ms.saturating_sub(*at)));
        self.took.extend(took.take(room));
    }

    fn take(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.took)
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time between two comparisons.
const EVERY: Duration = Duration::from_secs(1);
/// The times that are kept until they are taken.
const MOST_TIMES: usize = 16_384;
/// The rows of a comparison. The rows of `frontends` are added up besides, and all keys of `source_ranges` are compared.
const STEP: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_that_is_not_in_force_is_logged_once_in_parts() {
        let all = |count: usize, why: &str| -> BTreeMap<ObjectName, String> {
            let name = |number| ObjectName::new("shop", format!("{number:02}"));
            (0..count).map(|number| (name(number), why.to_owned())).collect()
        };
        let mut serving = Serving::new(None);
        let failing = all(40, "no room");
        let mut logged = BTreeMap::new();
        for count in [16, 16, 8, 0] {
            let part = serving.take_unlogged(&failing);
            assert_eq!(part.len(), count);
            logged.extend(part);
        }
        assert_eq!(logged, failing);
        // Another cause is new, and so is a Service that fails again.
        assert_eq!(serving.take_unlogged(&all(2, "split it")).len(), 2);
        assert!(serving.take_unlogged(&all(1, "split it")).is_empty());
        assert_eq!(serving.take_unlogged(&all(2, "split it")).len(), 1);
        // A fault of all Services does not repeat the messages of single ones.
        serving.fault = Some("no memory".to_owned());
        assert!(serving.take_unlogged(&all(20, "no memory")).is_empty());
        serving.fault = None;
        assert!(serving.take_unlogged(&all(2, "split it")).is_empty());
    }

    #[test]
    fn a_change_of_endpoints_takes_from_its_first_cause_to_its_effect() {
        let name = |name: &str| ObjectName::new("shop", name);
        let mut programming = Programming::default();
        programming.begin(&name("a"), None, Some(1_000));
        // The first cause of two that come into force together.
        programming.begin(&name("a"), Some(1_000), Some(1_500));
        programming.begin(&name("b"), Some(900), Some(1_800));
        // The same cause, and none.
        programming.begin(&name("c"), Some(500), Some(500));
        programming.begin(&name("d"), None, None);
        // A slice that was removed meanwhile.
        programming.begin(&name("e"), None, Some(700));
        programming.begin(&name("e"), Some(700), None);
        assert!(programming.take().is_empty());
        programming.finish(2_000);
        let seconds = programming.take().iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!(seconds, [1_000, 200]);
        programming.finish(3_000);
        assert!(programming.take().is_empty());
        // The clock of this node is behind.
        programming.begin(&name("a"), Some(1_500), Some(9_000));
        programming.finish(8_000);
        assert_eq!(programming.take(), [Duration::ZERO]);
    }

    #[test]
    fn times_that_are_not_taken_have_a_limit() {
        let mut programming = Programming::default();
        for round in 0..3 {
            for number in 0..MOST_TIMES / 2 {
                programming.begin(&ObjectName::new("shop", number.to_string()), None, Some(round));
            }
            programming.finish(9);
        }
        assert_eq!(programming.take().len(), MOST_TIMES);
    }
}
