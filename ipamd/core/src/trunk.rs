//! Does the node want a trunk ENI? It keeps a place for it, and asks until it is there.
//!
//! The resource controller makes and attaches the trunk; we only say that we want one.

use crate::{Effect, EniKind, Severity, Topic, TrunkMissing, book::Eni, ctx::Ctx};
use config_model::{CardIndex, Span, Time};

/// The feature is asked for again so often.
const ASK_INTERVAL: Span = Span::seconds(60);
/// IMDS is asked so often at first: the trunk is found by a look.
const LOOK_INTERVAL: Span = Span::seconds(5);
/// A trunk that did not come after so long is reported.
const PATIENCE: Span = Span::seconds(180);

/// How long we have been asking.
#[derive(Debug, Default)]
pub(crate) struct TrunkWish {
    since: Option<Time>,
    asked: Option<Time>,
    reported: bool,
}

/// What to do about a trunk that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asking {
    ask: bool,
    report: bool,
}

impl TrunkWish {
    fn missing(&mut self, has_place: bool, now: Time) -> Asking {
        let since = *self.since.get_or_insert(now);
        let due = self.asked.is_none_or(|asked| now >= asked + ASK_INTERVAL);
        let ask = has_place && due;
        if ask {
            self.asked = Some(now);
        }
        let report = !self.reported && (!has_place || now >= since + PATIENCE);
        self.reported |= report;
        Asking { ask, report }
    }

    fn next(&self, now: Time) -> Option<Time> {
        let again = self.asked.map(|asked| asked + ASK_INTERVAL);
        let late = self.since.filter(|_| !self.reported).map(|since| since + PATIENCE);
        again.into_iter().chain(late).filter(|at| *at > now).min()
    }
}

impl Ctx {
    /// Places on the card that are kept free for a trunk to come.
    pub(crate) fn places_for_trunk(&self, card: CardIndex) -> u32 {
        u32::from(card == CardIndex(0) && self.lacks_trunk())
    }

    /// Whether the node wants a trunk and has none.
    pub(crate) fn lacks_trunk(&self) -> bool {
        let wanted = self.config.pod_enis && self.limits.trunk && self.config.provisioning;
        wanted && !self.has_trunk()
    }

    pub(crate) fn has_trunk(&self) -> bool {
        let is_trunk = |eni: &Eni| eni.facts.kind == Some(EniKind::Trunk) && !eni.missing;
        self.book.enis().any(is_trunk)
    }
}

impl TrunkWish {
    /// Asks for the trunk while it is missing. `has_place`: card 0 has a place for it.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx, has_place: impl FnOnce(&Ctx) -> bool) {
        if !ctx.lacks_trunk() {
            *self = Self::default();
            return;
        }
        let has_place = has_place(ctx);
        let asking = self.missing(has_place, ctx.now);
        if asking.ask {
            ctx.push(Effect::AskForTrunk);
        }
        if asking.report {
            let TrunkMissing { cause, next_step } = why_no_trunk(has_place);
            ctx.report(Severity::Warning, Topic::TrunkMissing, "trunk ENI", cause, next_step);
        }
        if !self.reported {
            ctx.schedule.want_imds(ctx.now + LOOK_INTERVAL);
        }
        ctx.wake_by(self.next(ctx.now));
    }

    /// The reason why the trunk is missing; `None` before it was reported.
    pub(crate) fn reason(
        &self,
        ctx: &Ctx,
        has_place: impl FnOnce(&Ctx) -> bool,
    ) -> Option<TrunkMissing> {
        (ctx.lacks_trunk() && self.reported).then(|| why_no_trunk(has_place(ctx)))
    }
}

fn why_no_trunk(has_place: bool) -> TrunkMissing {
    if has_place {
        TrunkMissing {
            cause: "security groups for pods are on, but no trunk ENI was attached",
            next_step: "see that the VPC resource controller runs and knows this instance type",
        }
    } else {
        TrunkMissing {
            cause: "security groups for pods are on, but no place is left for a trunk ENI",
            next_step: "replace the node, or lower the pool's targets until an ENI is freed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_trunk_is_asked_for_at_once_and_then_each_minute() {
        let mut wish = TrunkWish::default();
        let asked = |wish: &mut TrunkWish, at| wish.missing(true, Time(at)).ask;
        assert!(asked(&mut wish, 0));
        assert!(!asked(&mut wish, 59_999));
        assert!(asked(&mut wish, 60_000));
        assert_eq!(wish.next(Time(60_000)), Some(Time(120_000)));
    }

    #[test]
    fn a_trunk_that_does_not_come_is_reported_once() {
        let mut wish = TrunkWish::default();
        let times = [0, 179_999, 180_000, 240_000];
        let told = times.map(|at| wish.missing(true, Time(at)).report);
        assert_eq!(told, [false, false, true, false]);
    }

    #[test]
    fn without_a_place_nobody_is_asked_and_it_is_reported_at_once() {
        let mut wish = TrunkWish::default();
        assert_eq!(wish.missing(false, Time(0)), Asking { ask: false, report: true });
        assert_eq!(wish.missing(true, Time(5000)), Asking { ask: true, report: false });
    }
}
