//! Where do more addresses come from? Room on attached ENIs first, then new ENIs.

mod making;
mod subnet;

pub(crate) use making::Making;
pub(crate) use subnet::Subnets;

use crate::{
    Action, CloudCall, Core, Record,
    book::{Eni, Readiness, Task},
    core::About,
    explain::Why,
};
use config_model::{CardIndex, EniId, Span, Time};

/// An ENI that is not ready for so long does not count: others are asked for addresses.
pub(crate) const READY_PATIENCE: Span = Span::seconds(30);

impl Core {
    /// Asks for what the targets lack, in as few calls as it can, side by side.
    pub(crate) fn grow(&mut self, now: Time) {
        self.subnets.expire(now);
        self.wake_by(self.subnets.next_change());
        for card in self.targets.cards().to_vec() {
            self.grow_card(card, now);
        }
    }

    fn grow_card(&mut self, card: CardIndex, now: Time) {
        // Each round fills an ENI or takes a place; one more finds that nothing is left.
        for _ in 0..=2 * u32::from(self.limits.enis_on(card)) {
            let pool = self.pool(card, now);
            let ask = self.targets.ask(card, pool);
            if ask == 0 {
                if pool.waiting > 0 && pool.available() < 0 {
                    self.whys.push(Why::MaxPods { max: self.targets.max_pods });
                }
                return;
            }
            if let Err(why) = self.ask_somewhere(card, ask, now) {
                self.whys.extend(why);
                return;
            }
        }
    }

    /// One call for up to `ask` addresses; or why there is none (`None`: that was said already).
    fn ask_somewhere(&mut self, card: CardIndex, ask: u64, now: Time) -> Result<(), Option<Why>> {
        let mut blocked = None;
        for id in self.enis_by_place(card) {
            let Some(eni) = self.book.eni(&id) else { continue };
            if !self.has_room(eni, now) {
                let full_until = eni.full_until.filter(|until| *until > now);
                self.wake_by(full_until);
                continue;
            }
            if let Some(until) = self.subnets.blocked(&eni.facts.subnet) {
                blocked = Some(Why::SubnetFull { subnet: eni.facts.subnet.clone(), until });
                continue;
            }
            return self.assign(&id, ask, now);
        }
        let max = self.max_enis(card);
        if self.places_taken(card) >= max {
            return Err(Some(blocked.unwrap_or(Why::NoPlace { max })));
        }
        self.ask_for_an_eni(card, ask, now)
    }

    fn has_room(&self, eni: &Eni, now: Time) -> bool {
        let stuck = match &eni.readiness {
            Readiness::NotReady { since, .. } => now >= *since + READY_PATIENCE,
            Readiness::Ready => false,
        };
        eni.room(self.targets.per_eni()) > 0 && !stuck && eni.full_until.is_none_or(|at| at <= now)
    }

    fn assign(&mut self, id: &EniId, ask: u64, now: Time) -> Result<(), Option<Why>> {
        let (unit, per_eni) = (self.targets.unit(), self.targets.per_eni());
        let Some(eni) = self.book.eni(id) else { return Err(None) };
        if eni.task != Task::Idle || eni.unsure {
            return Err(Some(Why::Busy { eni: id.clone() }));
        }
        let room = eni.room(per_eni);
        let at_most = self.subnets.ask_at_most(&eni.facts.subnet);
        let blocks = unit.blocks(ask).min(room).min(at_most);
        let want = unit.want(u16::try_from(blocks).unwrap_or(u16::MAX));
        let call = CloudCall::Assign { eni: id.clone(), want };
        if !self.may(call.action(), now) {
            return Err(None);
        }
        let Some(eni) = self.book.eni_mut(id) else { return Err(None) };
        eni.coming = Some(want);
        eni.task = Task::Assign;
        self.call(About::Eni(id.clone()), call, now);
        Ok(())
    }

    fn ask_for_an_eni(&mut self, card: CardIndex, ask: u64, now: Time) -> Result<(), Option<Why>> {
        let subnet = self.node.subnet.clone();
        if let Some(until) = self.subnets.blocked(&subnet) {
            return Err(Some(Why::SubnetFull { subnet, until }));
        }
        if let Some(until) = self.no_create_until.filter(|until| *until > now) {
            self.wake_by(Some(until));
            return Err(Some(Why::AttachesStick { until }));
        }
        // An ENI that could not be attached would only lie about.
        if !self.may(Action::Create, now) || !self.may(Action::Attach, now) {
            return Err(None);
        }
        let unit = self.targets.unit();
        let at_most = self.targets.per_eni().min(self.subnets.ask_at_most(&subnet));
        let blocks = unit.blocks(ask).min(at_most);
        let making = Making::new(card, unit.want(u16::try_from(blocks).unwrap_or(u16::MAX)));
        self.tokens += 1;
        let token = format!("ferrule-{:016x}-{}", self.seed, self.tokens);
        self.persist(Record::asked(token.clone(), making.made()));
        self.makings.insert(token.clone(), making);
        self.create(&token, now);
        Ok(())
    }
}
