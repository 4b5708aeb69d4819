//! Where do more addresses come from? Room on attached ENIs first, then new ENIs.

mod making;
mod rhythm;

use making::Making;
use rhythm::Rhythm;

use crate::{
    Action, CloudCall, EniConfig, EniKind, Record, Severity, Topic, Want,
    book::{Eni, Readiness, Task},
    budget::CALM,
    calls::About,
    checkpoint::Made,
    classify::is_card_in_use,
    ctx::Ctx,
    explain::Why,
    placement::{self, Nowhere, Placement},
    places::OccupiedPlaces,
    shrink::Shrink,
    subnets::Missing,
    upkeep::Upkeep,
    warm::Unit,
    zone::ZoneWatch,
};
use config_model::{CardIndex, EniId, Span, SubnetId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// An ENI that is not ready for so long does not count: others are asked for addresses.
pub(crate) const READY_PATIENCE: Span = Span::seconds(30);

/// The creation of ENIs and the assignment of blocks.
#[derive(Debug)]
pub(crate) struct Growth {
    seed: u64,
    /// ENIs on their way in, by client token.
    makings: BTreeMap<String, Making>,
    /// How many tokens this process has drawn.
    tokens: u64,
    rhythm: Rhythm,
    /// Why no ENI can be made, as it was reported last.
    nowhere_told: Option<Nowhere>,
    /// Cards that lack addresses and cannot get any, as the last plan found.
    at_its_end: BTreeSet<CardIndex>,
}

/// What a card lacks.
#[derive(Clone, Copy, Debug)]
struct Lack {
    card: CardIndex,
    /// Addresses that the targets ask for.
    ask: u64,
    /// Those of them that somebody waits for already.
    urgent: u64,
}

impl Growth {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            makings: BTreeMap::new(),
            tokens: 0,
            rhythm: Rhythm::default(),
            nowhere_told: None,
            at_its_end: BTreeSet::new(),
        }
    }

    /// Goes on with an ENI that an earlier process asked for.
    pub(crate) fn resume(&mut self, token: String, made: Made) {
        self.makings.insert(token, Making::resumed(made));
    }

    /// A pod has asked for an address.
    pub(crate) fn pod_arrived(&mut self, now: Time) {
        self.rhythm.arrived(now);
    }

    /// Whether some card's plan is due in a moment.
    pub(crate) fn gathers(&self, now: Time) -> bool {
        self.rhythm.gathers(now)
    }

    /// Whether no ENI is on its way in.
    pub(crate) fn is_idle(&self) -> bool {
        self.makings.is_empty()
    }

    /// Whether the ENI is on its way in.
    pub(crate) fn is_making(&self, id: &EniId) -> bool {
        self.making_of(id).is_some()
    }

    /// The token of an ENI that is on its way in.
    pub(crate) fn making_of(&self, id: &EniId) -> Option<&str> {
        let made = |(_, making): &(&String, &Making)| making.eni.as_ref() == Some(id);
        self.makings.iter().find(made).map(|(token, _)| token.as_str())
    }

    /// The addresses that ENIs on their way in will bring to the card.
    pub(crate) fn coming(&self, card: CardIndex) -> u64 {
        let makings = self.makings.values().filter(|making| making.card() == card);
        makings.map(Making::coming).sum()
    }

    /// Whether another card than this one lacks addresses and cannot get any.
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
        let makings = self.makings.values().filter(|making| making.card() == card).count();
        occupied.attached(ctx, card) + u32::try_from(makings).unwrap_or(u32::MAX)
    }

    /// Asks for what the targets lack, in as few calls as it can, side by side.
    pub(crate) fn grow(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneWatch,
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
        zone: &mut ZoneWatch,
        shrink: &mut Shrink,
        upkeep: &Upkeep,
        occupied: &OccupiedPlaces,
        card: CardIndex,
    ) {
        let Some(lack) = self.lack(ctx, card) else {
            self.rhythm.at_rest(card);
            self.at_its_end.remove(&card);
            return;
        };
        if let Some(why) = self.may_not_grow(ctx) {
            ctx.because(why);
            return;
        }
        let due = self.rhythm.due(card, lack.urgent > 0, ctx.now);
        let put_off = ctx.put_off(CALM).filter(|_| lack.urgent == 0);
        let due = put_off.map_or(due, |until| due.max(until));
        if !ctx.reached(due) {
            if lack.urgent == 0 {
                ctx.because(Why::TopUp { until: due });
            }
            return;
        }
        let ahead = self.rhythm.ahead(card, ctx.config.cooldown, ctx.now);
        let mut foreseen = self.foreseen(ctx, shrink, card, lack, ahead);
        let mut planned = false;
        // Each round fills an ENI or takes a place; one more finds that nothing is left.
        for _ in 0..=2 * u32::from(ctx.limits.enis_on(card)) {
            let Some(lack) = self.lack(ctx, card) else { break };
            let ask = lack.ask + std::mem::take(&mut foreseen);
            if let Err(why) = self.ask_somewhere(ctx, zone, upkeep, occupied, Lack { ask, ..lack })
            {
                if why.as_ref().is_some_and(Why::final_) {
                    self.at_its_end.insert(card);
                }
                if let Some(why) = why {
                    ctx.because(why);
                }
                break;
            }
            self.at_its_end.remove(&card);
            planned = true;
        }
        if planned {
            self.rhythm.planned(card, ahead, ctx.now);
            shrink.regret(card, ctx.now);
        }
    }

    /// What the card's pool lacks, what is on its way counted as if it were there.
    fn lack(&mut self, ctx: &mut Ctx, card: CardIndex) -> Option<Lack> {
        let pool = self.pool(ctx, card);
        let ask = ctx.targets.ask(card, pool);
        let urgent = u64::try_from(-pool.available()).unwrap_or(0);
        if ask > 0 {
            return Some(Lack { card, ask, urgent });
        }
        if pool.waiting > 0 && urgent > 0 {
            ctx.because(Why::MaxPods { max: ctx.targets.max_pods });
        }
        None
    }

    /// How many more to ask for because pods keep coming, or came back: what they will take is asked
    /// for in one call now instead of one each. No further ahead than a cooldown: by then what rests
    /// now is free again, and so is what is given back meanwhile.
    fn foreseen(
        &mut self,
        ctx: &mut Ctx,
        shrink: &Shrink,
        card: CardIndex,
        lack: Lack,
        ahead: Span,
    ) -> u64 {
        if ctx.targets.unit() == Unit::Ipv6Prefix {
            return 0;
        }
        let within = |span: Span| self.rhythm.coming_within(span, ctx.now);
        // Half of what was given back too soon: more may be missed.
        let coming = within(ahead) + u64::from(shrink.missed(ctx, card).div_ceil(2));
        // As many as the kubelet runs, and beside them what rests while pods keep coming.
        let most = u64::from(ctx.targets.max_pods) + within(ctx.config.cooldown);
        let total = self.pool(ctx, card).total;
        coming.min(most.saturating_sub(total + lack.ask))
    }

    /// Why the pool stays as it is, whatever it lacks.
    fn may_not_grow(&self, ctx: &Ctx) -> Option<Why> {
        if let Some(untold) = ctx.limits_unknown.as_ref().filter(|_| ctx.config.provisioning) {
            return Some(untold.why());
        }
        if !ctx.may_change_ec2() {
            return Some(Why::NotOurs);
        }
        ctx.is_frozen().then_some(Why::Unschedulable)
    }

    /// One call for up to as many addresses; or why there is none (`None`: that was said already).
    fn ask_somewhere(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneWatch,
        upkeep: &Upkeep,
        occupied: &OccupiedPlaces,
        lack: Lack,
    ) -> Result<(), Option<Why>> {
        let (mut full, mut busy) = (None, None);
        // What those will take who cannot be asked now.
        let mut later = 0;
        for id in ctx.enis_by_place(lack.card) {
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
                return self.assign(ctx, &id, unit, room.min(at_most), lack.ask);
            }
            later += u64::from(room) * unit.size();
            busy = Some(Why::Busy { eni: id });
        }
        for making in self.makings.values().filter(|making| making.card() == lack.card) {
            later += making.room(ctx.targets.per_eni());
            if let Some(eni) = making.eni.clone() {
                busy = busy.or(Some(Why::Busy { eni }));
            }
        }
        // What nobody waits for, or what the next call to a busy ENI brings, needs no other ENI.
        if later > 0 && later >= lack.urgent {
            return Err(busy);
        }
        let max = ctx.max_enis(lack.card);
        if self.places_taken(ctx, occupied, lack.card) + ctx.places_for_trunk(lack.card) >= max {
            return Err(Some(full.or(busy).unwrap_or(Why::NoPlace { max })));
        }
        self.ask_for_an_eni(ctx, zone, upkeep, lack)
    }

    fn assign(
        &mut self,
        ctx: &mut Ctx,
        id: &EniId,
        unit: Unit,
        at_most: u32,
        ask: u64,
    ) -> Result<(), Option<Why>> {
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
        ctx.call(About::Eni(id.clone()), call);
        Ok(())
    }

    fn ask_for_an_eni(
        &mut self,
        ctx: &mut Ctx,
        zone: &mut ZoneWatch,
        upkeep: &Upkeep,
        lack: Lack,
    ) -> Result<(), Option<Why>> {
        if let Some(until) = upkeep.create_paused_until(ctx.now) {
            ctx.wake_by(Some(until));
            return Err(Some(Why::AttachesStick { until }));
        }
        if !zone.knows_zone(ctx) {
            return Err(Some(Why::Nowhere(Nowhere::SubnetsUnknown)));
        }
        let eni_config = ctx.cluster.eni_config();
        let placed = placement::place(&ctx.config, &ctx.node, eni_config, zone.subnets());
        let Placement { subnets, groups } = placed.map_err(|nowhere| {
            self.report_nowhere(ctx, &nowhere);
            Some(Why::Nowhere(nowhere))
        })?;
        self.nowhere_told = None;
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
        // An ENI that could not be attached would only lie about.
        if !ctx.may(Action::Create) || !ctx.may(Action::Attach) {
            return Err(None);
        }
        let blocks = unit.blocks(lack.ask).min(ctx.targets.per_eni()).min(at_most);
        let want = want(unit, blocks);
        ctx.subnets.asked(&subnet, want);
        let making = Making::new(lack.card, want, subnet, groups);
        self.tokens += 1;
        let token = format!("ferrule-{:016x}-{}", self.seed, self.tokens);
        ctx.persist(Record::asked(token.clone(), making.made()));
        self.makings.insert(token.clone(), making);
        self.create(ctx, &token);
        Ok(())
    }

    /// Says once why no ENI can be made.
    fn report_nowhere(&mut self, ctx: &mut Ctx, nowhere: &Nowhere) {
        if self.nowhere_told.as_ref() == Some(nowhere) {
            return;
        }
        self.nowhere_told = Some(nowhere.clone());
        match nowhere {
            // Facts that are on their way.
            Nowhere::EniConfigUnknown | Nowhere::SubnetsUnknown => {}
            Nowhere::EniConfigMissing { name, why } => {
                let next_step = nowhere.next_step();
                let (severity, topic) = (Severity::Error, Topic::EniConfigInvalid);
                ctx.report(severity, topic, name, why.clone(), next_step);
            }
            Nowhere::AllForbidden => {
                let (zone, next_step) = (ctx.node.zone.clone(), nowhere.next_step());
                ctx.report(Severity::Error, Topic::NoSubnet, zone, nowhere.reason(), next_step);
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

fn subnet_full(ctx: &Ctx, zone: &ZoneWatch, subnet: SubnetId) -> Why {
    let until = ctx.subnets.empty_until(&subnet);
    let counted = zone.subnet(&subnet).map(|seen| seen.free_addresses);
    Why::SubnetFull { subnet, until, counted }
}

/// Why there will be no ENI in the subnet for now.
fn no_eni_in(ctx: &Ctx, zone: &ZoneWatch, subnet: SubnetId) -> Why {
    let Some(Missing { fault, until }) = ctx.subnets.missing(&subnet).cloned() else {
        return subnet_full(ctx, zone, subnet);
    };
    Why::PlaceMissing { subnet, fault, until, config: eni_config_name(ctx) }
}

/// The ENIConfig that says where ENIs go.
fn eni_config_name(ctx: &Ctx) -> Option<String> {
    match ctx.cluster.eni_config() {
        EniConfig::Found { name, .. } if ctx.config.custom_networking => Some(name.clone()),
        EniConfig::Found { .. } | EniConfig::Missing { .. } | EniConfig::Unknown => None,
    }
}

fn want(unit: Unit, blocks: u32) -> Want {
    unit.want(u16::try_from(blocks).unwrap_or(u16::MAX))
}
