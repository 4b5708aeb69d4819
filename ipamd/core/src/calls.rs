//! Which calls are under way, whose are they, and what do their faults teach?

use crate::{
    Action, CloudAnswer, CloudCall, CloudFault, Core, Effect, OpId, Remedy, Severity, Topic,
    budget::Lesson, explain::Why,
};
use config_model::{EniId, Span, Time};

/// A cloud call under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    about: About,
    action: Action,
    pub(crate) started: Time,
    /// How long it had waited for its budget.
    waited: Span,
}

/// Whose call it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Making(String),
    Eni(EniId),
    Departure(EniId),
    Zone,
    Leftovers,
    Leftover(EniId),
}

/// The result of a cloud call.
pub(crate) type CloudResult = Result<CloudAnswer, CloudFault>;

impl Core {
    pub(crate) fn call(&mut self, about: About, call: CloudCall, now: Time) {
        let op = OpId(self.next_op);
        self.next_op += 1;
        let waited = self.budgets.take(call.action(), now);
        self.calls.insert(op, Call { about, action: call.action(), started: now, waited });
        self.outbox.push(Effect::Cloud { op, call });
    }

    /// Whether the action may be called now; if not, the core wakes when it may.
    pub(crate) fn may(&mut self, action: Action, now: Time) -> bool {
        let paused = self.budgets.next(action, now);
        if let Some(until) = paused {
            self.wake_by(Some(until));
            let fault = self.budgets.fault(action);
            self.whys.push(Why::Paused { action, until, fault });
        }
        paused.is_none()
    }

    pub(crate) fn cloud_done(&mut self, op: OpId, result: CloudResult, now: Time) {
        let Some(call) = self.calls.remove(&op) else { return };
        match &result {
            Ok(_) => self.budgets.succeeded(call.action, now),
            Err(fault) => self.note_fault(&call, fault, now),
        }
        match call.about.clone() {
            About::Making(token) => self.making_done(&token, call.action, result, now),
            About::Eni(eni) => self.eni_done(&eni, &call, result, now),
            About::Departure(eni) => self.departure_done(&eni, call.action, result, now),
            About::Zone => self.subnets_seen(result, call.started, now),
            About::Leftovers => self.leftovers_found(result, call.started, now),
            About::Leftover(eni) => self.leftover_deleted(&eni, result),
        }
    }

    fn note_fault(&mut self, call: &Call, fault: &CloudFault, now: Time) {
        let expected = match (call.action, fault.remedy) {
            // What is to go is gone.
            (Action::Detach | Action::Delete | Action::Describe, Remedy::Gone) => true,
            // Another place is tried at once; a place that stays full is reported by who asked.
            (
                Action::Create | Action::Assign | Action::AssignIpv6 | Action::Attach,
                Remedy::TryElsewhere,
            ) => true,
            _ => false,
        };
        if expected {
            return;
        }
        // An ENI that holds no more says nothing about the others.
        let of_one_eni = matches!(call.action, Action::Assign | Action::AssignIpv6)
            && fault.remedy == Remedy::LimitReached;
        if !of_one_eni {
            self.learn(call.action, fault, call.started, now);
        }
        let object = match &call.about {
            About::Making(token) => format!("new ENI {token}"),
            About::Eni(eni) | About::Departure(eni) | About::Leftover(eni) => eni.to_string(),
            About::Zone => self.node.zone.clone(),
            About::Leftovers => "forgotten ENIs".to_owned(),
        };
        let (severity, topic, next_step) = match fault.remedy {
            Remedy::TellOperator => (
                Severity::Error,
                Topic::CallFailed,
                format!("allow ec2:{} to the node's role, or mend what EC2 names", call.action),
            ),
            Remedy::LimitReached => (
                Severity::Warning,
                Topic::LimitReached,
                "raise the limit, or lower the pool's targets".into(),
            ),
            Remedy::RetryAfter { .. } | Remedy::TryElsewhere | Remedy::Gone | Remedy::Unknown => {
                (Severity::Warning, Topic::CallFailed, String::new())
            }
        };
        self.report(severity, topic, object, format!("{}: {fault}", call.action), next_step);
    }

    /// What a fault teaches about the action's budget.
    pub(crate) fn learn(&mut self, action: Action, fault: &CloudFault, started: Time, now: Time) {
        if let Lesson::Halved { rate_milli } = self.budgets.failed(action, fault, started, now) {
            let cause = format!("throttled: {rate_milli} calls in 1000 seconds from now on");
            self.report(Severity::Info, Topic::BudgetShrunk, action, cause, "");
        }
    }

    /// How long a call under way had waited for its budget; the daemon's histogram.
    pub fn waited(&self, op: OpId) -> Option<Span> {
        self.calls.get(&op).map(|call| call.waited)
    }
}
