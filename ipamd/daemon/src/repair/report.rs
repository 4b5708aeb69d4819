//! What a pass did, for people and metrics.

use routing_plan::{Action, Applied, Op, Plan, Subject};
use std::{collections::BTreeSet, time::Duration};

/// What became of the last pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassReport {
    /// Passes so far.
    pub(crate) number: u64,
    /// How long it took.
    pub(crate) took: Duration,
    /// How long ago the first word of a change came.
    pub(crate) since_word: Duration,
    /// The kinds of operations that were carried out.
    pub(crate) done: Vec<&'static str>,
    /// The kinds of operations that the kernel refused.
    pub(crate) refused: Vec<&'static str>,
    /// Passes in a row that found something to repair.
    pub(crate) unsettled: u32,
    /// What keeps pods from being served.
    pub(crate) trouble: Vec<String>,
    /// What was left alone or must wait, and why.
    pub(crate) notes: Vec<String>,
}

impl PassReport {
    pub(super) fn of(
        plan: &Plan,
        applied: &Applied,
        previous: &Self,
        took: Duration,
        since_word: Duration,
    ) -> Self {
        let (done, refused) = kinds(plan, applied);
        let unsettled = if plan.ops.is_empty() { 0 } else { previous.unsettled.saturating_add(1) };
        let trouble = applied.refused.iter().filter(|refused| concerns_all(&refused.op));
        Self {
            number: previous.number + 1,
            took,
            since_word,
            done,
            refused,
            unsettled,
            trouble: trouble.map(ToString::to_string).collect(),
            notes: plan.notes.iter().map(ToString::to_string).collect(),
        }
    }

    /// Tells what is new.
    pub(super) fn log(&self, plan: &Plan, previous: &Self) {
        for op in &plan.ops {
            tracing::debug!(subject = %op.subject, "{}", op.action);
        }
        if !self.done.is_empty() {
            let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(operations = self.done.len(), took_ms, "host networking repaired");
        }
        if self.trouble != previous.trouble || self.refused != previous.refused {
            for trouble in &self.trouble {
                tracing::error!("the kernel refused: {trouble}");
            }
        }
        for note in self.notes.iter().filter(|note| !previous.notes.contains(note)) {
            tracing::info!("{note}");
        }
        if self.unsettled == UNSETTLED_ALERT {
            tracing::error!(passes = self.unsettled, "host networking does not come to rest");
        }
    }
}

/// Whether all pods suffer when this is refused.
fn concerns_all(op: &Op) -> bool {
    matches!(op.subject(), Subject::Node | Subject::Sysctl(_))
}

fn kinds(plan: &Plan, applied: &Applied) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut stuck: BTreeSet<&Subject> = BTreeSet::new();
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for op in &plan.ops {
        if stuck.contains(op.subject()) {
            continue;
        }
        if applied.refused.iter().any(|refusal| refusal.op == *op) {
            stuck.insert(op.subject());
            refused.push(kind(&op.action));
        } else {
            done.push(kind(&op.action));
        }
    }
    (done, refused)
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::SetUp(_) => "set_link_up",
        Action::SetMtu(..) => "set_mtu",
        Action::SetAlias(..) => "set_alias",
        Action::SetGroup(..) => "set_group",
        Action::SetIpv4(..) => "set_link_sysctl",
        Action::DeleteLink(_) => "delete_link",
        Action::DeleteGroup(_) => "reap_links",
        Action::AddAddress(_) => "add_address",
        Action::DeleteAddress(_) => "delete_address",
        Action::ReplaceRoute(_) | Action::AddRoute(_) => "add_route",
        Action::DeleteRoute(_) => "delete_route",
        Action::AddRule(_) => "add_rule",
        Action::DeleteRule(_) | Action::PurgeRules(_) => "delete_rule",
        Action::SetNeighbour(_) => "set_neighbour",
        Action::WriteSysctl(..) => "write_sysctl",
    }
}

const UNSETTLED_ALERT: u32 = 10;
