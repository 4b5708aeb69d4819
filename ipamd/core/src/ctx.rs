//! The state and the services that all parts of the planner share.
//!
//! Each part ([`Growth`](crate::growth::Growth), [`Shrink`](crate::shrink::Shrink), …) keeps its own state private and
//! gets a [`Ctx`] for one call. The parts never see each other's fields: what one needs of another is a method call.

use crate::{
    Answer, BlockSource, Checkpoint, Effect, HeldAddress, Limits, NodeFacts, Notice, PodAddress,
    PoolConfig, Record, Severity, Start, Ticket, Topic,
    book::{AddressBook, Eni},
    budget::Budgets,
    calls::Calls,
    cluster::Cluster,
    explain::Blocker,
    limits::UnknownLimits,
    removals::RecentRemovals,
    schedule::Schedule,
    subnets::SubnetSupplies,
    waiting::Queue,
    warm::Targets,
};
use config_model::{CardIndex, EniId, Span, TableId, Time};

#[derive(Debug)]
pub(crate) struct Ctx {
    /// The time of the current event.
    pub(crate) now: Time,
    pub(crate) config: PoolConfig,
    pub(crate) node: NodeFacts,
    pub(crate) limits: Limits,
    /// `None` once EC2 has reported the limits of the instance type.
    pub(crate) limits_unknown: Option<UnknownLimits>,
    pub(crate) targets: Targets,
    pub(crate) book: AddressBook,
    pub(crate) cluster: Cluster,
    pub(crate) queue: Queue,
    pub(crate) budgets: Budgets,
    pub(crate) subnets: SubnetSupplies,
    pub(crate) schedule: Schedule,
    pub(crate) removed: RecentRemovals,
    pub(crate) calls: Calls,
    journal: Checkpoint,
    effects: Vec<Effect>,
    wake: Option<Time>,
    blockers: Vec<Blocker>,
}

impl Ctx {
    pub(crate) fn new(
        config: PoolConfig,
        node: NodeFacts,
        limits: Limits,
        restored: Checkpoint,
        start: &Start,
        now: Time,
    ) -> Self {
        let targets = Targets::new(&config, &limits);
        Self {
            now,
            book: AddressBook::of(targets.unit()),
            targets,
            budgets: Budgets::new(config.calls, start.seed),
            schedule: Schedule::new(config.imds_only, now),
            config,
            node,
            limits,
            limits_unknown: None,
            cluster: Cluster::default(),
            queue: Queue::default(),
            subnets: SubnetSupplies::default(),
            removed: RecentRemovals::default(),
            calls: Calls::default(),
            journal: restored,
            effects: Vec::new(),
            wake: Some(now),
            blockers: Vec::new(),
        }
    }

    /// Starts a new plan: no wake-up and no reason is left of the last one.
    pub(crate) fn start_plan(&mut self) {
        self.wake = None;
        self.blockers.clear();
    }

    pub(crate) fn journal(&self) -> &Checkpoint {
        &self.journal
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn persist(&mut self, record: Record) {
        self.journal.apply(&record);
        self.push(Effect::Persist(record));
    }

    pub(crate) fn reply(&mut self, ticket: Ticket, answer: Answer) {
        self.push(Effect::Reply { ticket, answer });
    }

    pub(crate) fn node_changed(&mut self) {
        if !self.effects.contains(&Effect::NodeChanged) {
            self.push(Effect::NodeChanged);
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
        self.push(Effect::Report(notice));
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        self.wake
    }

    pub(crate) fn wake_by(&mut self, at: Option<Time>) {
        self.wake = self.wake.into_iter().chain(at).min();
    }

    /// Returns whether the time is reached; if not, the core wakes then.
    pub(crate) fn reached(&mut self, at: Time) -> bool {
        if at > self.now {
            self.wake_by(Some(at));
        }
        at <= self.now
    }

    /// Adds a reason why the plan stops here.
    pub(crate) fn add_blocker(&mut self, why: Blocker) {
        self.blockers.push(why);
    }

    /// The reasons why the current plan stops.
    pub(crate) fn blockers(&self) -> &[Blocker] {
        &self.blockers
    }

    /// Returns whether pods have addresses of the pool or could get one.
    pub(crate) fn serves(&self) -> bool {
        let of_enis = self.book.enis().any(|eni| eni.serves() && eni.blocks.total() > 0);
        of_enis || self.book.node_cidrs().total() > 0
    }

    /// Returns the time until which a call that no pod waits for is delayed because EC2 throttles. The core wakes then.
    pub(crate) fn delay_for_throttling(&mut self, calm: Span) -> Option<Time> {
        let until =
            self.budgets.storm(calm, self.now).filter(|_| self.queue.is_empty() && self.serves());
        self.wake_by(until);
        until
    }

    /// Returns whether the settings and the known facts allow calls that change something in EC2.
    pub(crate) fn may_change_ec2(&self) -> bool {
        let allowed = self.config.provisioning && !self.config.imds_only;
        allowed && self.limits_unknown.is_none() && self.schedule.ec2_seen()
    }

    /// Returns whether the pool keeps its size because the node gets no new pods.
    pub(crate) fn is_frozen(&self) -> bool {
        !self.cluster.is_schedulable() && !self.config.manage_unschedulable
    }

    /// The most ENIs that may be attached to the card.
    pub(crate) fn max_enis(&self, card: CardIndex) -> u32 {
        let limit = u32::from(self.limits.enis_on(card));
        self.config.max_eni.filter(|max| *max >= 1).map_or(limit, |max| max.min(limit))
    }

    /// The addresses with the current device numbers of their ENIs.
    pub(crate) fn addresses_of(&self, held: &[HeldAddress]) -> Vec<PodAddress> {
        let one = |held: &HeldAddress| {
            let source = held.source.clone();
            let eni = source.eni().and_then(|eni| self.book.eni(eni));
            let place = eni.map(|eni| (eni.facts.card, eni.facts.device));
            let (card, device) = place.unwrap_or((held.card, held.device));
            let table = match source {
                BlockSource::Eni(_) => TableId::of_eni(card, device),
                BlockSource::NodeCidr(_) => TableId::MAIN,
            };
            PodAddress { address: held.address, source, card, device, table }
        };
        held.iter().map(one).collect()
    }

    /// The ENIs of a card that pods may use, by device number.
    pub(crate) fn enis_by_place(&self, card: CardIndex) -> Vec<EniId> {
        let of_card = |eni: &&Eni| eni.facts.card == card && eni.counts();
        let mut enis: Vec<&Eni> = self.book.enis().filter(of_card).collect();
        enis.sort_by_key(|eni| eni.facts.device);
        enis.into_iter().map(|eni| eni.facts.id.clone()).collect()
    }

    /// Removes an ENI that is gone from the book. The answer of a call for it is ignored later.
    pub(crate) fn forget_eni(&mut self, id: &EniId) {
        if let Some(eni) = self.book.remove_eni(id)
            && let Some(want) = eni.coming
        {
            self.subnets.not_answered(&eni.facts.subnet, want);
        }
        self.removed.eni_gone(id.clone(), self.now);
        self.node_changed();
    }
}
