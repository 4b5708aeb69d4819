//! The states that are handed to the backend, and their outcome.

use super::*;
use crate::{Applied, BackendEvent, Observed, Results, ServiceChanges};

impl Node {
    /// The outcome of [`Effect::Apply`].
    pub fn applied(&mut self, revision: u64, outcome: Applied, now: Time) {
        let Some(applying) = self.applying.take_if(|applying| applying.revision == revision) else {
            return;
        };
        let Applied { in_force, endpoints: results, policies: errors, services } = outcome;
        self.failing_services = services;
        let was_whole = self.is_whole();
        match &in_force {
            Ok(()) => {
                (self.applied, self.fault) = (revision, None);
                self.count(&applying.endpoints, results);
                let errors = errors.into_iter();
                self.failing =
                    errors.filter(|(uid, _)| applying.state.policies.contains_key(uid)).collect();
            }
            Err(why) => {
                self.fault = Some(why.clone());
                // The revision may have been in force and was applied again because part of it was not.
                self.applied = self.applied.min(revision.saturating_sub(1));
            }
        }
        // The last report is about the same policies, all in force.
        if !(applying.keeps_policies && was_whole && self.is_whole()) {
            self.reports.set(self.realized(&applying.state, in_force.err()), now);
        }
        self.report_reached(now);
        if self.is_whole() {
            (self.retry_at, self.retries) = (None, 0);
        } else {
            self.full = true;
            let pause = RETRY_FIRST.0.saturating_mul(1 << self.retries.min(16));
            self.retries = self.retries.saturating_add(1);
            self.retry_at = Some(now + Span(pause.min(RETRY_LAST.0)));
        }
        self.observe_at.get_or_insert(now + OBSERVE_EVERY);
        // While the backend fails, a newer state waits for the retry as well.
        if self.fault.is_none() && (self.revision > revision || self.again) {
            self.hand_over();
        }
        self.settle(now);
    }

    /// An endpoint is not in force any longer, whatever the last results are.
    pub(super) fn lose(&mut self, uid: &str) {
        self.in_force.remove(uid);
        self.counted = None;
    }

    /// Takes the results of endpoints, unless they were taken already.
    fn count(&mut self, endpoints: &Arc<Endpoints>, results: Arc<Results>) {
        let is_counted = self
            .counted
            .as_ref()
            .is_some_and(|(of, last)| Arc::ptr_eq(of, endpoints) && Arc::ptr_eq(last, &results));
        if is_counted {
            return;
        }
        // The result of an endpoint that was removed in the meantime does not count.
        let uids = endpoints.keys().filter(|uid| self.local.contains_key(*uid));
        let result =
            |uid: &String| results.get(uid).cloned().unwrap_or_else(|| Err(UNREPORTED.into()));
        let (good, bad): (Vec<_>, Vec<_>) =
            uids.map(|uid| (uid.clone(), result(uid))).partition(|(_, is)| is.is_ok());
        self.in_force = good.into_iter().map(|(uid, _)| uid).collect();
        let bad = bad.into_iter().filter_map(|(uid, is)| Some((uid, is.err()?)));
        self.failing_endpoints = bad.collect();
        self.counted = Some((Arc::clone(endpoints), results));
    }

    /// Returns true if the last state is in force without exception.
    fn is_whole(&self) -> bool {
        self.fault.is_none() && self.failing.is_empty() && self.failing_endpoints.is_empty()
    }

    /// The policies of a state, each with its error: of the whole state, its own, or of a pod that it applies to.
    fn realized(&self, of: &NodeSnapshot, whole: Option<String>) -> State {
        let mut state: State = of
            .policies
            .values()
            .map(|policy| {
                let own = whole.as_ref().or_else(|| self.failing.get(&policy.uid));
                (policy.uid.clone(), (policy.generation, own.cloned().unwrap_or_default()))
            })
            .collect();
        if whole.is_some() {
            return state;
        }
        for (uid, why) in &self.failing_endpoints {
            let Some(endpoint) = self.endpoints.get(uid) else { continue };
            let pod = &endpoint.pod.pod;
            let Some(entry) = self.entry(pod) else { continue };
            for policy in policies_of(&self.held, &entry.uid) {
                if let Some((_, error)) = state.get_mut(&policy.uid)
                    && error.is_empty()
                {
                    *error = format!("not in force on pod {}/{}: {why}", pod.namespace, pod.name);
                }
            }
        }
        state
    }

    /// The backend's state was read.
    pub fn observed(&mut self, observed: Result<Observed, String>, now: Time) {
        (self.observing, self.observe_at) = (false, Some(now + OBSERVE_EVERY));
        let observed = match observed {
            Ok(observed) => observed,
            Err(why) => {
                return self.drifted(format!("the backend's state cannot be read: {why}"), now);
            }
        };
        let missing = self.in_force.iter().filter(|uid| !observed.endpoints.contains(*uid));
        let missing: Vec<String> = missing.cloned().collect();
        let pods = missing.iter().filter_map(|uid| self.endpoints.get(uid));
        let pods = pods.map(|of| format!("pod {} is not in force any longer", of.pod.pod));
        let drift: Vec<String> = observed.drift.iter().cloned().chain(pods).collect();
        for uid in missing {
            self.lose(&uid);
            self.failing_endpoints.insert(uid, REMOVED.to_owned());
        }
        match drift.is_empty() {
            true => self.drift = None,
            false => self.drifted(drift.join("; "), now),
        }
    }

    /// An event of the backend.
    pub fn backend_event(&mut self, event: &BackendEvent, now: Time) {
        match event {
            BackendEvent::Drift(why) => self.drifted(why.clone(), now),
            // While the backend fails, the retry has both as well.
            BackendEvent::Names | BackendEvent::Services
                if self.given > 0 && self.fault.is_none() =>
            {
                if self.applying.is_some() {
                    self.again = true;
                } else {
                    self.hand_over();
                }
            }
            BackendEvent::Names
            | BackendEvent::Services
            | BackendEvent::Flow(_)
            | BackendEvent::Trace(_) => {}
        }
    }

    /// The state in force is not the one that was applied: a full pass repairs it.
    fn drifted(&mut self, why: String, now: Time) {
        if !self.has_snapshot || self.given == 0 {
            return;
        }
        self.drift = Some(why);
        self.drifts += 1;
        self.full = true;
        if self.fault.is_none() {
            self.hand_over();
        }
        self.settle(now);
    }

    /// Reports how far the cluster was read for the state that is in force.
    pub(super) fn report_reached(&mut self, now: Time) {
        while let Some((_, reached)) = self.marks.pop_front_if(|mark| mark.0 <= self.applied) {
            self.reports.reached(reached, now);
        }
    }

    /// There is a new state, which is to be in force.
    pub(super) fn changed(&mut self, now: Time) {
        self.revision += 1;
        self.entries();
        self.apply();
        self.settle(now);
    }

    pub(super) fn apply(&mut self) {
        let is_new = self.revision > self.applied;
        // Before a replica has sent a snapshot nothing is applied: the backend may hold a better state from before.
        if is_new && self.has_snapshot && self.fault.is_none() {
            self.hand_over();
        }
    }

    pub(super) fn hand_over(&mut self) {
        if self.applying.is_some() {
            self.again |= self.full;
            return;
        }
        self.again = false;
        let (state, revision) = (Arc::clone(&self.held), self.revision);
        let endpoints = Arc::clone(&self.endpoints);
        let changed = mem::take(&mut self.changed);
        let is_full = mem::take(&mut self.full);
        let among = ServiceChanges::among(&changed.objects);
        let since = self.given;
        let changed = (!is_full).then_some(Changed { since, services: among, ..changed });
        let keeps_policies = changed
            .as_ref()
            .is_some_and(|changed| changed.objects.of_kind(ObjectKind::POLICY).next().is_none());
        self.given = revision;
        let (of, to) = (Arc::clone(&state), Arc::clone(&endpoints));
        self.applying = Some(Applying { revision, endpoints: to, state: of, keeps_policies });
        let services = self.services();
        let zone = state.zone.as_deref();
        if self.identity.zone.as_deref() != zone {
            Arc::make_mut(&mut self.identity).zone = zone.map(str::to_owned);
        }
        let node = Arc::clone(&self.identity);
        let desired = Desired { revision, state, node, endpoints, services, changed };
        self.effects.push(Effect::Apply(desired));
    }
}

const UNREPORTED: &str = "the backend has not reported the pod";
const REMOVED: &str = "its state was removed from the kernel; it is applied again";
