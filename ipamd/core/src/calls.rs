//! The cloud calls under way and the effect of their faults.

use crate::{
    Action, CloudAnswer, CloudCall, CloudFault, Core, Effect, OpId, Remedy, Severity, Topic,
    book::Task, budget::BudgetChange, ctx::Ctx, explain::Blocker, upkeep,
};
use config_model::{EniId, Span, Time};
use ipnet::IpNet;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Calls {
    open: BTreeMap<OpId, Call>,
    next: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    subject: CallSubject,
    action: Action,
    started: Time,
    /// The time for which it waited for its budget.
    waited: Span,
}

impl Calls {
    fn start(&mut self, call: Call) -> OpId {
        let op = OpId(self.next);
        self.next += 1;
        self.open.insert(op, call);
        op
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }
}

/// The object of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallSubject {
    Creation(String),
    Eni(EniId),
    Removal(EniId),
    Zone,
    /// The branch ENIs of this trunk.
    Branches(EniId),
    Leftovers,
    Leftover(EniId),
}

pub(crate) type CloudResult = Result<CloudAnswer, CloudFault>;

impl Ctx {
    pub(crate) fn call(&mut self, subject: CallSubject, call: CloudCall) {
        let (action, started) = (call.action(), self.now);
        let waited = self.budgets.take(action, started);
        let op = self.calls.start(Call { subject, action, started, waited });
        self.push(Effect::Cloud { op, call });
    }

    /// Returns whether the budget allows the action now. If not, the core wakes when it does.
    pub(crate) fn may(&mut self, action: Action) -> bool {
        let paused = self.budgets.next(action, self.now);
        if let Some(until) = paused {
            self.wake_by(Some(until));
            let fault = self.budgets.fault(action);
            self.add_blocker(Blocker::Paused { action, until, fault });
        }
        paused.is_none()
    }

    /// Starts a call for an ENI of the book, as its only one, if the budget allows.
    pub(crate) fn call_for_eni(&mut self, id: &EniId, task: Task, call: CloudCall) {
        if !self.may(call.action()) {
            return;
        }
        if let Some(eni) = self.book.eni_mut(id) {
            eni.task = task;
            self.call(CallSubject::Eni(id.clone()), call);
        }
    }

    pub(crate) fn unassign(&mut self, id: &EniId, blocks: Vec<IpNet>) {
        let call = CloudCall::Unassign { eni: id.clone(), blocks };
        self.call_for_eni(id, Task::Unassign, call);
    }

    fn note_fault(&mut self, call: &Call, fault: &CloudFault) {
        let expected = match (call.action, fault.remedy) {
            // The object to remove is gone already.
            (Action::Detach | Action::Delete | Action::Describe, Remedy::Gone) => true,
            // Another place is tried at once. A place that stays full is reported elsewhere.
            (
                Action::Create | Action::Assign | Action::AssignIpv6 | Action::Attach,
                Remedy::TryElsewhere,
            ) => true,
            _ => false,
        };
        if expected {
            return;
        }
        // The limit of one ENI does not affect the others.
        let of_one_eni = matches!(call.action, Action::Assign | Action::AssignIpv6)
            && fault.remedy == Remedy::LimitReached;
        if !of_one_eni {
            self.learn(call.action, fault, call.started);
        }
        let object = match &call.subject {
            CallSubject::Creation(token) => format!("new ENI {token}"),
            CallSubject::Eni(eni) | CallSubject::Removal(eni) | CallSubject::Leftover(eni) => {
                eni.to_string()
            }
            CallSubject::Zone => self.node.zone.clone(),
            CallSubject::Branches(trunk) => format!("branch ENIs of {trunk}"),
            CallSubject::Leftovers => "forgotten ENIs".to_owned(),
        };
        let (severity, topic, next_step) = match fault.remedy {
            Remedy::NotifyOperator => (
                Severity::Error,
                Topic::CallFailed,
                format!(
                    "allow ec2:{} to the node's role, or fix the cause that EC2 names",
                    call.action
                ),
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

    /// Adapts the action's budget to a fault.
    pub(crate) fn learn(&mut self, action: Action, fault: &CloudFault, started: Time) {
        if let BudgetChange::Halved { rate_milli } =
            self.budgets.failed(action, fault, started, self.now)
        {
            let cause = format!("throttled: {rate_milli} calls in 1000 seconds from now on");
            self.report(Severity::Info, Topic::BudgetShrunk, action, cause, "");
        }
    }
}

impl Core {
    pub(crate) fn cloud_done(&mut self, op: OpId, result: CloudResult) {
        let Some(call) = self.ctx.calls.open.remove(&op) else { return };
        let Call { subject, action, started, .. } = call.clone();
        match &result {
            Ok(_) => self.ctx.budgets.succeeded(action, self.ctx.now),
            Err(fault) => self.ctx.note_fault(&call, fault),
        }
        let ctx = &mut self.ctx;
        match subject {
            CallSubject::Creation(token) => {
                self.growth.done(ctx, &mut self.witnesses, &self.zone, &token, action, result);
            }
            CallSubject::Eni(eni) => upkeep::done(ctx, &mut self.witnesses, &eni, started, result),
            CallSubject::Removal(eni) => self.shrink.done(ctx, &eni, action, result),
            CallSubject::Zone => self.zone.subnets_seen(ctx, result, started),
            CallSubject::Branches(trunk) => self.branches_seen(&trunk, result),
            CallSubject::Leftovers => {
                let (growth, shrink) = (&self.growth, &self.shrink);
                let is_known = |eni: &EniId| growth.is_creating(eni) || shrink.is_leaving(eni);
                self.leaks.found(ctx, result, started, is_known);
            }
            CallSubject::Leftover(eni) => self.leaks.deleted(ctx, &eni, result),
        }
    }

    /// The time for which a call under way waited for its budget.
    pub fn waited(&self, op: OpId) -> Option<Span> {
        self.ctx.calls.open.get(&op).map(|call| call.waited)
    }
}
