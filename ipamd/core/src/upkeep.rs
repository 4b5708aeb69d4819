//! What does an attached ENI need? Its link, its place in the instance's end, certainty.

mod chores;

use crate::{
    CloudAnswer, CloudCall, CloudFault, Core, Record, Remedy, SeenEni, Severity, Topic,
    book::{Block, Readiness, Return, Stand, Task, amount, is_prefix},
    calls::{About, Call, CloudResult},
    explain::Why,
    growth::READY_PATIENCE,
};
use config_model::{EniId, Span, Time};
use ipnet::IpNet;

/// An ENI of ours that never gets ready is given up after so long.
const ATTACH_GIVE_UP: Span = Span::seconds(180);
/// The pause before another ENI is made then; it doubles each time.
const STUCK_PAUSE: Span = Span::seconds(60);
/// It doubles up to this.
const LONGEST_STUCK_PAUSE: Span = Span::seconds(1800);
/// How long an ENI that EC2 calls full is not asked for more, whatever we counted.
const FULL_PAUSE: Span = Span::seconds(120);

impl Core {
    pub(crate) fn eni_ready(&mut self, id: &EniId) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        if eni.readiness != Readiness::Ready {
            eni.readiness = Readiness::Ready;
            eni.ever_ready = true;
            if eni.attached_here {
                self.stuck_attaches = 0;
                self.no_create_until = None;
            }
        }
    }

    pub(crate) fn eni_not_ready(&mut self, id: &EniId, why: String, now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        match &mut eni.readiness {
            Readiness::NotReady { why: known, .. } => *known = Some(why),
            Readiness::Ready => {
                eni.readiness =
                    Readiness::NotReady { since: now, why: Some(why.clone()), reported: true };
                let next_step = "look at the link with this ENI's MAC address";
                self.report(Severity::Warning, Topic::EniNotReady, id, why, next_step);
            }
        }
    }

    /// Gives each ENI the one call that it needs most.
    pub(crate) fn tend_enis(&mut self, now: Time) {
        let needy = self.book.enis().filter(|eni| eni.needs_tending());
        let ids: Vec<EniId> = needy.map(|eni| eni.facts.id.clone()).collect();
        for id in ids {
            self.forget_if_missing_and_empty(&id, now);
            self.judge_attach(&id, now);
            if self.may_change_ec2() {
                self.tend(&id, now);
            }
        }
    }

    fn tend(&mut self, id: &EniId, now: Time) {
        let Some(eni) = self.book.eni(id) else { return };
        if !eni.facts.managed || eni.missing || eni.task != Task::Idle {
            return;
        }
        let leaving = |prefixes: bool| -> Vec<IpNet> {
            let of_kind =
                |(net, block): &(IpNet, &Block)| block.leaving() && is_prefix(*net) == prefixes;
            eni.blocks().filter(of_kind).map(|(net, _)| net).collect()
        };
        // A call takes blocks of one kind.
        let leaving = [leaving(true), leaving(false)].into_iter().find(|nets| !nets.is_empty());
        if eni.unsure {
            let call = CloudCall::DescribeEni { eni: id.clone() };
            self.call_for_eni(id, Task::Describe, call, now);
        } else if let Some(leaving) = leaving {
            self.unassign(id, leaving, now);
        }
    }

    pub(crate) fn unassign(&mut self, id: &EniId, blocks: Vec<IpNet>, now: Time) {
        let call = CloudCall::Unassign { eni: id.clone(), blocks };
        self.call_for_eni(id, Task::Unassign, call, now);
    }

    pub(super) fn call_for_eni(&mut self, id: &EniId, task: Task, call: CloudCall, now: Time) {
        if !self.may(call.action(), now) {
            return;
        }
        if let Some(eni) = self.book.eni_mut(id) {
            eni.task = task;
            self.call(About::Eni(id.clone()), call, now);
        }
    }

    /// An ENI that two witnesses lack goes when its last pod has gone.
    fn forget_if_missing_and_empty(&mut self, id: &EniId, now: Time) {
        let empty = |eni: &crate::book::Eni| eni.missing && eni.held == 0 && eni.cooling == 0;
        if self.book.eni(id).is_some_and(empty) {
            self.forget_eni(id, now);
        }
    }

    /// Takes out an ENI that is gone. A call for it may be under way: its answer finds nobody.
    pub(crate) fn forget_eni(&mut self, id: &EniId, now: Time) {
        if let Some(eni) = self.book.remove_eni(id)
            && let Some(want) = eni.coming
        {
            self.subnets.not_answered(&eni.facts.subnet, want);
        }
        self.watch.eni_gone(id.clone(), now);
        self.node_changed();
    }

    fn judge_attach(&mut self, id: &EniId, now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        if !eni.facts.managed || eni.missing || eni.ever_ready {
            return;
        }
        let Readiness::NotReady { since, why, reported } = &mut eni.readiness else { return };
        let (since, reported_before) = (*since, *reported);
        let cause = why.clone().unwrap_or_else(|| "its link did not come".to_owned());
        let late = now >= since + READY_PATIENCE;
        *reported |= late;
        let (attached_here, unused) = (eni.attached_here, eni.held == 0 && eni.cooling == 0);
        let idle = eni.task == Task::Idle;
        self.whys.push(Why::NotReady { eni: id.clone(), why: cause.clone() });
        if late && !reported_before {
            let next_step = "see the ENI's attachment in EC2 and the node's kernel log";
            self.report(Severity::Warning, Topic::AttachStuck, id, cause.clone(), next_step);
        }
        if !self.reached(since + READY_PATIENCE, now) || !attached_here || !unused {
            return;
        }
        if self.reached(since + ATTACH_GIVE_UP, now) && idle && self.may_change_ec2() {
            let doubled = STUCK_PAUSE.0 << self.stuck_attaches.min(10);
            let pause = self.budgets.jittered(Span(doubled.min(LONGEST_STUCK_PAUSE.0)));
            self.no_create_until = Some(now + pause);
            self.stuck_attaches += 1;
            let cause = format!("given up: {cause}");
            self.report(Severity::Error, Topic::AttachStuck, id, cause, "");
            self.depart(id, now);
        }
    }

    pub(crate) fn eni_done(&mut self, id: &EniId, call: &Call, result: CloudResult, now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        let task = std::mem::replace(&mut eni.task, Task::Idle);
        match (task, result) {
            (Task::Assign, Ok(CloudAnswer::Assigned { blocks })) => {
                self.assigned(id, &blocks, now);
            }
            (Task::Assign, Err(fault)) => self.assign_failed(id, &fault, now),
            (Task::Unassign, Ok(_)) => self.left(id, None, now),
            (Task::Unassign, Err(fault)) => self.unassign_failed(id, &fault),
            (chore @ (Task::Keep | Task::Tag | Task::SetGroups), result) => {
                self.chore_done(id, &chore, result, now);
            }
            (Task::Describe, Ok(CloudAnswer::Described(seen))) => {
                eni.unsure = false;
                eni.coming = None;
                self.described(id, &seen, call.started, now);
            }
            (Task::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
                eni.unsure = false;
                eni.coming = None;
                self.watch.want_ec2(now);
            }
            (Task::Describe, Err(_)) | (Task::Idle, _) => {}
            // An answer of the wrong kind tells nothing: look.
            (Task::Assign | Task::Describe, Ok(_)) => eni.unsure = true,
        }
    }

    fn assigned(&mut self, id: &EniId, blocks: &[IpNet], now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        let asked = eni.coming.take().map(|want| (eni.facts.subnet.clone(), want));
        let added = self.add_given(id, blocks, now);
        if let Some((subnet, want)) = asked {
            self.subnet_gave(&subnet, want);
        }
        self.report(Severity::Info, Topic::PoolGrew, id, format!("{} more", amount(&added)), "");
    }

    /// Adds what EC2 has just given, whatever was known of the blocks before: one that we are
    /// about to give back, or whose return was lost, may come back on another ENI, or as part of a
    /// prefix.
    pub(crate) fn add_given(&mut self, id: &EniId, blocks: &[IpNet], now: Time) -> Vec<IpNet> {
        for block in blocks {
            for back in self.watch.block_back(*block) {
                self.persist(Record::settled(vec![back]));
            }
            let other = |(net, of): &(IpNet, &EniId)| *of != id || net != block;
            let others: Vec<IpNet> =
                self.book.overlapping(*block).filter(other).map(|(net, _)| net).collect();
            // EC2 gives nothing twice: what has it in the book does not have it any more.
            for other in others {
                self.lose(other, now);
            }
            self.regain(id, *block);
        }
        self.add_blocks(id, blocks, now)
    }

    /// Adds blocks to the book; gives back those that are new.
    pub(crate) fn add_blocks(&mut self, id: &EniId, blocks: &[IpNet], now: Time) -> Vec<IpNet> {
        let add = |block: &&IpNet| self.book.add_block(id, **block, now);
        blocks.iter().filter(add).copied().collect()
    }

    fn assign_failed(&mut self, id: &EniId, fault: &CloudFault, now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        let Some(want) = eni.coming else { return };
        let subnet = eni.facts.subnet.clone();
        match fault.remedy {
            // What may have come stays counted as coming until we have looked.
            Remedy::Unknown => {
                eni.unsure = true;
                self.subnets.not_answered(&subnet, want);
                return;
            }
            Remedy::TryElsewhere => self.subnet_refused(&subnet, want, fault, now),
            Remedy::LimitReached => {
                eni.unsure = true;
                eni.full_until = Some(now + FULL_PAUSE);
            }
            Remedy::Gone => self.watch.want_ec2(now),
            Remedy::RetryAfter { .. } | Remedy::TellOperator => {}
        }
        self.subnets.not_answered(&subnet, want);
        if let Some(eni) = self.book.eni_mut(id) {
            eni.coming = None;
        }
    }

    fn unassign_failed(&mut self, id: &EniId, fault: &CloudFault) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        match fault.remedy {
            Remedy::RetryAfter { .. } => return,
            Remedy::TellOperator | Remedy::TryElsewhere | Remedy::LimitReached
                if eni.giving_back != Return::Lost =>
            {
                eni.giving_back = Return::Refused;
            }
            Remedy::TellOperator | Remedy::TryElsewhere | Remedy::LimitReached => {}
            Remedy::Gone | Remedy::Unknown => eni.giving_back = Return::Lost,
        }
        eni.unsure = true;
    }

    fn described(&mut self, id: &EniId, seen: &SeenEni, started: Time, now: Time) {
        if let (Some(eni), Some(attachment)) = (self.book.eni_mut(id), &seen.attachment) {
            eni.facts.attachment = attachment.id.clone().or(eni.facts.attachment.take());
            eni.shown_kept(attachment.delete_on_termination, started);
        }
        self.adopt_blocks(id, &seen.blocks, started, now);
        self.left(id, Some(&seen.blocks), now);
    }

    /// The blocks that were on their way back have left, all or those not still seen. Those that EC2
    /// refused to take serve on.
    fn left(&mut self, id: &EniId, still: Option<&[IpNet]>, now: Time) {
        let Some(eni) = self.book.eni(id) else { return };
        let leaving = eni.blocks().filter(|(_, block)| block.leaving()).map(|(net, _)| net);
        let (stays, gone): (Vec<IpNet>, Vec<IpNet>) =
            leaving.partition(|net| still.is_some_and(|still| still.contains(net)));
        let refused = eni.giving_back == Return::Refused;
        if refused && !stays.is_empty() {
            for net in &stays {
                self.book.set_stand(*net, Stand::Stays);
            }
            self.persist(Record::settled(stays.clone()));
        }
        if let Some(eni) = self.book.eni_mut(id).filter(|_| refused || stays.is_empty()) {
            eni.giving_back = Return::Open;
        }
        if gone.is_empty() {
            return;
        }
        for net in &gone {
            self.book.remove_block(*net);
            self.watch.block_gone(*net, now);
        }
        let cause = format!("{} given back", amount(&gone));
        self.report(Severity::Info, Topic::PoolShrank, id, cause, "");
    }
}
