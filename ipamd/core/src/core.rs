//! The core: events in, effects out.
//!
//! [`Core::on_event`] takes the event, then [`Core::settle`] plans again. Only facts persist between two events; every
//! plan is computed from them.

use crate::{
    Checkpoint, Effect, Event, Limits, NodeFacts, PoolConfig, Start,
    branch_checks::BranchChecks,
    ctx::Ctx,
    explain::Blocker,
    growth::Growth,
    leaks::LeakCollector,
    node_cidrs::NodeCidrs,
    places::{OccupiedPlace, OccupiedPlaces},
    shrink::Shrink,
    trunk::TrunkRequest,
    upkeep::{self, Upkeep},
    waiting::Waiter,
    witness::Witnesses,
    zone::ZoneState,
};
use config_model::{CardIndex, PodName, Span, Time};
use std::collections::BTreeMap;

/// The time after which a node without a usable address raises its call rate, even if no pod waits.
const IDLE_PATIENCE: Span = Span::seconds(60);

/// The node's address book and its planner.
///
/// It has no clock and performs no action. Pass events to [`Core::on_event`], carry out the effects in order, and send
/// [`Event::Tick`] when [`Core::wake_at`] is reached. Send one `Tick` right after [`Core::new`]: it yields the first
/// effects.
#[derive(Debug)]
pub struct Core {
    pub(crate) ctx: Ctx,
    pub(crate) growth: Growth,
    pub(crate) shrink: Shrink,
    pub(crate) witnesses: Witnesses,
    pub(crate) zone: ZoneState,
    pub(crate) trunk: TrunkRequest,
    pub(crate) leaks: LeakCollector,
    node_cidrs: NodeCidrs,
    upkeep: Upkeep,
    /// The time since which the node has no address that a pod has or could get.
    idle_since: Option<Time>,
    pub(crate) stopping: bool,
    pub(crate) branches: BranchChecks,
    /// Pods whose host veth has the name of another pod's, with that pod. The collision is reported once.
    pub(crate) collisions: BTreeMap<PodName, PodName>,
}

impl Core {
    /// Starts from the checkpoint of an earlier process.
    pub fn new(
        config: PoolConfig,
        node: NodeFacts,
        limits: Limits,
        restored: Checkpoint,
        start: Start,
        now: Time,
    ) -> Self {
        let witnesses = Witnesses::new(config.imds_only);
        let node_cidrs = NodeCidrs::new(config.node_cidrs.clone());
        let mut core = Self {
            ctx: Ctx::new(config, node, limits, restored.clone(), &start, now),
            growth: Growth::new(start.seed),
            shrink: Shrink::default(),
            witnesses,
            zone: ZoneState::new(now),
            trunk: TrunkRequest::default(),
            leaks: LeakCollector::default(),
            node_cidrs,
            upkeep: Upkeep::default(),
            idle_since: None,
            stopping: false,
            branches: BranchChecks::default(),
            collisions: BTreeMap::new(),
        };
        core.restore(restored, &start.boot_id, now);
        core
    }

    /// Takes an event and returns the effects in order.
    pub fn on_event(&mut self, event: Event, now: Time) -> Vec<Effect> {
        self.ctx.now = now;
        match event {
            Event::Reserve { ticket, key, pod, cards, branch, give_up_at } => {
                self.growth.pod_arrived(now);
                self.reserve(Waiter { ticket, key, pod, cards, branch, give_up_at }, now);
            }
            Event::Abandoned { ticket } => {
                if let Some(waiter) =
                    self.ctx.queue.remove(ticket).filter(|waiter| waiter.branch.is_none())
                {
                    self.ctx.expect_again(&waiter.pod);
                }
            }
            Event::Confirm { ticket, key, host_interface } => {
                self.confirm(ticket, &key, host_interface, now);
            }
            Event::Release { ticket, key, cause } => self.release(ticket, &key, cause, now),
            Event::CloudDone { op, result } => self.cloud_done(op, result),
            Event::Sighting { witness, started, enis } => {
                let Self { ctx, growth, shrink, zone, .. } = self;
                self.witnesses.sighted(ctx, growth, shrink, zone, (witness, started), enis);
            }
            Event::LookFailed { witness, fault } => self.ctx.look_failed(witness, &fault),
            Event::KernelSeen { started, in_use } => {
                self.ctx.book.kernel_seen(started, in_use, now);
                self.report_stuck_in_kernel(now);
            }
            Event::EniReady { eni } => self.upkeep.eni_ready(&mut self.ctx, &eni),
            Event::EniNotReady { eni, why } => upkeep::eni_not_ready(&mut self.ctx, &eni, why),
            Event::Cluster(fact) => self.take_cluster_fact(fact, now),
            Event::NodeCidrs(cidrs) => self.node_cidrs.replace(cidrs),
            Event::LimitsUnknown { instance_type, fault } => {
                self.ctx.set_limits_unknown(instance_type, &fault);
            }
            Event::LimitsReported { limits, max_pods } => self.ctx.set_limits(limits, max_pods),
            Event::Tick => {}
            Event::Stopping => self.stop(),
        }
        self.settle(now);
        self.ctx.take_effects()
    }

    /// The time at which the core has something to do without an event.
    pub fn wake_at(&self) -> Option<Time> {
        self.ctx.wake_at()
    }

    /// The sum of the records so far; its `compact()` replaces the file.
    pub fn checkpoint(&self) -> &Checkpoint {
        self.ctx.journal()
    }

    /// Plans again.
    fn settle(&mut self, now: Time) {
        self.ctx.start_plan();
        self.press(now);
        self.lapse_reservations(now);
        self.free_ripe_addresses(now);
        self.node_cidrs.settle(&mut self.ctx);
        self.serve_waiting(now);
        self.write_due_order();
        if !self.stopping {
            self.confirm_branches();
            if !self.ctx.config.imds_only && !self.ctx.schedule.ec2_seen() {
                self.ctx.add_blocker(Blocker::NothingSeenYet);
            } else {
                self.zone.look(&mut self.ctx);
                self.change_ec2();
                self.zone.recount(&mut self.ctx);
            }
            // Last, because a step above may have scheduled an observation.
            self.ctx.observe_due();
        }
        self.dismiss_overdue(now);
        self.dismiss_hopeless(now);
        let ctx = &mut self.ctx;
        for at in [ctx.book.next_lapse(), ctx.book.next_ripe(), ctx.queue.next_deadline()] {
            ctx.wake_by(at);
        }
    }

    /// Raises the floor of the call rates while pods wait, or if the node had no usable address for long.
    fn press(&mut self, now: Time) {
        if self.ctx.serves() {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let late = |since: Time| now >= since + IDLE_PATIENCE;
        let waits = !self.ctx.queue.is_empty() || self.unconfirmed().next().is_some();
        let pressed = waits || self.idle_since.is_some_and(late);
        self.ctx.budgets.press(pressed);
    }

    fn change_ec2(&mut self) {
        if self.ctx.may_change_ec2() {
            let occupied = self.occupied_places();
            self.growth.advance(&mut self.ctx, &occupied);
            self.shrink.advance(&mut self.ctx);
        }
        self.upkeep.maintain_enis(&mut self.ctx, &mut self.shrink);
        let occupied = self.occupied_places();
        let Self { ctx, growth, shrink, zone, trunk, leaks, upkeep, .. } = self;
        growth.grow(ctx, zone, shrink, upkeep, &occupied);
        if !ctx.may_change_ec2() {
            return;
        }
        upkeep::do_chores(ctx, growth);
        trunk.ask(ctx, |ctx| has_place_for_trunk(ctx, growth, &occupied));
        leaks.collect(ctx);
        if !ctx.is_frozen() {
            shrink.give_back(ctx, growth);
        }
    }

    /// The places of ENIs that the book does not have.
    fn occupied_places(&self) -> OccupiedPlaces {
        OccupiedPlaces::new(self.shrink.places().chain(self.unadopted()))
    }

    /// The places of attached ENIs that wait for EC2's answer or for their subnet's CIDR.
    pub(crate) fn unadopted(&self) -> impl Iterator<Item = OccupiedPlace> {
        self.witnesses.unadopted(&self.ctx, &self.growth, &self.shrink)
    }

    /// Returns whether EC2 refused a place on the card because of an ENI that is not known yet.
    pub(crate) fn has_refused_place(&self, card: CardIndex) -> bool {
        let occupied = self.occupied_places();
        self.growth.refused_devices(&self.ctx, &occupied, card).next().is_some()
    }

    pub(crate) fn places_taken(&self, card: CardIndex) -> u32 {
        self.growth.places_taken(&self.ctx, &self.occupied_places(), card)
    }

    pub(crate) fn has_place_for_trunk(&self) -> bool {
        has_place_for_trunk(&self.ctx, &self.growth, &self.occupied_places())
    }
}

fn has_place_for_trunk(ctx: &Ctx, growth: &Growth, occupied: &OccupiedPlaces) -> bool {
    growth.places_taken(ctx, occupied, CardIndex(0)) < ctx.max_enis(CardIndex(0))
}
