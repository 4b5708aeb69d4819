//! The repair pass: missed DELs, then the kernel, then the book, then the plan.
//!
//! The order is the daemon's (`ipamd/daemon/src/repair.rs`). Plugins run between any two steps, and the process can
//! die there.

use crate::{
    daemon::{Question, Sender},
    judge::Law,
    planted::Planted,
    world::{DueEvent, World},
};
use config_model::{Span, Time};
use ipamd_core::{Event, ReleaseCause, Snapshot};
use ipamd_node::{desired, readiness};
use routing_plan::{NodeDesired, Observed, Plan};
use std::{collections::BTreeSet, net::IpAddr};

/// The state of the pass and the schedule of the next one.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    /// A pass is under way.
    busy: bool,
    /// A change occurred since the pass started.
    pulled: bool,
    /// The earliest start of the next pass.
    rests_until: Time,
    /// The number of the current schedule; older ones are void.
    turn: u64,
    began: Time,
    observed: Option<Box<(Observed, BTreeSet<IpAddr>)>>,
    book: Option<Box<Snapshot>>,
    /// The input of the last pass and its plan, to skip a plan for equal input.
    settled: Option<Box<(Observed, NodeDesired, Plan)>>,
}

/// A step of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassStage {
    /// The start, if its number is current.
    Due(u64),
    Begins,
    /// Reads the kernel.
    Observes,
    /// Reads the book.
    Reads,
    /// Applies the plan.
    Applies,
}

impl World {
    /// Schedules a pass after a change in the kernel or in the book.
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
        self.at(at, DueEvent::Pass(life, due));
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
            self.ask(release, Sender::TombstoneInPass(key));
        }
        // All are answered by then, or the next pass asks again.
        self.next_stage(TOMBSTONES_TAKE, PassStage::Observes);
    }

    fn next_stage(&mut self, takes: u64, stage: PassStage) {
        if let Some(life) = self.daemon.as_ref().map(|daemon| daemon.life) {
            self.after(Span(takes), DueEvent::Pass(life, stage));
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
            self.deliver(Event::EniReady { eni });
        }
        for (eni, why) in not_ready {
            self.deliver(Event::EniNotReady { eni, why });
        }
        let started = self.host.clock(began);
        self.deliver(Event::KernelSeen { started, in_use });
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

    /// Computes the plan, only if its input has changed.
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

    /// Law: no running pod loses its network.
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
        let running = self.kubelet.running().flat_map(|sandbox| &sandbox.nets);
        let misrouted = running.filter_map(|net| Some((net, self.host.misrouted_by(net)?)));
        if let Some((net, link)) = misrouted.into_iter().next() {
            self.judge.report_violation(Law::LinkOfAnother, now, || {
                format!("{} of {} is routed to {}", net.address, net.key, link.name)
            });
        }
        for net in whole {
            let still = self.host.connected(&net);
            self.judge.demand(still, Law::CutOff, now, || {
                format!("{} of {} is cut off by a repair", net.address, net.key)
            });
        }
        applied
    }
}

/// The longest interval between passes.
const PERIOD: Span = Span::seconds(10);
/// The time for which further changes are gathered after the first.
const DEBOUNCE: Span = Span::millis(10);
/// The least interval between passes.
const GAP: Span = Span::millis(40);
/// The milliseconds within which tombstones are answered or repeated.
const TOMBSTONES_TAKE: u64 = 20;
