//! The result of a repair pass, for people and metrics.

use config_model::{Mark, PodKey};
use routing_plan::{Action, Applied, Note, Op, Plan, Subject};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

/// The marks that netfilter sets on packets from single addresses.
pub(crate) type Marks = BTreeMap<Ipv4Addr, Mark>;

#[derive(Clone, Debug, Default)]
pub(crate) struct PassReport {
    /// Counts passes from 1; 0 before the first.
    pub(crate) number: u64,
    pub(crate) took: Duration,
    /// The time since the first unprocessed change.
    pub(crate) since_word: Duration,
    /// The kinds of operations that succeeded.
    pub(crate) done: Vec<&'static str>,
    /// The kinds of operations that the kernel refused.
    pub(crate) refused: Vec<&'static str>,
    /// Consecutive passes that repaired a subject that the pass before had repaired already: another program reverts
    /// it. Other repairs do not count.
    pub(crate) unsettled: u32,
    /// The subjects that this pass changed.
    pub(crate) touched: BTreeSet<Subject>,
    pub(crate) primary_link: Option<String>,
    /// The marks that netfilter should set on packets from single addresses.
    pub(crate) marks: Marks,
    /// Pods reach destinations of the other family.
    pub(crate) egress: bool,
    /// Refused operations that all pods need.
    pub(crate) trouble: Vec<String>,
    /// Confirmed pods without host veth in this pass. An ADD that ends during the observation is among them.
    pub(crate) without_link: BTreeMap<PodKey, String>,
    /// Pods without host veth in this pass and in the one before, with the missing link and address.
    pub(crate) disconnected: BTreeMap<PodKey, String>,
    /// Objects that the plan left alone or postponed, and the reason.
    pub(crate) notes: Vec<String>,
}

impl PassReport {
    pub(crate) fn of(
        plan: &Plan,
        applied: &Applied,
        previous: &Self,
        took: Duration,
        since_word: Duration,
    ) -> Self {
        let (done, refused) = kinds(plan, applied);
        let touched = touched(plan);
        let again = !touched.is_disjoint(&previous.touched);
        let unsettled = if again { previous.unsettled.saturating_add(1) } else { 0 };
        let without_link = without_link(plan);
        let again = |(key, _): &(&PodKey, &String)| previous.without_link.contains_key(key);
        let disconnected = without_link.iter().filter(again);
        let disconnected = disconnected.map(|(key, why)| (key.clone(), why.clone())).collect();
        let trouble = applied.refused.iter().filter(|refused| concerns_all(&refused.op));
        Self {
            number: previous.number + 1,
            took,
            since_word,
            done,
            refused,
            unsettled,
            touched,
            primary_link: plan.primary_link.clone(),
            marks: plan.marks.clone(),
            egress: false,
            trouble: trouble.map(ToString::to_string).collect(),
            without_link,
            disconnected,
            notes: plan.notes.iter().map(ToString::to_string).collect(),
        }
    }

    /// Logs the changes since the previous pass.
    pub(crate) fn log(&self, plan: &Plan, previous: &Self) {
        for op in &plan.ops {
            tracing::debug!(subject = %op.subject, "{}", op.action);
        }
        if !self.done.is_empty() {
            let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(operations = self.done.len(), took_ms, "repaired host networking");
        }
        if self.trouble != previous.trouble || self.refused != previous.refused {
            for trouble in &self.trouble {
                tracing::error!("the kernel refused an operation: {trouble}");
            }
        }
        for note in self.notes.iter().filter(|note| !previous.notes.contains(note)) {
            tracing::info!("{note}");
        }
        if self.unsettled == UNSETTLED_ALERT {
            tracing::error!(passes = self.unsettled, "host networking is not converging");
        }
    }
}

/// The subjects of a plan. The reap group is not one of them, because each DEL changes it.
fn touched(plan: &Plan) -> BTreeSet<Subject> {
    let subjects = plan.ops.iter().map(Op::subject);
    subjects.filter(|subject| !matches!(subject, Subject::Reap)).cloned().collect()
}

fn without_link(plan: &Plan) -> BTreeMap<PodKey, String> {
    let missing = plan.notes.iter().filter_map(|note| match note {
        Note::VethMissing { key, .. } => Some((key.clone(), note.to_string())),
        Note::LinkMissing { .. }
        | Note::LinkAmbiguous { .. }
        | Note::GatewayPortMissing { .. }
        | Note::VlanHeld { .. }
        | Note::ForeignInReapGroup { .. } => None,
    });
    missing.collect()
}

/// Returns whether all pods need the operation.
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
        Action::AddVlan(_) => "add_vlan",
        Action::SetUp(_) => "set_link_up",
        Action::SetMtu(..) => "set_mtu",
        Action::SetAlias(..) | Action::Claim(..) => "set_alias",
        Action::SetGroup(..) => "set_group",
        Action::SetIpv4(..) | Action::SetIpv6(..) => "set_link_sysctl",
        Action::DeleteLink(_) => "delete_link",
        Action::DeleteGroup(_) => "reap_links",
        Action::AddAddress(_) => "add_address",
        Action::DeleteAddress(_) => "delete_address",
        Action::ReplaceRoute(_) | Action::AddRoute(_) => "add_route",
        Action::DeleteRoute(_) => "delete_route",
        Action::AddRule(_) => "add_rule",
        Action::DeleteRule(_) | Action::PurgeRules(_) => "delete_rule",
        Action::SetNeighbor(_) => "set_neighbor",
        Action::DeleteNeighbor(_) => "delete_neighbor",
        Action::WriteSysctl(..) => "write_sysctl",
    }
}

const UNSETTLED_ALERT: u32 = 10;
/// The next step for a pod without host veth.
pub(crate) const DELETE_POD: &str = "delete the pod: its replacement gets a new link";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn pass(previous: &PassReport, addresses: &[u8], reaps: bool) -> PassReport {
        let address = |last: &u8| Subject::Address(IpAddr::from([10, 0, 0, *last]));
        let subjects = addresses.iter().map(address).chain(reaps.then_some(Subject::Reap));
        let ops = subjects.map(|subject| Op { subject, action: Action::DeleteGroup(1) });
        let mut plan = Plan::default();
        plan.ops.extend(ops);
        PassReport::of(&plan, &Applied::default(), previous, Duration::ZERO, Duration::ZERO)
    }

    #[test]
    fn repeated_repairs_of_one_subject_are_counted_as_unsettled() {
        let first = pass(&PassReport::default(), &[1], false);
        let second = pass(&first, &[1, 2], false);
        let third = pass(&second, &[2], false);
        assert_eq!([first.unsettled, second.unsettled, third.unsettled], [0, 1, 2]);
        assert_eq!(pass(&third, &[], false).unsettled, 0);
    }

    #[test]
    fn a_pod_is_disconnected_once_two_passes_lack_its_link() {
        let key = PodKey::new("aws-cni", "c1", "eth0").expect("a valid key");
        let veth = "eni0d7763386da".to_owned();
        let address = IpAddr::from([10, 0, 0, 8]);
        let mut lacking = Plan::default();
        lacking.notes.push(Note::VethMissing { key: key.clone(), veth, address });
        let after = |previous: &PassReport, plan: &Plan| {
            PassReport::of(plan, &Applied::default(), previous, Duration::ZERO, Duration::ZERO)
        };
        let first = after(&PassReport::default(), &lacking);
        assert_eq!(first.disconnected, BTreeMap::new());
        let second = after(&first, &lacking);
        let text = format!("10.0.0.8: no host veth eni0d7763386da of {key}");
        assert_eq!(second.disconnected, BTreeMap::from([(key, text)]));
        let found = after(&second, &Plan::default());
        assert_eq!(after(&found, &lacking).disconnected, BTreeMap::new());
    }

    #[test]
    fn repairs_of_other_pods_and_of_the_reap_group_do_not_count_as_unsettled() {
        let first = pass(&PassReport::default(), &[1], true);
        let second = pass(&first, &[2], true);
        assert_eq!([first.unsettled, second.unsettled], [0, 0]);
    }
}
