//! The core: events in, effects out.
//!
//! [`Core::on_event`] takes in the event, then [`Core::settle`] asks each module its question
//! again. Nothing is remembered between two events but facts; what to do is planned anew.

use crate::{
    Checkpoint, Effect, Event, Limits, NodeFacts, PoolConfig, Start,
    ctx::Ctx,
    explain::Why,
    growth::Growth,
    leaks::Collector,
    places::{OccupiedPlace, OccupiedPlaces},
    shrink::Shrink,
    trunk::TrunkWish,
    upkeep::{self, Upkeep},
    waiting::Waiter,
    witness::Witnesses,
    zone::ZoneWatch,
};
use config_model::{CardIndex, Span, Time};

/// A node that cannot serve anybody, and for which no pod waits yet, leaves EC2 to others for so
/// long.
const IDLE_PATIENCE: Span = Span::seconds(60);

/// The node's address book and its planner.
///
/// It knows no clock and does nothing itself. Feed it events with [`Core::on_event`], carry out the
/// effects in order, and send [`Event::Tick`] when [`Core::wake_at`] is reached. Send one `Tick`
/// right after [`Core::new`]: it yields the first effects.
#[derive(Debug)]
pub struct Core {
    pub(crate) ctx: Ctx,
    pub(crate) growth: Growth,
    pub(crate) shrink: Shrink,
    pub(crate) witnesses: Witnesses,
    pub(crate) zone: ZoneWatch,
    pub(crate) trunk: TrunkWish,
    pub(crate) leaks: Collector,
    upkeep: Upkeep,
    /// Since when the node has no address that a pod has or could get.
    idle_since: Option<Time>,
    pub(crate) stopping: bool,
}

impl Core {
    /// Starts from what an earlier process left.
    pub fn new(
        config: PoolConfig,
        node: NodeFacts,
        limits: Limits,
        restored: Checkpoint,
        start: Start,
        now: Time,
    ) -> Self {
        let witnesses = Witnesses::new(config.imds_only);
        let mut core = Self {
            ctx: Ctx::new(config, node, limits, restored.clone(), &start, now),
            growth: Growth::new(start.seed),
            shrink: Shrink::default(),
            witnesses,
            zone: ZoneWatch::new(now),
            trunk: TrunkWish::default(),
            leaks: Collector::default(),
            upkeep: Upkeep::default(),
            idle_since: None,
            stopping: false,
        };
        core.restore(restored, &start.boot_id, now);
        core
    }

    /// Takes in what happened and says what to do, in order.
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
                self.witnesses.sighted(ctx, growth, shrink, zone, witness, started, enis);
            }
            Event::LookFailed { witness, fault } => self.ctx.look_failed(witness, &fault),
            Event::KernelSeen { started, in_use } => {
                self.ctx.book.kernel_seen(started, in_use, now);
                self.report_stuck_in_kernel(now);
            }
            Event::EniReady { eni } => self.upkeep.eni_ready(&mut self.ctx, &eni),
            Event::EniNotReady { eni, why } => upkeep::eni_not_ready(&mut self.ctx, &eni, why),
            Event::Cluster(fact) => self.cluster_told(fact, now),
            Event::LimitsUntold { instance_type, fault } => {
                self.ctx.limits_untold(instance_type, &fault);
            }
            Event::LimitsTold { limits, max_pods } => self.ctx.limits_told(limits, max_pods),
            Event::Tick => {}
            Event::Stopping => self.stop(),
        }
        self.settle(now);
        self.ctx.take_effects()
    }

    /// When the core next has something to do of its own accord.
    pub fn wake_at(&self) -> Option<Time> {
        self.ctx.wake_at()
    }

    /// What the records persisted so far add up to; `compact()` of it replaces the file.
    pub fn checkpoint(&self) -> &Checkpoint {
        self.ctx.journal()
    }

    /// Asks every question again.
    fn settle(&mut self, now: Time) {
        self.ctx.start_plan();
        self.press(now);
        self.lapse_reservations(now);
        self.free_what_has_cooled(now);
        self.serve_waiting(now);
        if !self.stopping {
            if !self.ctx.config.imds_only && !self.ctx.schedule.ec2_seen() {
                self.ctx.because(Why::NothingSeenYet);
            } else {
                self.zone.look(&mut self.ctx);
                self.change_ec2();
                self.zone.recount(&mut self.ctx);
            }
            // Last: it may have been asked for just now.
            self.ctx.look_around();
        }
        self.dismiss_overdue(now);
        self.dismiss_hopeless(now);
        let ctx = &mut self.ctx;
        for at in [ctx.book.next_lapse(), ctx.book.next_ripe(), ctx.queue.next_deadline()] {
            ctx.wake_by(at);
        }
    }

    /// Calls press while somebody waits, and when the node could not serve anybody for long.
    fn press(&mut self, now: Time) {
        if self.ctx.serves() {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let late = |since: Time| now >= since + IDLE_PATIENCE;
        let pressed = !self.ctx.queue.is_empty() || self.idle_since.is_some_and(late);
        self.ctx.budgets.press(pressed);
    }

    fn change_ec2(&mut self) {
        if self.ctx.may_change_ec2() {
            let occupied = self.occupied_places();
            self.growth.advance(&mut self.ctx, &occupied);
            self.shrink.advance(&mut self.ctx);
        }
        self.upkeep.tend_enis(&mut self.ctx, &mut self.shrink);
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
        OccupiedPlaces::new(self.shrink.places().chain(self.unplaced()))
    }

    /// The places of attached ENIs that wait for their subnet's CIDR.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = OccupiedPlace> {
        self.witnesses.unplaced(&self.ctx.book, &self.growth, &self.shrink)
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
