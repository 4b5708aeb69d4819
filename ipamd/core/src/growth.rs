//! The source of more addresses: room on attached ENIs first, then new ENIs.

mod creation;
mod pacing;

use creation::EniCreation;
use pacing::Pacing;

use crate::{
    Action, CloudCall, EniConfig, EniKind, Record, Severity, Topic, Want,
    book::{Eni, Readiness, Task},
    budget::CALM,
    calls::CallSubject,
    checkpoint::CreationRecord,
    classify::is_card_in_use,
    ctx::Ctx,
    explain::Blocker,
    placement::{self, NoPlacement, Placement},
    places::OccupiedPlaces,
    schedule::SETTLING,
    shrink::Shrink,
    subnets::Missing,
    upkeep::Upkeep,
    warm::Unit,
    zone::ZoneState,
};
use config_model::{CardIndex, DeviceIndex, EniId, Span, SubnetId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// An ENI that is not ready for this time no longer counts, and other ENIs get the requests.
pub(crate) const READY_PATIENCE: Span = Span::seconds(30);

/// The creation of ENIs and the assignment of blocks.
#[derive(Debug)]
pub(crate) struct Growth {
    seed: u64,
    /// ENIs that are being created, by client token.
    creations: BTreeMap<String, EniCreation>,
    /// The number of tokens that this process has used.
    tokens: u64,
    pacing: Pacing,
    /// Places that EC2 reported as taken though no known ENI had them, with the time of the report.
    refused_places: BTreeMap<(CardIndex, DeviceIndex), Time>,
    /// The obstacle to new ENIs that was reported last.
    reported_obstacle: Option<NoPlacement>,
    /// Cards that need addresses and cannot get any, according to the last plan.
    at_its_end: BTreeSet<CardIndex>,
}

/// The addresses that a card lacks.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    card: CardIndex,
    /// The number that the targets ask for.
    ask: u64,
    /// The part of them for which pods wait already.
    urgent: u64,
}

impl Growth {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            creations: BTreeMap::new(),
            tokens: 0,
            pacing: Pacing::default(),
            refused_places: BTreeMap::new(),
            reported_obstacle: None,
            at_its_end: BTreeSet::new(),
        }
    }

    /// Continues a creation that an earlier process started.
    pub(crate) fn resume(&mut self, token: String, made: CreationRecord) {
        self.creations.insert(token, EniCreation::resumed(made));
    }

    /// Counts a pod's request for an address.
    pub(crate) fn pod_arrived(&mut self, now: Time) {
        self.pacing.arrived(now);
    }

    /// Returns whether a plan is due within the gathering time.
    pub(crate) fn gathers(&self, now: Time) -> bool {
        self.pacing.gathers(now)
    }

    /// Returns whether no ENI is being created.
    pub(crate) fn is_idle(&self) -> bool {
        self.creations.is_empty()
    }

    /// Returns whether the ENI is being created.
    pub(crate) fn is_creating(&self, id: &EniId) -> bool {
        self.creation_of(id).is_some()
    }

    /// The token of an ENI that is being created.
    pub(crate) fn creation_of(&self, id: &EniId) -> Option<&str> {
        let made = |(_, creation): &(&String, &EniCreation)| creation.eni.as_ref() == Some(id);
        self.creations.iter().find(made).map(|(token, _)| token.as_str())
    }

    /// The addresses that ENIs under creation will bring to the card.
    pub(crate) fn coming(&self, card: CardIndex) -> u64 {
        let creations = self.creations.values().filter(|creation| creation.card() == card);
        creations.map(EniCreation::coming).sum()
    }

    /// Returns whether another card than this one needs addresses and cannot get any.
    pub(crate) fn other_card_is_stuck(&self, card: CardIndex) -> bool {
        self.at_its_end.iter().any(|stuck| *stuck != card)
    }

    /// The places on the card that are occupied or planned for an ENI.
    pub(crate) fn places_taken(
        &self,
        ctx: &Ctx,
        occupied: &OccupiedPlaces,
        card: CardIndex,
    ) -> u32 {
        let creations = self.creations.values().filter(|creation| creation.card() == card).count();
        self.attached(ctx, occupied, card) + u32::try_from(creations).unwrap_or(u32::MAX)
    }

    /// The places on the card that are occupied, also by ENIs that only a refused attach revealed.
    fn attached(&self, ctx: &Ctx, occupied: &OccupiedPlaces, card: CardIndex) -> u32 {
        let refused = self.refused_devices(ctx, occupied, card).count();
        occupied.attached(ctx, card) + u32::try_from(refused).unwrap_or(u32::MAX)
    }

    /// The device numbers on the card that EC2 reported as taken and that no known ENI has. Later answers of EC2 show
    /// the ENI there, or it is gone.
    pub(crate) fn refused_devices(
        &self,
        ctx: &Ctx,
        occupied: &OccupiedPlaces,
        card: CardIndex,
    ) -> impl Iterator<Item = DeviceIndex> {
        let recent = |at: Time| ctx.now < at + SETTLING;
        let known = move |device: DeviceIndex| {
            let here = |eni: &Eni| eni.facts.card == card && eni.facts.device == device;
            ctx.book.enis().any(|eni| here(eni) && !eni.missing)
                || occupied.devices(card).any(|other| other == device)
        };
        let of_card = self.refused_places.iter().filter(move |((of, _), _)| *of == card);
        let devices = of_card.filter(move |(_, at)| recent(**at)).map(|((_, device), _)| *device);
        devices.filter(move |device| !known(*device))
    }

    /// Requests what the targets lack, in as few calls as possible, in parallel.
    pub(crate) fn grow(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneState,
        shrink: &mut Shrink,
        upkeep: &Upkeep,
        occupied: &OccupiedPlaces,
    ) {
        ctx.subnets.expire(ctx.now);
        ctx.wake_by(ctx.subnets.next_change());
        for card in ctx.pool_cards() {
            self.grow_card(ctx, zone, shrink, upkeep, occupied, card);
        }
    }

    fn grow_card(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneState,
        shrink: &mut Shrink,
        upkeep: &Upkeep,
        occupied: &OccupiedPlaces,
        card: CardIndex,
    ) {
        let Some(shortage) = self.shortage(ctx, card) else {
            self.pacing.at_rest(card);
            self.at_its_end.remove(&card);
            return;
        };
        if let Some(why) = self.may_not_grow(ctx) {
            ctx.add_blocker(why);
            return;
        }
        let due = self.pacing.due(card, shortage.urgent > 0, ctx.now);
        let delayed = ctx.delay_for_throttling(CALM).filter(|_| shortage.urgent == 0);
        let due = delayed.map_or(due, |until| due.max(until));
        if !ctx.reached(due) {
            if shortage.urgent == 0 {
                ctx.add_blocker(Blocker::TopUp { until: due });
            }
            return;
        }
        let ahead = self.pacing.ahead(card, ctx.config.cooldown, ctx.now);
        let mut foreseen = self.foreseen(ctx, shrink, card, shortage, ahead);
        let mut planned = false;
        // Each round fills an ENI or takes a place; one more round finds nothing left.
        for _ in 0..=2 * u32::from(ctx.limits.enis_on(card)) {
            let Some(shortage) = self.shortage(ctx, card) else { break };
            let ask = shortage.ask + std::mem::take(&mut foreseen);
            if let Err(why) =
                self.ask_somewhere(ctx, zone, upkeep, occupied, Shortage { ask, ..shortage })
            {
                if why.as_ref().is_some_and(Blocker::is_final) {
                    self.at_its_end.insert(card);
                }
                if let Some(why) = why {
                    ctx.add_blocker(why);
                }
                break;
            }
            self.at_its_end.remove(&card);
            planned = true;
        }
        if planned {
            self.pacing.planned(card, ahead, ctx.now);
            shrink.regret(card, ctx.now);
        }
    }

    /// Computes what the card's pool lacks; requests under way count as present.
    fn shortage(&mut self, ctx: &mut Ctx, card: CardIndex) -> Option<Shortage> {
        let pool = self.pool(ctx, card);
        let ask = ctx.targets.ask(card, pool);
        let urgent = u64::try_from(-pool.available()).unwrap_or(0);
        if ask > 0 {
            return Some(Shortage { card, ask, urgent });
        }
        if pool.waiting > 0 && urgent > 0 {
            ctx.add_blocker(Blocker::MaxPods { max: ctx.targets.max_pods });
        }
        None
    }

    /// The extra addresses to request because pods keep arriving or come back. One call replaces one call per pod. It
    /// looks no further ahead than a cooldown: addresses that cool now, or are released meanwhile, are free again by
    /// then.
    fn foreseen(
        &mut self,
        ctx: &mut Ctx,
        shrink: &Shrink,
        card: CardIndex,
        shortage: Shortage,
        ahead: Span,
    ) -> u64 {
        if ctx.targets.unit() == Unit::Ipv6Prefix {
            return 0;
        }
        let within = |span: Span| self.pacing.coming_within(span, ctx.now);
        // Half of what was returned too early: more may be needed again.
        let coming = within(ahead) + u64::from(shrink.missed(ctx, card).div_ceil(2));
        // As many as the kubelet runs, and the addresses that cool while pods keep arriving.
        let most = u64::from(ctx.targets.max_pods) + within(ctx.config.cooldown);
        let total = self.pool(ctx, card).total;
        coming.min(most.saturating_sub(total + shortage.ask))
    }

    /// The reason why the pool keeps its size, whatever it lacks.
    fn may_not_grow(&self, ctx: &Ctx) -> Option<Blocker> {
        if let Some(untold) = ctx.limits_unknown.as_ref().filter(|_| ctx.config.provisioning) {
            return Some(untold.why());
        }
        if !ctx.may_change_ec2() {
            return Some(Blocker::NotOurs);
        }
        ctx.is_frozen().then_some(Blocker::Unschedulable)
    }

    /// Makes one call for up to that many addresses. An error is the obstacle; `None` if it is recorded already.
    fn ask_somewhere(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneState,
        upkeep: &Upkeep,
        occupied: &OccupiedPlaces,
        shortage: Shortage,
    ) -> Result<(), Option<Blocker>> {
        let (mut full, mut busy) = (None, None);
        // The room on ENIs that cannot get a call now.
        let mut later = 0;
        for id in ctx.enis_by_place(shortage.card) {
            let Some(eni) = ctx.book.eni(&id) else { continue };
            if !has_room(ctx, eni) {
                let full_until = eni.full_until.filter(|until| *until > ctx.now);
                ctx.wake_by(full_until);
                continue;
            }
            let subnet = eni.facts.subnet.clone();
            let Some((unit, at_most)) = ctx.subnets.offer(&subnet, ctx.targets.unit()) else {
                full = Some(subnet_full(ctx, zone, subnet));
                continue;
            };
            let room = eni.room(ctx.targets.per_eni());
            if eni.task == Task::Idle && !eni.unsure {
                return self.assign(ctx, &id, unit, room.min(at_most), shortage.ask);
            }
            later += u64::from(room) * unit.size();
            busy = Some(Blocker::Busy { eni: id });
        }
        for creation in self.creations.values().filter(|creation| creation.card() == shortage.card)
        {
            later += creation.room(ctx.targets.per_eni());
            if let Some(eni) = creation.eni.clone() {
                busy = busy.or(Some(Blocker::Busy { eni }));
            }
        }
        // The next call to a busy ENI brings enough for all waiting pods, so no other ENI is needed.
        if later > 0 && later >= shortage.urgent {
            return Err(busy);
        }
        let max = ctx.max_enis(shortage.card);
        if self.places_taken(ctx, occupied, shortage.card) + ctx.places_for_trunk(shortage.card)
            >= max
        {
            return Err(Some(full.or(busy).unwrap_or(Blocker::NoPlace { max })));
        }
        self.ask_for_an_eni(ctx, zone, upkeep, shortage)
    }

    fn assign(
        &mut self,
        ctx: &mut Ctx,
        id: &EniId,
        unit: Unit,
        at_most: u32,
        ask: u64,
    ) -> Result<(), Option<Blocker>> {
        let want = want(unit, unit.blocks(ask).min(at_most));
        let call = CloudCall::Assign { eni: id.clone(), want };
        if !ctx.may(call.action()) {
            return Err(None);
        }
        let Some(eni) = ctx.book.eni_mut(id) else { return Err(None) };
        eni.coming = Some(want);
        eni.task = Task::Assign;
        let subnet = eni.facts.subnet.clone();
        ctx.subnets.asked(&subnet, want);
        ctx.call(CallSubject::Eni(id.clone()), call);
        Ok(())
    }

    fn ask_for_an_eni(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneState,
        upkeep: &Upkeep,
        shortage: Shortage,
    ) -> Result<(), Option<Blocker>> {
        if let Some(until) = upkeep.create_paused_until(ctx.now) {
            ctx.wake_by(Some(until));
            return Err(Some(Blocker::AttachesStick { until }));
        }
        if !zone.knows_zone(ctx) {
            return Err(Some(Blocker::NoPlacement(NoPlacement::SubnetsUnknown)));
        }
        let eni_config = ctx.cluster.eni_config();
        let placed = placement::place(&ctx.config, &ctx.node, eni_config, zone.subnets());
        let Placement { subnets, groups } = placed.map_err(|no_placement| {
            self.report_no_placement(ctx, &no_placement);
            Some(Blocker::NoPlacement(no_placement))
        })?;
        self.reported_obstacle = None;
        let offer = |subnet: &SubnetId| {
            if ctx.subnets.missing(subnet).is_some() {
                return None;
            }
            let (unit, at_most) = ctx.subnets.offer(subnet, ctx.targets.unit())?;
            Some((subnet.clone(), unit, at_most))
        };
        let Some((subnet, unit, at_most)) = subnets.iter().find_map(offer) else {
            let first = subnets.into_iter().next();
            return Err(first.map(|subnet| no_eni_in(ctx, zone, subnet)));
        };
        // An ENI that cannot be attached would stay unused.
        if !ctx.may(Action::Create) || !ctx.may(Action::Attach) {
            return Err(None);
        }
        let blocks = unit.blocks(shortage.ask).min(ctx.targets.per_eni()).min(at_most);
        let want = want(unit, blocks);
        ctx.subnets.asked(&subnet, want);
        let creation = EniCreation::new(shortage.card, want, subnet, groups);
        self.tokens += 1;
        let token = format!("ferrule-{:016x}-{}", self.seed, self.tokens);
        ctx.persist(Record::asked(token.clone(), creation.made()));
        self.creations.insert(token.clone(), creation);
        self.create(ctx, &token);
        Ok(())
    }

    /// Reports each obstacle to new ENIs once.
    fn report_no_placement(&mut self, ctx: &mut Ctx, no_placement: &NoPlacement) {
        if self.reported_obstacle.as_ref() == Some(no_placement) {
            return;
        }
        self.reported_obstacle = Some(no_placement.clone());
        match no_placement {
            // These facts are about to arrive.
            NoPlacement::EniConfigUnknown | NoPlacement::SubnetsUnknown => {}
            NoPlacement::EniConfigMissing { name, why } => {
                let next_step = no_placement.next_step();
                let (severity, topic) = (Severity::Error, Topic::EniConfigInvalid);
                ctx.report(severity, topic, name, why.clone(), next_step);
            }
            NoPlacement::AllForbidden => {
                let (zone, next_step) = (ctx.node.zone.clone(), no_placement.next_step());
                ctx.report(
                    Severity::Error,
                    Topic::NoSubnet,
                    zone,
                    no_placement.reason(),
                    next_step,
                );
            }
        }
    }
}

impl Ctx {
    /// The cards that have pools, lowest first.
    pub(crate) fn pool_cards(&self) -> Vec<CardIndex> {
        let in_use = |card: &CardIndex| {
            let enis = self.book.enis().filter(|eni| eni.facts.card == *card && !eni.missing);
            let kinds =
                enis.map(|eni| (eni.facts.kind.unwrap_or(EniKind::Standard), eni.facts.managed));
            is_card_in_use(*card, &kinds.collect::<Vec<_>>())
        };
        self.targets.cards().iter().copied().filter(in_use).collect()
    }
}

fn has_room(ctx: &Ctx, eni: &Eni) -> bool {
    let stuck = match &eni.readiness {
        Readiness::NotReady { since, .. } => ctx.now >= *since + READY_PATIENCE,
        Readiness::Ready => false,
    };
    eni.room(ctx.targets.per_eni()) > 0 && !stuck && eni.full_until.is_none_or(|at| at <= ctx.now)
}

fn subnet_full(ctx: &Ctx, zone: &ZoneState, subnet: SubnetId) -> Blocker {
    let until = ctx.subnets.empty_until(&subnet);
    let counted = zone.subnet(&subnet).map(|seen| seen.free_addresses);
    Blocker::SubnetFull { subnet, until, counted }
}

/// The reason why no ENI is created in the subnet for now.
fn no_eni_in(ctx: &Ctx, zone: &ZoneState, subnet: SubnetId) -> Blocker {
    let Some(Missing { fault, until }) = ctx.subnets.missing(&subnet).cloned() else {
        return subnet_full(ctx, zone, subnet);
    };
    Blocker::PlaceMissing { subnet, fault, until, config: eni_config_name(ctx) }
}

/// The name of the ENIConfig that sets the subnet of new ENIs.
fn eni_config_name(ctx: &Ctx) -> Option<String> {
    match ctx.cluster.eni_config() {
        EniConfig::Found { name, .. } if ctx.config.custom_networking => Some(name.clone()),
        EniConfig::Found { .. } | EniConfig::Missing { .. } | EniConfig::Unknown => None,
    }
}

fn want(unit: Unit, blocks: u32) -> Want {
    unit.want(u16::try_from(blocks).unwrap_or(u16::MAX))
}
