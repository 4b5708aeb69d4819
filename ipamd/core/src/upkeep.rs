//! The upkeep of attached ENIs: readiness, lost replies, leaving blocks.

mod chores;

use chores::chore_done;
pub(crate) use chores::do_chores;

use crate::{
    BlockSource, CloudAnswer, CloudCall, CloudFault, Record, Remedy, SeenEni, Severity, Topic,
    book::{Block, BlockState, Readiness, ReturnState, Task, amount, is_prefix},
    calls::CloudResult,
    ctx::Ctx,
    explain::Blocker,
    growth::READY_PATIENCE,
    shrink::Shrink,
    witness::Witnesses,
};
use config_model::{EniId, Span, Time};
use ipnet::IpNet;

/// The time after which an ENI of ours that never becomes ready is given up.
const ATTACH_GIVE_UP: Span = Span::seconds(180);
/// The pause before the next ENI after that. It doubles each time.
const STUCK_PAUSE: Span = Span::seconds(60);
/// The limit of the doubled pause.
const LONGEST_STUCK_PAUSE: Span = Span::seconds(1800);
/// The time for which an ENI gets no requests after EC2 reported its limit.
const FULL_PAUSE: Span = Span::seconds(120);

/// The pause after ENIs that were attached and never became ready.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    /// Such ENIs in a row.
    stuck_attaches: u32,
    no_create_until: Option<Time>,
}

impl Upkeep {
    /// The end of the pause in which no ENI is created, if there is one at `now`.
    pub(crate) fn create_paused_until(&self, now: Time) -> Option<Time> {
        self.no_create_until.filter(|until| *until > now)
    }

    pub(crate) fn eni_ready(&mut self, ctx: &mut Ctx, id: &EniId) {
        let Some(eni) = ctx.book.eni_mut(id) else { return };
        if eni.readiness != Readiness::Ready {
            eni.readiness = Readiness::Ready;
            eni.ever_ready = true;
            if eni.attached_here {
                self.stuck_attaches = 0;
                self.no_create_until = None;
            }
        }
    }

    /// Makes the most urgent call for each ENI.
    pub(crate) fn maintain_enis(&mut self, ctx: &mut Ctx, shrink: &mut Shrink) {
        let needy = ctx.book.enis().filter(|eni| eni.needs_maintenance());
        let ids: Vec<EniId> = needy.map(|eni| eni.facts.id.clone()).collect();
        for id in ids {
            forget_if_missing_and_empty(ctx, &id);
            self.judge_attach(ctx, shrink, &id);
            if ctx.may_change_ec2() {
                maintain_eni(ctx, &id);
            }
        }
    }

    fn judge_attach(&mut self, ctx: &mut Ctx, shrink: &mut Shrink, id: &EniId) {
        let Some(eni) = ctx.book.eni_mut(id) else { return };
        if !eni.facts.managed || eni.missing || eni.ever_ready {
            return;
        }
        let Readiness::NotReady { since, why, reported } = &mut eni.readiness else { return };
        let (since, reported_before) = (*since, *reported);
        let cause = why.clone().unwrap_or_else(|| "its link did not appear".to_owned());
        let late = ctx.now >= since + READY_PATIENCE;
        *reported |= late;
        let (attached_here, unused) = (eni.attached_here, eni.blocks.is_unused());
        let idle = eni.task == Task::Idle;
        ctx.add_blocker(Blocker::NotReady { eni: id.clone(), why: cause.clone() });
        if late && !reported_before {
            let next_step = "check the ENI's attachment in EC2 and the node's kernel log";
            ctx.report(Severity::Warning, Topic::AttachStuck, id, cause.clone(), next_step);
        }
        if !ctx.reached(since + READY_PATIENCE) || !attached_here || !unused {
            return;
        }
        if ctx.reached(since + ATTACH_GIVE_UP) && idle && ctx.may_change_ec2() {
            let doubled = STUCK_PAUSE.0 << self.stuck_attaches.min(10);
            let pause = ctx.budgets.jittered(Span(doubled.min(LONGEST_STUCK_PAUSE.0)));
            self.no_create_until = Some(ctx.now + pause);
            self.stuck_attaches += 1;
            let cause = format!("given up: {cause}");
            ctx.report(Severity::Error, Topic::AttachStuck, id, cause, "");
            shrink.free_eni(ctx, id);
        }
    }
}

pub(crate) fn eni_not_ready(ctx: &mut Ctx, id: &EniId, why: String) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    match &mut eni.readiness {
        Readiness::NotReady { why: known, .. } => *known = Some(why),
        Readiness::Ready => {
            eni.readiness =
                Readiness::NotReady { since: ctx.now, why: Some(why.clone()), reported: true };
            let next_step = "check the link with this ENI's MAC address";
            ctx.report(Severity::Warning, Topic::EniNotReady, id, why, next_step);
        }
    }
}

fn maintain_eni(ctx: &mut Ctx, id: &EniId) {
    let Some(eni) = ctx.book.eni(id) else { return };
    if !eni.facts.managed || eni.missing || eni.task != Task::Idle {
        return;
    }
    let leaving = |prefixes: bool| -> Vec<IpNet> {
        let of_kind =
            |(net, block): &(IpNet, &Block)| block.leaving() && is_prefix(*net) == prefixes;
        eni.blocks.iter().filter(of_kind).map(|(net, _)| net).collect()
    };
    // A call takes blocks of one kind.
    let leaving = [leaving(true), leaving(false)].into_iter().find(|nets| !nets.is_empty());
    if eni.unsure {
        let call = CloudCall::DescribeEni { eni: id.clone() };
        ctx.call_for_eni(id, Task::Describe, call);
    } else if let Some(leaving) = leaving {
        ctx.unassign(id, leaving);
    }
}

/// Forgets an ENI that two witnesses lack after its last pod.
fn forget_if_missing_and_empty(ctx: &mut Ctx, id: &EniId) {
    let empty = |eni: &crate::book::Eni| eni.missing && eni.blocks.is_unused();
    if ctx.book.eni(id).is_some_and(empty) {
        ctx.forget_eni(id);
    }
}

pub(crate) fn done(
    ctx: &mut Ctx,
    witnesses: &mut Witnesses,
    id: &EniId,
    started: Time,
    result: CloudResult,
) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    let task = std::mem::replace(&mut eni.task, Task::Idle);
    match (task, result) {
        (Task::Assign, Ok(CloudAnswer::Assigned { blocks })) => {
            assigned(ctx, witnesses, id, &blocks);
        }
        (Task::Assign, Err(fault)) => assign_failed(ctx, id, &fault),
        (Task::Unassign, Ok(_)) => left(ctx, id, None),
        (Task::Unassign, Err(fault)) => unassign_failed(ctx, id, &fault),
        (chore @ (Task::Keep | Task::Tag | Task::SetGroups), result) => {
            chore_done(ctx, id, &chore, result);
        }
        (Task::Describe, Ok(CloudAnswer::Described(seen))) => {
            eni.unsure = false;
            eni.coming = None;
            described(ctx, id, &seen, started);
        }
        (Task::Describe, Err(fault)) if fault.remedy == Remedy::Gone => {
            eni.unsure = false;
            eni.coming = None;
            ctx.schedule.want_ec2(ctx.now);
        }
        (Task::Describe, Err(_)) | (Task::Idle, _) => {}
        // An answer of the wrong kind proves nothing, so EC2 must describe the ENI.
        (Task::Assign | Task::Describe, Ok(_)) => eni.unsure = true,
    }
}

fn assigned(ctx: &mut Ctx, witnesses: &mut Witnesses, id: &EniId, blocks: &[IpNet]) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    let asked = eni.coming.take().map(|want| (eni.facts.subnet.clone(), want));
    let added = witnesses.add_given(ctx, id, blocks);
    if let Some((subnet, want)) = asked {
        ctx.subnet_gave(&subnet, want);
    }
    ctx.report(Severity::Info, Topic::PoolGrew, id, format!("{} more", amount(&added)), "");
}

fn assign_failed(ctx: &mut Ctx, id: &EniId, fault: &CloudFault) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    let Some(want) = eni.coming else { return };
    let subnet = eni.facts.subnet.clone();
    match fault.remedy {
        // Blocks that may have been assigned count as under way until EC2 has described the ENI.
        Remedy::Unknown => {
            eni.unsure = true;
            ctx.subnets.not_answered(&subnet, want);
            return;
        }
        Remedy::TryElsewhere => ctx.subnet_refused(&subnet, want, fault),
        Remedy::LimitReached => {
            eni.unsure = true;
            eni.full_until = Some(ctx.now + FULL_PAUSE);
        }
        Remedy::Gone => ctx.schedule.want_ec2(ctx.now),
        Remedy::RetryAfter { .. } | Remedy::NotifyOperator => {}
    }
    ctx.subnets.not_answered(&subnet, want);
    if let Some(eni) = ctx.book.eni_mut(id) {
        eni.coming = None;
    }
}

fn unassign_failed(ctx: &mut Ctx, id: &EniId, fault: &CloudFault) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    match fault.remedy {
        Remedy::RetryAfter { .. } => return,
        Remedy::NotifyOperator | Remedy::TryElsewhere | Remedy::LimitReached
            if eni.giving_back != ReturnState::Lost =>
        {
            eni.giving_back = ReturnState::Refused;
        }
        Remedy::NotifyOperator | Remedy::TryElsewhere | Remedy::LimitReached => {}
        Remedy::Gone | Remedy::Unknown => eni.giving_back = ReturnState::Lost,
    }
    eni.unsure = true;
}

fn described(ctx: &mut Ctx, id: &EniId, seen: &SeenEni, started: Time) {
    if let (Some(eni), Some(attachment)) = (ctx.book.eni_mut(id), &seen.attachment) {
        eni.facts.attachment = attachment.id.clone().or(eni.facts.attachment.take());
        eni.shown_kept(attachment.delete_on_termination, started);
    }
    ctx.adopt_blocks(id, &seen.blocks, started);
    left(ctx, id, Some(&seen.blocks));
}

/// Removes leaving blocks that EC2 no longer shows (`None`: all). Blocks whose return EC2 refused are used again.
fn left(ctx: &mut Ctx, id: &EniId, still: Option<&[IpNet]>) {
    let Some(eni) = ctx.book.eni(id) else { return };
    let leaving = eni.blocks.iter().filter(|(_, block)| block.leaving()).map(|(net, _)| net);
    let (stays, gone): (Vec<IpNet>, Vec<IpNet>) =
        leaving.partition(|net| still.is_some_and(|still| still.contains(net)));
    let refused = eni.giving_back == ReturnState::Refused;
    if refused && !stays.is_empty() {
        for net in &stays {
            ctx.book.set_block_state(*net, BlockState::Stays);
        }
        ctx.persist(Record::settled(stays.clone()));
    }
    if let Some(eni) = ctx.book.eni_mut(id).filter(|_| refused || stays.is_empty()) {
        eni.giving_back = ReturnState::Open;
    }
    if gone.is_empty() {
        return;
    }
    for net in &gone {
        ctx.book.remove_block(*net);
        ctx.removed.block_gone(*net, ctx.now);
    }
    let cause = format!("{} given back", amount(&gone));
    ctx.report(Severity::Info, Topic::PoolShrank, id, cause, "");
}

impl Ctx {
    /// Adds blocks to the book and returns the new ones.
    pub(crate) fn add_blocks(&mut self, id: &EniId, blocks: &[IpNet]) -> Vec<IpNet> {
        let add = |block: &&IpNet| self.book.add_block(id, **block, self.now);
        blocks.iter().filter(add).copied().collect()
    }
}

impl Witnesses {
    /// Adds blocks that EC2 has just assigned. EC2 may assign a leaving or lost block again to another ENI, or as part
    /// of a prefix.
    pub(crate) fn add_given(&mut self, ctx: &mut Ctx, id: &EniId, blocks: &[IpNet]) -> Vec<IpNet> {
        for block in blocks {
            for back in ctx.removed.block_back(*block) {
                ctx.persist(Record::settled(vec![back]));
            }
            let other = |(net, source): &(IpNet, &BlockSource)| {
                source.eni().is_some_and(|of| of != id || net != block)
            };
            let others: Vec<IpNet> =
                ctx.book.overlapping(*block).filter(other).map(|(net, _)| net).collect();
            // EC2 assigns no block twice, so the previous owner has lost it.
            for other in others {
                self.lose(ctx, other);
            }
            self.regain(ctx, id, *block);
        }
        ctx.add_blocks(id, blocks)
    }
}
