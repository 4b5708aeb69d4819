//! The request for a trunk ENI. The planner reserves a place and repeats the request until the trunk is attached.
//!
//! The VPC resource controller creates and attaches the trunk.

use crate::{Effect, EniKind, Severity, Topic, TrunkMissing, book::Eni, ctx::Ctx};
use config_model::{CardIndex, EniId, Span, Time};

/// The interval of the request.
const ASK_INTERVAL: Span = Span::seconds(60);
/// The interval of IMDS observations, which find the trunk, until it is reported as missing.
const LOOK_INTERVAL: Span = Span::seconds(5);
/// The time after which a missing trunk is reported.
const PATIENCE: Span = Span::seconds(180);

/// The state of the request.
#[derive(Debug, Default)]
pub(crate) struct TrunkRequest {
    since: Option<Time>,
    asked: Option<Time>,
    reported: bool,
}

/// The actions for a missing trunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TrunkActions {
    ask: bool,
    report: bool,
}

impl TrunkRequest {
    fn missing(&mut self, has_place: bool, now: Time) -> TrunkActions {
        let since = *self.since.get_or_insert(now);
        let due = self.asked.is_none_or(|asked| now >= asked + ASK_INTERVAL);
        let ask = has_place && due;
        if ask {
            self.asked = Some(now);
        }
        let report = !self.reported && (!has_place || now >= since + PATIENCE);
        self.reported |= report;
        TrunkActions { ask, report }
    }

    fn next(&self, now: Time) -> Option<Time> {
        let again = self.asked.map(|asked| asked + ASK_INTERVAL);
        let late = self.since.filter(|_| !self.reported).map(|since| since + PATIENCE);
        again.into_iter().chain(late).filter(|at| *at > now).min()
    }
}

impl Ctx {
    /// The places on the card that are reserved for the trunk.
    pub(crate) fn places_for_trunk(&self, card: CardIndex) -> u32 {
        u32::from(card == CardIndex(0) && self.lacks_trunk())
    }

    /// Returns whether the settings require a trunk and the node has none.
    pub(crate) fn lacks_trunk(&self) -> bool {
        let wanted = self.config.pod_enis && self.limits.trunk && self.config.provisioning;
        wanted && !self.has_trunk()
    }

    pub(crate) fn has_trunk(&self) -> bool {
        self.trunk().is_some()
    }

    pub(crate) fn trunk(&self) -> Option<&EniId> {
        let is_trunk = |eni: &&Eni| eni.facts.kind == Some(EniKind::Trunk) && !eni.missing;
        self.book.enis().find(is_trunk).map(|eni| &eni.facts.id)
    }
}

impl TrunkRequest {
    /// Requests the trunk while it is missing. `has_place`: card 0 has a place for it.
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
            let TrunkMissing { cause, next_step } = trunk_problem(has_place);
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
        (ctx.lacks_trunk() && self.reported).then(|| trunk_problem(has_place(ctx)))
    }
}

fn trunk_problem(has_place: bool) -> TrunkMissing {
    if has_place {
        TrunkMissing {
            cause: "security groups for pods are on, but no trunk ENI was attached",
            next_step: "check that the VPC resource controller runs and supports this instance type",
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
    fn a_missing_trunk_is_requested_at_once_and_then_each_minute() {
        let mut request = TrunkRequest::default();
        let asked = |request: &mut TrunkRequest, at| request.missing(true, Time(at)).ask;
        assert!(asked(&mut request, 0));
        assert!(!asked(&mut request, 59_999));
        assert!(asked(&mut request, 60_000));
        assert_eq!(request.next(Time(60_000)), Some(Time(120_000)));
    }

    #[test]
    fn an_overdue_trunk_is_reported_once() {
        let mut request = TrunkRequest::default();
        let times = [0, 179_999, 180_000, 240_000];
        let told = times.map(|at| request.missing(true, Time(at)).report);
        assert_eq!(told, [false, false, true, false]);
    }

    #[test]
    fn a_missing_place_for_the_trunk_is_reported_without_a_request() {
        let mut request = TrunkRequest::default();
        assert_eq!(request.missing(false, Time(0)), TrunkActions { ask: false, report: true });
        assert_eq!(request.missing(true, Time(5000)), TrunkActions { ask: true, report: false });
    }
}
