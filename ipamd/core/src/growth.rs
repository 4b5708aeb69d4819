//! Where do more addresses come from? Room on attached ENIs first, then new ENIs.

mod making;
mod rhythm;
mod subnet;

pub(crate) use making::Making;
pub(crate) use rhythm::Rhythm;
pub(crate) use subnet::Subnets;

use crate::{
    Action, CloudCall, Core, EniConfig, EniKind, Record, Severity, Topic, Want,
    book::{Eni, Readiness, Task},
    budget::CALM,
    calls::About,
    classify::is_card_in_use,
    explain::Why,
    placement::{self, Nowhere, Placement},
    warm::Unit,
};
use config_model::{CardIndex, EniId, Span, SubnetId, Time};
use subnet::Missing;

/// An ENI that is not ready for so long does not count: others are asked for addresses.
pub(crate) const READY_PATIENCE: Span = Span::seconds(30);

/// What a card lacks.
#[derive(Clone, Copy, Debug)]
struct Lack {
    card: CardIndex,
    /// Addresses that the targets ask for.
    ask: u64,
    /// Those of them that somebody waits for already.
    urgent: u64,
}

impl Core {
    /// Asks for what the targets lack, in as few calls as it can, side by side.
    pub(crate) fn grow(&mut self, now: Time) {
        self.subnets.expire(now);
        self.wake_by(self.subnets.next_change());
        for card in self.pool_cards() {
            self.grow_card(card, now);
        }
    }

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

    fn grow_card(&mut self, card: CardIndex, now: Time) {
        let Some(lack) = self.lack(card, now) else {
            self.rhythm.at_rest(card);
            self.at_its_end.remove(&card);
            return;
        };
        if let Some(why) = self.may_not_grow() {
            self.whys.push(why);
            return;
        }
        let due = self.rhythm.due(card, lack.urgent > 0, now);
        let put_off = self.put_off(CALM, now).filter(|_| lack.urgent == 0);
        let due = put_off.map_or(due, |until| due.max(until));
        if !self.reached(due, now) {
            if lack.urgent == 0 {
                self.whys.push(Why::TopUp { until: due });
            }
            return;
        }
        let ahead = self.rhythm.ahead(card, self.config.cooldown, now);
        let mut foreseen = self.foreseen(card, lack, ahead, now);
        let mut planned = false;
        // Each round fills an ENI or takes a place; one more finds that nothing is left.
        for _ in 0..=2 * u32::from(self.limits.enis_on(card)) {
            let Some(lack) = self.lack(card, now) else { break };
            let ask = lack.ask + std::mem::take(&mut foreseen);
            if let Err(why) = self.ask_somewhere(Lack { ask, ..lack }, now) {
                if why.as_ref().is_some_and(Why::final_) {
                    self.at_its_end.insert(card);
                }
                self.whys.extend(why);
                break;
            }
            self.at_its_end.remove(&card);
            planned = true;
        }
        if planned {
            self.rhythm.planned(card, ahead, now);
            self.regret(card, now);
        }
    }

    /// What the card's pool lacks, what is on its way counted as if it were there.
    fn lack(&mut self, card: CardIndex, now: Time) -> Option<Lack> {
        let pool = self.pool(card, now);
        let ask = self.targets.ask(card, pool);
        let urgent = u64::try_from(-pool.available()).unwrap_or(0);
        if ask > 0 {
            return Some(Lack { card, ask, urgent });
        }
        if pool.waiting > 0 && urgent > 0 {
            self.whys.push(Why::MaxPods { max: self.targets.max_pods });
        }
        None
    }

    /// How many more to ask for because pods keep coming, or came back: what they will take is asked
    /// for in one call now instead of one each. No further ahead than a cooldown: by then what rests
    /// now is free again, and so is what is given back meanwhile.
    fn foreseen(&mut self, card: CardIndex, lack: Lack, ahead: Span, now: Time) -> u64 {
        if self.targets.unit() == Unit::Ipv6Prefix {
            return 0;
        }
        let within = |span: Span| self.rhythm.coming_within(span, now);
        // Half of what was given back too soon: more may be missed.
        let coming = within(ahead) + u64::from(self.missed(card, now).div_ceil(2));
        // As many as the kubelet runs, and beside them what rests while pods keep coming.
        let most = u64::from(self.targets.max_pods) + within(self.config.cooldown);
        let total = self.pool(card, now).total;
        coming.min(most.saturating_sub(total + lack.ask))
    }

    /// Why the pool stays as it is, whatever it lacks.
    fn may_not_grow(&self) -> Option<Why> {
        if let Some(untold) = self.untold.as_ref().filter(|_| self.config.provisioning) {
            return Some(untold.why());
        }
        if !self.may_change_ec2() {
            return Some(Why::NotOurs);
        }
        self.is_frozen().then_some(Why::Unschedulable)
    }

    /// One call for up to as many addresses; or why there is none (`None`: that was said already).
    fn ask_somewhere(&mut self, lack: Lack, now: Time) -> Result<(), Option<Why>> {
        let (mut full, mut busy) = (None, None);
        // What those will take who cannot be asked now.
        let mut later = 0;
        for id in self.enis_by_place(lack.card) {
            let Some(eni) = self.book.eni(&id) else { continue };
            if !self.has_room(eni, now) {
                let full_until = eni.full_until.filter(|until| *until > now);
                self.wake_by(full_until);
                continue;
            }
            let subnet = eni.facts.subnet.clone();
            let Some((unit, at_most)) = self.subnets.offer(&subnet, self.targets.unit()) else {
                full = Some(self.subnet_full(subnet));
                continue;
            };
            let room = eni.room(self.targets.per_eni());
            if eni.task == Task::Idle && !eni.unsure {
                return self.assign(&id, unit, room.min(at_most), lack.ask, now);
            }
            later += u64::from(room) * unit.size();
            busy = Some(Why::Busy { eni: id });
        }
        for making in self.makings.values().filter(|making| making.card() == lack.card) {
            later += making.room(self.targets.per_eni());
            if let Some(eni) = making.eni.clone() {
                busy = busy.or(Some(Why::Busy { eni }));
            }
        }
        // What nobody waits for, or what the next call to a busy ENI brings, needs no other ENI.
        if later > 0 && later >= lack.urgent {
            return Err(busy);
        }
        let max = self.max_enis(lack.card);
        if self.places_taken(lack.card) + self.places_for_trunk(lack.card) >= max {
            return Err(Some(full.or(busy).unwrap_or(Why::NoPlace { max })));
        }
        self.ask_for_an_eni(lack, now)
    }

    fn has_room(&self, eni: &Eni, now: Time) -> bool {
        let stuck = match &eni.readiness {
            Readiness::NotReady { since, .. } => now >= *since + READY_PATIENCE,
            Readiness::Ready => false,
        };
        eni.room(self.targets.per_eni()) > 0 && !stuck && eni.full_until.is_none_or(|at| at <= now)
    }

    fn subnet_full(&self, subnet: SubnetId) -> Why {
        let until = self.subnets.empty_until(&subnet);
        let counted = self.zone.subnet(&subnet).map(|seen| seen.free_addresses);
        Why::SubnetFull { subnet, until, counted }
    }

    /// Why there will be no ENI in the subnet for now.
    fn no_eni_in(&self, subnet: SubnetId) -> Why {
        let Some(Missing { fault, until }) = self.subnets.missing(&subnet).cloned() else {
            return self.subnet_full(subnet);
        };
        Why::PlaceMissing { subnet, fault, until, config: self.eni_config_name() }
    }

    /// The ENIConfig that says where ENIs go.
    fn eni_config_name(&self) -> Option<String> {
        match &self.cluster.eni_config {
            EniConfig::Found { name, .. } if self.config.custom_networking => Some(name.clone()),
            EniConfig::Found { .. } | EniConfig::Missing { .. } | EniConfig::Unknown => None,
        }
    }

    fn assign(
        &mut self,
        id: &EniId,
        unit: Unit,
        at_most: u32,
        ask: u64,
        now: Time,
    ) -> Result<(), Option<Why>> {
        let want = want(unit, unit.blocks(ask).min(at_most));
        let call = CloudCall::Assign { eni: id.clone(), want };
        if !self.may(call.action(), now) {
            return Err(None);
        }
        let Some(eni) = self.book.eni_mut(id) else { return Err(None) };
        eni.coming = Some(want);
        eni.task = Task::Assign;
        let subnet = eni.facts.subnet.clone();
        self.subnets.asked(&subnet, want);
        self.call(About::Eni(id.clone()), call, now);
        Ok(())
    }

    fn ask_for_an_eni(&mut self, lack: Lack, now: Time) -> Result<(), Option<Why>> {
        if let Some(until) = self.no_create_until.filter(|until| *until > now) {
            self.wake_by(Some(until));
            return Err(Some(Why::AttachesStick { until }));
        }
        if !self.knows_zone(now) {
            return Err(Some(Why::Nowhere(Nowhere::SubnetsUnknown)));
        }
        let eni_config = &self.cluster.eni_config;
        let placed = placement::place(&self.config, &self.node, eni_config, &self.zone.zone);
        let Placement { subnets, groups } = placed.map_err(|nowhere| {
            self.report_nowhere(&nowhere);
            Some(Why::Nowhere(nowhere))
        })?;
        self.nowhere_told = None;
        let offer = |subnet: &SubnetId| {
            if self.subnets.missing(subnet).is_some() {
                return None;
            }
            let (unit, at_most) = self.subnets.offer(subnet, self.targets.unit())?;
            Some((subnet.clone(), unit, at_most))
        };
        let Some((subnet, unit, at_most)) = subnets.iter().find_map(offer) else {
            let first = subnets.into_iter().next();
            return Err(first.map(|subnet| self.no_eni_in(subnet)));
        };
        // An ENI that could not be attached would only lie about.
        if !self.may(Action::Create, now) || !self.may(Action::Attach, now) {
            return Err(None);
        }
        let blocks = unit.blocks(lack.ask).min(self.targets.per_eni()).min(at_most);
        let want = want(unit, blocks);
        self.subnets.asked(&subnet, want);
        let making = Making::new(lack.card, want, subnet, groups);
        self.tokens += 1;
        let token = format!("ferrule-{:016x}-{}", self.seed, self.tokens);
        self.persist(Record::asked(token.clone(), making.made()));
        self.makings.insert(token.clone(), making);
        self.create(&token, now);
        Ok(())
    }

    /// Says once why no ENI can be made.
    fn report_nowhere(&mut self, nowhere: &Nowhere) {
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
                self.report(severity, topic, name, why.clone(), next_step);
            }
            Nowhere::AllForbidden => {
                let (zone, next_step) = (self.node.zone.clone(), nowhere.next_step());
                self.report(Severity::Error, Topic::NoSubnet, zone, nowhere.reason(), next_step);
            }
        }
    }
}

fn want(unit: Unit, blocks: u32) -> Want {
    unit.want(u16::try_from(blocks).unwrap_or(u16::MAX))
}
