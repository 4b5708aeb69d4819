//! A run of a plan: the life, the quiet phase, the final exam.

use crate::{
    iam::{Iam, RecordedCalls},
    judge::{Law, Violation},
    kubelet::{COLLIDING, pod_name},
    plan::Plan,
    planted::Planted,
    trace::Trace,
    world::{DAY_ONE, DueEvent, World},
};
use config_iam::Scope;
use config_model::Span;

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// The number of trace lines to keep.
    pub keep: usize,
    /// Prints every line immediately.
    pub live: bool,
    /// A fault at the seams.
    pub planted: Option<Planted>,
    /// Checks the node's role with the policy of this scope, and gives the node a cluster name.
    pub iam: Option<Scope>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `None` if no law was broken.
    pub violation: Option<Violation>,
    /// The last trace lines.
    pub trace: Vec<String>,
    /// The number of simulated events.
    pub events: u64,
    /// The simulated time.
    pub duration: Span,
    /// The calls to EC2, with [`RunOptions::iam`].
    pub calls: RecordedCalls,
}

/// Runs a plan.
pub fn run(plan: &Plan, watching: RunOptions) -> Outcome {
    let trace = Trace::new(watching.keep, watching.live, DAY_ONE);
    let mut world = match World::new(plan, watching.planted, trace) {
        Ok(world) => world,
        Err(what) => {
            let violation = Violation { law: Law::World, at: DAY_ONE, what };
            return Outcome {
                violation: Some(violation),
                trace: Vec::new(),
                events: 0,
                duration: Span(0),
                calls: RecordedCalls::default(),
            };
        }
    };
    world.ec2.iam = watching.iam.map(|scope| Iam::new(plan.setup.mode, scope));
    world.run_until(DAY_ONE + plan.quiet_from);
    world.calm_down();
    world.wait_for_quiet();
    world.run_exam();
    world.wait_for_quiet();
    let duration = world.now.since(DAY_ONE);
    let calls = world.ec2.iam.take().map(Iam::into_calls).unwrap_or_default();
    let (violation, trace, events) = world.finish();
    Outcome { violation, trace, events, duration, calls }
}

impl World {
    /// Ends all faults, removes other tenants, starts the daemon.
    fn calm_down(&mut self) {
        self.note(|| "== it becomes quiet".to_owned());
        self.quiet = true;
        self.ec2.end_faults(self.now);
        self.set_schedulable(true);
        self.set_pod_cidr(true);
        self.tenants_go(100);
        self.pulled_enis_go();
        self.host.refuses = false;
        self.disk_write = None;
        self.branches.away = 0;
        self.after(GRACE, DueEvent::Start);
        self.run_until(self.now + GRACE + GRACE);
        // Of two pods with one veth name the operator deletes one.
        self.unwant(COLLIDING[1]);
        self.run_until(self.now + GRACE);
        // Pods that cannot be served are not waited for.
        let capacity = usize::try_from(self.capacity()).unwrap_or(usize::MAX);
        let wanted: Vec<u16> =
            self.kubelet.pods.iter().filter(|(_, pod)| pod.wanted).map(|(pod, _)| *pod).collect();
        let (branched, plain): (Vec<u16>, Vec<u16>) =
            wanted.into_iter().partition(|pod| self.wants_branch(*pod));
        let plain = plain.into_iter().skip(capacity.saturating_sub(self.foreign.len() + 1));
        for pod in plain.chain(branched.into_iter().skip(self.max_branches())) {
            self.unwant(pod);
        }
    }

    fn unwant(&mut self, pod: u16) {
        let Some(known) = self.kubelet.pods.get_mut(&pod) else { return };
        known.wanted = false;
        if let Some(sandbox) = known.sandbox {
            self.pod_object_ends(pod, pod_name(pod));
            self.after(Span(1), DueEvent::Del(sandbox));
        }
    }

    /// Waits until every property holds and stays so.
    fn wait_for_quiet(&mut self) {
        let end = self.now + PATIENCE;
        while self.judge.broken.is_none() {
            self.run_until(self.now + STEP);
            let mismatches = self.mismatches();
            let rests = mismatches.is_empty();
            if rests {
                return;
            }
            if self.now >= end {
                let now = self.now;
                if let Some((law, what)) = mismatches.into_iter().next() {
                    self.judge.report_violation(law, now, || what);
                }
            }
        }
    }

    /// Law: new pods are served, because nothing prevents it.
    fn run_exam(&mut self) {
        if self.judge.broken.is_some() {
            return;
        }
        self.note(|| "== the exam".to_owned());
        self.run_until(self.now + CALM);
        let running = self.kubelet.running().count() as u64;
        let room = self.capacity().saturating_sub(running + 1).min(EXAM);
        for nth in 0..u16::try_from(room).unwrap_or(0) {
            let pod = EXAMINED + nth;
            if self.wants_branch(pod) {
                let with = self.kubelet.running().filter(|sandbox| sandbox.uid.is_some()).count();
                if with + usize::from(nth) >= self.max_branches() {
                    continue;
                }
            }
            self.kubelet.pods.entry(pod).or_default().wanted = true;
            self.new_sandbox(pod, None);
        }
        self.run_until(self.now + Span::seconds(50));
    }
}

/// The time for everything under way to end.
const GRACE: Span = Span::seconds(60);
/// The time for every property to hold. The pause after failed attaches is half an hour.
const PATIENCE: Span = Span::seconds(3 * 3600);
const STEP: Span = Span::seconds(90);
const CALM: Span = Span::seconds(400);
const EXAM: u64 = 8;
/// Pod numbers that no plan uses.
const EXAMINED: u16 = 500;
