//! The other properties of ENIs: `DeleteOnTermination`, tags, security groups.

use crate::{
    CloudCall, Remedy, Severity, Topic,
    book::{Eni, KEEP_LAG, Task},
    calls::CloudResult,
    classify::tags_to_add,
    ctx::Ctx,
    growth::Growth,
};
use config_model::EniId;

/// Makes the most urgent of these calls for each ENI, after growth because addresses come first.
pub(crate) fn do_chores(ctx: &mut Ctx, growth: &Growth) {
    if growth.gathers(ctx.now) {
        return;
    }
    let waits = |eni: &&Eni| {
        let idle = eni.task == Task::Idle && !eni.unsure && !eni.missing;
        eni.facts.managed && idle && eni.has_chores()
    };
    let ids: Vec<EniId> = ctx.book.enis().filter(waits).map(|eni| eni.facts.id.clone()).collect();
    for id in ids {
        do_chore(ctx, &id);
    }
}

fn do_chore(ctx: &mut Ctx, id: &EniId) {
    let Some(eni) = ctx.book.eni(id) else { return };
    let facts = &eni.facts;
    if eni.wants_keeping() {
        match facts.attachment.clone() {
            Some(attachment) => {
                let call = CloudCall::KeepUntilTermination { eni: id.clone(), attachment };
                ctx.call_for_eni(id, Task::Keep, call);
            }
            None => ctx.schedule.want_ec2(ctx.now),
        }
    } else if facts.untagged {
        let adopted = !facts.is_primary && !facts.ours;
        let tags = tags_to_add(&ctx.node, adopted);
        ctx.call_for_eni(id, Task::Tag, CloudCall::TagEni { eni: id.clone(), tags });
    } else if eni.groups_differ {
        let groups = ctx.node.security_groups.clone();
        let call = CloudCall::SetGroups { eni: id.clone(), groups };
        ctx.call_for_eni(id, Task::SetGroups, call);
    }
}

pub(super) fn chore_done(ctx: &mut Ctx, id: &EniId, chore: &Task, result: CloudResult) {
    let Some(eni) = ctx.book.eni_mut(id) else { return };
    let gone = matches!(&result, Err(fault) if fault.remedy == Remedy::Gone);
    let passes = |remedy| matches!(remedy, Remedy::RetryAfter { .. } | Remedy::Unknown);
    let again = matches!(&result, Err(fault) if passes(fault.remedy));
    match chore {
        Task::Keep if result.is_ok() => {
            eni.keep_asked = Some(ctx.now);
            ctx.schedule.want_ec2_at(ctx.now + KEEP_LAG);
        }
        // Without permission the tag is tried again only after the next EC2 answer.
        Task::Tag if !again => {
            eni.facts.untagged = false;
            eni.tagged_at = Some(ctx.now);
        }
        Task::SetGroups if result.is_ok() => {
            eni.groups_differ = false;
            eni.groups_set = Some(ctx.now);
            eni.facts.groups = Some(ctx.node.security_groups.clone());
            let cause = "its security groups are the primary ENI's again";
            ctx.report(Severity::Info, Topic::GroupsChanged, id, cause, "");
        }
        Task::Keep
        | Task::Tag
        | Task::SetGroups
        | Task::Idle
        | Task::Assign
        | Task::Unassign
        | Task::Describe => {}
    }
    if gone {
        ctx.schedule.want_ec2(ctx.now);
    }
}
