//! The repair pass: DELs that were missed, then the kernel, then the book, then what follows.
//!
//! The order is the daemon's (`ipamd/daemon/src/repair.rs`); between any two steps plugins work on,
//! and the process can die.

use crate::{
    daemon::{Asker, Question},
    judge::Law,
    planted::Planted,
    world::{Happening, World},
};
use config_model::{Span, Time};
use ipamd_core::{Event, ReleaseCause, Snapshot};
use ipamd_node::{desired, readiness};
use routing_plan::{NodeDesired, Observed, Plan};
use std::{collections::BTreeSet, net::IpAddr};

/// How far the pass is, and when the next one comes.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    /// A pass is under way.
    busy: bool,
    /// Something changed since the pass began.
    pulled: bool,
    /// The next pass begins no earlier.
    rests_until: Time,
    /// Passes that are due carry this number; older ones are void.
    turn: u64,
    began: Time,
    observed: Option<Box<(Observed, BTreeSet<IpAddr>)>>,
    book: Option<Box<Snapshot>>,
    /// What the last pass found, that it found nothing to do then, and whether it was so.
    settled: Option<Box<(Observed, NodeDesired, Plan)>>,
}

/// A step of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassStage {
    /// It begins, if it is still the one that is due.
    Due(u64),
    /// It begins.
    Begins,
    /// The kernel is read.
    Observes,
    /// The book is read.
    Reads,
    /// The plan is carried out.
    Applies,
}

impl World {
    /// Something in the kernel or in the book has changed: a pass comes soon.
    pub(crate) fn kernel_changed(&mut self) {
        let now = self.now;
        let Some(daemon) = self.daemon.as_mut().filter(|daemon| daemon.core.is_some()) else {
            return;
        };
        if std::mem::replace(&mut daemon.repair.pulled, true) || daemon.repair.busy {
            return;
        }
        self.schedule_pass(now);
    }

    fn schedule_pass(&mut self, now: Time) {
        let Some(daemon) = self.daemon.as_mut() else { return };
        let (life, repair) = (daemon.life, &mut daemon.repair);
        repair.turn += 1;
        let due = PassStage::Due(repair.turn);
        let wait = if repair.pulled { DEBOUNCE } else { PERIOD };
        let at = repair.rests_until.max(now) + wait;
        self.at(at, Happening::Pass(life, due));
    }

    pub(crate) fn pass(&mut self, stage: PassStage) {
        match stage {
            PassStage::Due(turn) => {
                let due = self
                    .daemon
                    .as_ref()
                    .is_some_and(|daemon| daemon.repair.turn == turn && !daemon.repair.busy);
                if due {
                    self.pass_begins();
                }
            }
            PassStage::Begins => self.pass_begins(),
            PassStage::Observes => self.pass_observes(),
            PassStage::Reads => self.pass_reads(),
            PassStage::Applies => self.pass_applies(),
        }
    }

    fn pass_begins(&mut self) {
        let now = self.now;
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.repair.busy = true;
        daemon.repair.pulled = false;
        daemon.repair.began = now;
        let graves: Vec<_> = self.tombstones.keys().cloned().collect();
        if graves.is_empty() {
            let takes = self.draw("observe", 0, 4);
            self.next_stage(takes, PassStage::Observes);
            return;
        }
        for key in graves {
            let release = Question::Release(key.clone(), ReleaseCause::PodDeleted);
            self.ask(release, Asker::Grave(key));
        }
        // All are answered by then, or the next pass asks again.
        self.next_stage(GRAVES_TAKE, PassStage::Observes);
    }

    fn next_stage(&mut self, takes: u64, stage: PassStage) {
        if let Some(life) = self.daemon.as_ref().map(|daemon| daemon.life) {
            self.after(Span(takes), Happening::Pass(life, stage));
        }
    }

    fn pass_observes(&mut self) {
        let (observed, in_use) = (self.host.observe(), self.host.in_use());
        if let Some(daemon) = self.daemon.as_mut() {
            daemon.repair.observed = Some(Box::new((observed, in_use)));
        }
        let takes = self.draw("read", 0, 4);
        self.next_stage(takes, PassStage::Reads);
    }

    fn pass_reads(&mut self) {
        let clock = self.host.clock(self.now);
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.repair.book = daemon.core.as_ref().map(|core| Box::new(core.snapshot(clock)));
        let takes = self.draw("apply", 0, 5);
        self.next_stage(takes, PassStage::Applies);
    }

    fn pass_applies(&mut self) {
        let settings = self.settings.clone();
        let Some(daemon) = self.daemon.as_mut() else { return };
        let repair = &mut daemon.repair;
        let (observed, book) = (repair.observed.take(), repair.book.take());
        let (Some(observed), Some(book)) = (observed, book) else { return };
        let (observed, mut in_use) = *observed;
        let began = repair.began;
        if self.planted == Some(Planted::ReleasedBeforeClean) {
            in_use.clear();
        }
        let (mut ready, mut not_ready, mut repaired) = (Vec::new(), Vec::new(), false);
        if let Some(desired) = desired::node(&book, &settings) {
            let plan = self.plan_once(observed, desired);
            let applied = self.apply_watched(&plan);
            repaired = !plan.ops.is_empty();
            (ready, not_ready) = readiness(&book, &plan, &applied);
        }
        for eni in ready {
            self.tell(Event::EniReady { eni });
        }
        for (eni, why) in not_ready {
            self.tell(Event::EniNotReady { eni, why });
        }
        let started = self.host.clock(began);
        self.tell(Event::KernelSeen { started, in_use });
        self.pass_ends(repaired);
    }

    fn pass_ends(&mut self, repaired: bool) {
        let now = self.now;
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.repair.busy = false;
        daemon.repair.pulled |= repaired;
        daemon.repair.rests_until = daemon.repair.began + GAP;
        self.schedule_pass(now);
    }

    /// The plan; worked out only if anything is other than at the last time.
    fn plan_once(&mut self, observed: Observed, desired: NodeDesired) -> Plan {
        let Some(daemon) = self.daemon.as_mut() else { return Plan::default() };
        if let Some(settled) = &daemon.repair.settled
            && settled.0 == observed
            && settled.1 == desired
        {
            return settled.2.clone();
        }
        let plan = routing_plan::plan(&desired, &observed);
        daemon.repair.settled = Some(Box::new((observed, desired, plan.clone())));
        plan
    }

    /// No running pod may lose by it.
    fn apply_watched(&mut self, plan: &Plan) -> routing_plan::Applied {
        if plan.ops.is_empty() {
            return routing_plan::Applied::default();
        }
        let whole: Vec<_> = self
            .kubelet
            .running()
            .flat_map(|sandbox| sandbox.nets.clone())
            .filter(|net| self.host.connected(net))
            .collect();
        let applied = self.host.apply(&plan.ops);
        for op in &plan.ops {
            self.trace.line(self.now, || format!("   # {op}"));
        }
        let now = self.now;
        for net in whole {
            let still = self.host.connected(&net);
            self.judge.demand(still, Law::CutOff, now, || {
                format!("{} of {} is cut off by a repair", net.address, net.key)
            });
        }
        applied
    }
}

/// A pass comes at least this often.
const PERIOD: Span = Span::seconds(10);
/// After the first word of a change, more words are waited for this long.
const DEBOUNCE: Span = Span::millis(10);
/// Passes begin at least this far apart.
const GAP: Span = Span::millis(40);
/// Tombstones are answered within this many milliseconds, or asked for again.
const GRAVES_TAKE: u64 = 20;
