//! Do the ENIs have the primary ENI's security groups? They are rewritten only when they differ.

use crate::{Core, SeenEni, Witness, book::Eni, witness::SETTLING};
use config_model::{SecurityGroupId, Time};
use std::collections::BTreeSet;

impl Core {
    /// Takes in the groups that a witness shows.
    pub(crate) fn note_groups(&mut self, witness: Witness, started: Time, seen: &SeenEni) {
        let Some(groups) = seen.groups.clone().filter(|groups| !groups.is_empty()) else { return };
        // A witness that lags may show for a while what was before a change that another showed.
        let settled = |changed: Time| started >= changed + SETTLING;
        if seen.id == self.node.primary_eni
            && self.node.security_groups != groups
            && self.groups_changed.is_none_or(settled)
        {
            self.groups_changed = Some(started);
            self.node.security_groups.clone_from(&groups);
        }
        if witness == Witness::Ec2
            && let Some(eni) = self.book.eni_mut(&seen.id)
            && eni.groups_set.is_none_or(|set| started >= set + SETTLING)
        {
            eni.facts.groups = Some(groups);
        }
    }

    /// Finds the ENIs whose groups are to be rewritten.
    pub(crate) fn compare_groups(&mut self) {
        let follow = !self.config.custom_networking;
        let wanted: BTreeSet<&SecurityGroupId> = self.node.security_groups.iter().collect();
        for eni in self.book.enis_mut() {
            eni.groups_differ = follow && differ(eni, &wanted);
        }
    }
}

fn differ(eni: &Eni, wanted: &BTreeSet<&SecurityGroupId>) -> bool {
    let Some(groups) = eni.facts.groups.as_ref().filter(|_| eni.facts.ours) else { return false };
    !wanted.is_empty() && groups.iter().collect::<BTreeSet<_>>() != *wanted
}
