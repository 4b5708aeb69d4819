//! The core: events in, effects out.
//!
//! [`Core::on_event`] takes in the event, then [`Core::settle`] asks each module its question
//! again. Nothing is remembered between two events but facts; what to do is planned anew.

use crate::{
    Answer, Checkpoint, Effect, Event, HeldAddress, Limits, NodeFacts, Notice, OpId, PodAddress,
    PoolConfig, Record, Severity, Start, Ticket, Topic,
    book::{Book, Eni},
    budget::Budgets,
    calls::Call,
    cluster::Cluster,
    explain::Why,
    growth::{Making, Rhythm, Subnets},
    leaks::Collector,
    limits::Untold,
    placement::Nowhere,
    shrink::{Departure, Excess},
    trunk::TrunkWish,
    waiting::{Queue, Waiter},
    warm::Targets,
    witness::Watch,
    zone::ZoneWatch,
};
use config_model::{CardIndex, EniId, Span, TableId, Time};
use std::collections::{BTreeMap, BTreeSet};

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
    pub(crate) config: PoolConfig,
    pub(crate) node: NodeFacts,
    pub(crate) limits: Limits,
    /// Why the limits are none of EC2's, if they are not.
    pub(crate) untold: Option<Untold>,
    pub(crate) targets: Targets,
    pub(crate) seed: u64,
    pub(crate) book: Book,
    pub(crate) cluster: Cluster,
    pub(crate) queue: Queue,
    pub(crate) journal: Checkpoint,
    pub(crate) budgets: Budgets,
    pub(crate) watch: Watch,
    /// ENIs on their way in, by client token.
    pub(crate) makings: BTreeMap<String, Making>,
    /// How many tokens this process has drawn.
    pub(crate) tokens: u64,
    pub(crate) subnets: Subnets,
    pub(crate) rhythm: Rhythm,
    pub(crate) zone: ZoneWatch,
    /// Why no ENI can be made, as it was reported last.
    pub(crate) nowhere_told: Option<Nowhere>,
    pub(crate) trunk: TrunkWish,
    pub(crate) leaks: Collector,
    /// When the answer was asked for that showed other security groups of the primary ENI.
    pub(crate) groups_changed: Option<Time>,
    /// Attaches in a row that never came to anything, and until when no other is begun.
    pub(crate) stuck_attaches: u32,
    pub(crate) no_create_until: Option<Time>,
    /// ENIs on their way out.
    pub(crate) departures: BTreeMap<EniId, Departure>,
    pub(crate) excess: BTreeMap<CardIndex, Excess>,
    /// Cards that lack addresses and cannot get any, as the last plan found.
    pub(crate) at_its_end: BTreeSet<CardIndex>,
    /// Since when the node has no address that a pod has or could get.
    idle_since: Option<Time>,
    pub(crate) calls: BTreeMap<OpId, Call>,
    pub(crate) next_op: u64,
    pub(crate) stopping: bool,
    pub(crate) outbox: Vec<Effect>,
    wake: Option<Time>,
    pub(crate) whys: Vec<Why>,
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
        let targets = Targets::new(&config, &limits);
        let book = Book::of(targets.unit());
        let (imds_only, calls) = (config.imds_only, config.calls);
        let mut core = Self {
            targets,
            book,
            cluster: Cluster::default(),
            config,
            node,
            limits,
            untold: None,
            seed: start.seed,
            queue: Queue::default(),
            journal: Checkpoint::default(),
            budgets: Budgets::new(calls, start.seed),
            watch: Watch::new(imds_only, now),
            makings: BTreeMap::new(),
            tokens: 0,
            subnets: Subnets::default(),
            rhythm: Rhythm::default(),
            zone: ZoneWatch::new(now),
            nowhere_told: None,
            trunk: TrunkWish::default(),
            leaks: Collector::default(),
            groups_changed: None,
            stuck_attaches: 0,
            no_create_until: None,
            departures: BTreeMap::new(),
            excess: BTreeMap::new(),
            at_its_end: BTreeSet::new(),
            idle_since: None,
            calls: BTreeMap::new(),
            next_op: 0,
            stopping: false,
            outbox: Vec::new(),
            wake: Some(now),
            whys: Vec::new(),
        };
        core.restore(restored, &start.boot_id, now);
        core
    }

    /// Takes in what happened and says what to do, in order.
    pub fn on_event(&mut self, event: Event, now: Time) -> Vec<Effect> {
        match event {
            Event::Reserve { ticket, key, pod, cards, branch, give_up_at } => {
                self.rhythm.arrived(now);
                self.reserve(Waiter { ticket, key, pod, cards, branch, give_up_at }, now);
            }
            Event::Abandoned { ticket } => {
                if let Some(waiter) =
                    self.queue.remove(ticket).filter(|waiter| waiter.branch.is_none())
                {
                    self.expect_again(&waiter.pod);
                }
            }
            Event::Confirm { ticket, key, host_interface } => {
                self.confirm(ticket, &key, host_interface, now);
            }
            Event::Release { ticket, key, cause } => self.release(ticket, &key, cause, now),
            Event::CloudDone { op, result } => self.cloud_done(op, result, now),
            Event::Sighting { witness, started, enis } => {
                self.sighted(witness, started, enis, now);
            }
            Event::LookFailed { witness, fault } => self.look_failed(witness, &fault, now),
            Event::KernelSeen { started, in_use } => {
                self.book.kernel_seen(started, in_use, now);
                self.report_stuck_in_kernel(now);
            }
            Event::EniReady { eni } => self.eni_ready(&eni),
            Event::EniNotReady { eni, why } => self.eni_not_ready(&eni, why, now),
            Event::Cluster(fact) => self.cluster_told(fact, now),
            Event::LimitsUntold { instance_type, fault } => {
                self.limits_untold(instance_type, &fault);
            }
            Event::LimitsTold { limits, max_pods } => self.limits_told(limits, max_pods),
            Event::Tick => {}
            Event::Stopping => self.stop(),
        }
        self.settle(now);
        std::mem::take(&mut self.outbox)
    }

    /// When the core next has something to do of its own accord.
    pub fn wake_at(&self) -> Option<Time> {
        self.wake
    }

    /// What the records persisted so far add up to; `compact()` of it replaces the file.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.journal
    }

    /// Asks every question again.
    fn settle(&mut self, now: Time) {
        self.wake = None;
        self.whys.clear();
        self.press(now);
        self.lapse_reservations(now);
        self.free_what_has_cooled(now);
        self.serve_waiting(now);
        if !self.stopping {
            if !self.config.imds_only && !self.watch.ec2_seen() {
                self.whys.push(Why::NothingSeenYet);
            } else {
                self.look_at_zone(now);
                self.change_ec2(now);
                self.recount(now);
            }
            // Last: it may have been asked for just now.
            self.look_around(now);
        }
        self.dismiss_overdue(now);
        self.dismiss_hopeless(now);
        for at in [self.book.next_lapse(), self.book.next_ripe(), self.queue.next_deadline()] {
            self.wake_by(at);
        }
    }

    /// Calls press while somebody waits, and when the node could not serve anybody for long.
    fn press(&mut self, now: Time) {
        if self.serves() {
            self.idle_since = None;
        } else {
            self.idle_since.get_or_insert(now);
        }
        let late = |since: Time| now >= since + IDLE_PATIENCE;
        let pressed = !self.queue.is_empty() || self.idle_since.is_some_and(late);
        self.budgets.press(pressed);
    }

    /// Whether pods have addresses of it, or would get one.
    pub(crate) fn serves(&self) -> bool {
        self.book.enis().any(|eni| eni.serves() && eni.total() > 0)
    }

    /// When what nobody waits for had better not be called for yet, since EC2 throttled a call:
    /// until when. The core wakes then.
    pub(crate) fn put_off(&mut self, calm: Span, now: Time) -> Option<Time> {
        let until =
            self.budgets.storm(calm, now).filter(|_| self.queue.is_empty() && self.serves());
        self.wake_by(until);
        until
    }

    /// Whether EC2 may be asked for changes at all.
    pub(crate) fn may_change_ec2(&self) -> bool {
        let wanted = self.config.provisioning && !self.config.imds_only;
        wanted && self.untold.is_none() && self.watch.ec2_seen()
    }

    /// Whether the pool stays as it is because no new pods come.
    pub(crate) fn is_frozen(&self) -> bool {
        !self.cluster.schedulable && !self.config.manage_unschedulable
    }

    fn change_ec2(&mut self, now: Time) {
        if self.may_change_ec2() {
            self.advance_makings(now);
            self.advance_departures(now);
        }
        self.tend_enis(now);
        self.grow(now);
        if self.may_change_ec2() {
            self.do_chores(now);
            self.ask_for_trunk(now);
            self.collect_leaks(now);
            if !self.is_frozen() {
                self.give_back(now);
            }
        }
    }

    /// ENIs that may be attached to the card at most.
    pub(crate) fn max_enis(&self, card: CardIndex) -> u32 {
        let limit = u32::from(self.limits.enis_on(card));
        self.config.max_eni.filter(|max| *max >= 1).map_or(limit, |max| max.min(limit))
    }

    /// Places on the card that are taken or spoken for.
    pub(crate) fn places_taken(&self, card: CardIndex) -> u32 {
        let makings = self.makings.values().filter(|making| making.card() == card).count();
        self.places_attached(card) + u32::try_from(makings).unwrap_or(u32::MAX)
    }

    /// Places on the card that an attached ENI has, or one on its way out.
    pub(crate) fn places_attached(&self, card: CardIndex) -> u32 {
        let here = |eni: &&Eni| eni.facts.card == card && !eni.missing;
        let attached = self.book.enis().filter(here).count();
        let leaving = self.departures.values().filter(|departure| departure.is_on(card)).count();
        let unplaced = self.unplaced(card).count();
        u32::try_from(attached + leaving + unplaced).unwrap_or(u32::MAX)
    }

    /// The addresses with the places that their ENIs have by now.
    pub(crate) fn addresses_of(&self, held: &[HeldAddress]) -> Vec<PodAddress> {
        let one = |held: &HeldAddress| {
            let place = self.book.eni(&held.eni).map(|eni| (eni.facts.card, eni.facts.device));
            let (card, device) = place.unwrap_or((held.card, held.device));
            let (eni, table) = (held.eni.clone(), TableId::of_eni(card, device));
            PodAddress { address: held.address, eni, card, device, table }
        };
        held.iter().map(one).collect()
    }

    pub(crate) fn persist(&mut self, record: Record) {
        self.journal.apply(&record);
        self.outbox.push(Effect::Persist(record));
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, answer: Answer) {
        self.outbox.push(Effect::Reply { ticket, answer });
    }

    pub(crate) fn node_changed(&mut self) {
        if !self.outbox.contains(&Effect::NodeChanged) {
            self.outbox.push(Effect::NodeChanged);
        }
    }

    pub(crate) fn report(
        &mut self,
        severity: Severity,
        topic: Topic,
        object: impl ToString,
        cause: impl Into<String>,
        next_step: impl Into<String>,
    ) {
        let (object, cause) = (object.to_string(), cause.into());
        let next_step = next_step.into();
        let notice = Notice { severity, topic, object, pod: None, cause, next_step };
        self.outbox.push(Effect::Report(notice));
    }

    pub(crate) fn wake_by(&mut self, at: Option<Time>) {
        self.wake = self.wake.into_iter().chain(at).min();
    }

    /// Whether the moment has come; if not, the core wakes then.
    pub(crate) fn reached(&mut self, at: Time, now: Time) -> bool {
        if at > now {
            self.wake_by(Some(at));
        }
        at <= now
    }

    /// The ENIs of a card that pods may use, by place.
    pub(crate) fn enis_by_place(&self, card: CardIndex) -> Vec<EniId> {
        let of_card = |eni: &&Eni| eni.facts.card == card && eni.counts();
        let mut enis: Vec<&Eni> = self.book.enis().filter(of_card).collect();
        enis.sort_by_key(|eni| eni.facts.device);
        enis.into_iter().map(|eni| eni.facts.id.clone()).collect()
    }
}
