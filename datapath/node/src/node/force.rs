//! What is put into force, and what comes of it.

use super::*;

impl Node {
    /// What came of a state that was to be put into force.
    pub fn applied(&mut self, revision: u64, came: Applied, now: Time) {
        let Some(applying) = self.applying.take_if(|applying| applying.revision == revision) else {
            return;
        };
        let policies = applying.policies.into_iter();
        let state: State = match came {
            Applied::Done(errors) => {
                (self.applied, self.trouble) = (revision, None);
                let state = policies.map(|(uid, generation)| {
                    let error = errors.get(&uid).cloned().unwrap_or_default();
                    (uid, (generation, error))
                });
                state.collect()
            }
            Applied::Failed(why) => {
                let state = policies.map(|(uid, generation)| (uid, (generation, why.clone())));
                let state = state.collect();
                self.trouble = Some(why);
                // It may have been in force, and is tried again since some policy of it was not.
                self.applied = self.applied.min(revision.saturating_sub(1));
                state
            }
        };
        let failing = state.iter().filter(|(_, (_, error))| !error.is_empty());
        self.failing = failing.map(|(uid, (_, error))| (uid.clone(), error.clone())).collect();
        self.reports.is(state, now);
        self.marked(now);
        if self.trouble.is_none() && self.failing.is_empty() {
            (self.retry_at, self.retries) = (None, 0);
        } else {
            let pause = RETRY_FIRST.0.saturating_mul(1 << self.retries.min(16));
            self.retries = self.retries.saturating_add(1);
            self.retry_at = Some(now + Span(pause.min(RETRY_LAST.0)));
        }
        // While all fails, a state that is newer waits for the next try as well.
        if self.trouble.is_none() && self.revision > revision {
            self.apply();
        }
        self.settle(now);
    }

    /// How far the cluster was read for what is in force.
    pub(super) fn marked(&mut self, now: Time) {
        while let Some((_, reached)) = self.marks.pop_front_if(|mark| mark.0 <= self.applied) {
            self.reports.reached(reached, now);
        }
    }

    /// There is another state, which is to be in force.
    pub(super) fn changed(&mut self, now: Time) {
        self.revision += 1;
        self.entries();
        self.apply();
        self.settle(now);
    }

    pub(super) fn apply(&mut self) {
        let is_new = self.revision > self.applied;
        // What was never told is not put into force: a backend may hold better from before.
        if is_new && self.told && self.trouble.is_none() {
            self.apply_anyhow();
        }
    }

    pub(super) fn apply_anyhow(&mut self) {
        if self.applying.is_some() {
            return;
        }
        let (held, local) = self.image();
        let policies = held.policies.values().map(|policy| (policy.uid.clone(), policy.generation));
        let revision = self.revision;
        self.applying = Some(Applying { revision, policies: policies.collect() });
        self.effects.push(Effect::Apply(Desired { revision, held, local }));
    }
}
