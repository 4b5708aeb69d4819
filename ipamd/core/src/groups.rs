//! The security groups of the node's ENIs follow those of the primary ENI. They are changed only on a difference.

use crate::{SeenEni, Witness, book::Eni, ctx::Ctx, schedule::SETTLING};
use config_model::{SecurityGroupId, Time};
use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The start of the observation that showed other groups of the primary ENI.
    changed: Option<Time>,
}

impl Groups {
    /// Takes the groups that a witness shows.
    pub(crate) fn note(&mut self, ctx: &mut Ctx, witness: Witness, started: Time, seen: &SeenEni) {
        let Some(groups) = seen.groups.clone().filter(|groups| !groups.is_empty()) else { return };
        // A witness that lags may still show the groups from before a change that the other witness showed.
        let settled = |changed: Time| started >= changed + SETTLING;
        if seen.id == ctx.node.primary_eni
            && ctx.node.security_groups != groups
            && self.changed.is_none_or(settled)
        {
            self.changed = Some(started);
            ctx.node.security_groups.clone_from(&groups);
        }
        if witness == Witness::Ec2
            && let Some(eni) = ctx.book.eni_mut(&seen.id)
            && eni.groups_set.is_none_or(|set| started >= set + SETTLING)
        {
            eni.facts.groups = Some(groups);
        }
    }

    /// Marks the ENIs whose groups must be changed.
    pub(crate) fn compare(ctx: &mut Ctx) {
        let follow = !ctx.config.custom_networking;
        let wanted: BTreeSet<&SecurityGroupId> = ctx.node.security_groups.iter().collect();
        for eni in ctx.book.enis_mut() {
            eni.groups_differ = follow && differ(eni, &wanted);
        }
    }
}

fn differ(eni: &Eni, wanted: &BTreeSet<&SecurityGroupId>) -> bool {
    let Some(groups) = eni.facts.groups.as_ref().filter(|_| eni.facts.ours) else { return false };
    !wanted.is_empty() && groups.iter().collect::<BTreeSet<_>>() != *wanted
}
