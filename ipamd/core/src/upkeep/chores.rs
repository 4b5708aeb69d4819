//! What does an ENI need beside addresses? To go with the instance, its tags, its groups.

use crate::{
    CloudCall, Core, Remedy, Severity, Topic,
    book::{Eni, KEEP_LAG, Task},
    calls::CloudResult,
    classify::tags_to_add,
};
use config_model::{EniId, Time};

impl Core {
    /// Does for each ENI the one chore that is most needed. After growth: addresses come first.
    pub(crate) fn do_chores(&mut self, now: Time) {
        if self.rhythm.gathers(now) {
            return;
        }
        let waits = |eni: &&Eni| {
            let idle = eni.task == Task::Idle && !eni.unsure && !eni.missing;
            eni.facts.managed && idle && eni.has_chores()
        };
        let ids: Vec<EniId> =
            self.book.enis().filter(waits).map(|eni| eni.facts.id.clone()).collect();
        for id in ids {
            self.do_chore(&id, now);
        }
    }

    fn do_chore(&mut self, id: &EniId, now: Time) {
        let Some(eni) = self.book.eni(id) else { return };
        let facts = &eni.facts;
        if eni.wants_keeping() {
            match facts.attachment.clone() {
                Some(attachment) => {
                    let call = CloudCall::KeepUntilTermination { eni: id.clone(), attachment };
                    self.call_for_eni(id, Task::Keep, call, now);
                }
                None => self.watch.want_ec2(now),
            }
        } else if facts.untagged {
            let adopted = !facts.is_primary && !facts.ours;
            let tags = tags_to_add(&self.node, adopted);
            self.call_for_eni(id, Task::Tag, CloudCall::TagEni { eni: id.clone(), tags }, now);
        } else if eni.groups_differ {
            let groups = self.node.security_groups.clone();
            let call = CloudCall::SetGroups { eni: id.clone(), groups };
            self.call_for_eni(id, Task::SetGroups, call, now);
        }
    }

    pub(super) fn chore_done(&mut self, id: &EniId, chore: &Task, result: CloudResult, now: Time) {
        let Some(eni) = self.book.eni_mut(id) else { return };
        let gone = matches!(&result, Err(fault) if fault.remedy == Remedy::Gone);
        let passes = |remedy| matches!(remedy, Remedy::RetryAfter { .. } | Remedy::Unknown);
        let again = matches!(&result, Err(fault) if passes(fault.remedy));
        match chore {
            Task::Keep if result.is_ok() => {
                eni.keep_asked = Some(now);
                self.watch.want_ec2_at(now + KEEP_LAG);
            }
            // Without permission the next answer of EC2 asks for it again, and nothing before.
            Task::Tag if !again => {
                eni.facts.untagged = false;
                eni.tagged_at = Some(now);
            }
            Task::SetGroups if result.is_ok() => {
                eni.groups_differ = false;
                eni.groups_set = Some(now);
                eni.facts.groups = Some(self.node.security_groups.clone());
                let cause = "its security groups are the primary ENI's again";
                self.report(Severity::Info, Topic::GroupsChanged, id, cause, "");
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
            self.watch.want_ec2(now);
        }
    }
}
