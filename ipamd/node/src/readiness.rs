//! The ENIs that pods can use, according to a repair pass.

use crate::desired;
use config_model::EniId;
use ipamd_core::Snapshot;
use routing_plan::{Applied, Note, Plan, Subject};
use std::collections::BTreeMap;

/// The ENIs that became ready in this pass, and those that cannot become ready, with the reasons.
pub fn readiness(
    book: &Snapshot,
    plan: &Plan,
    applied: &Applied,
) -> (Vec<EniId>, Vec<(EniId, String)>) {
    let stuck = stuck(plan, applied);
    let primary = desired::primary(book).map(|eni| eni.id.clone());
    let (mut ready, mut not_ready) = (Vec::new(), Vec::new());
    for (eni, known_ready) in desired::managed_enis(book) {
        let is_primary = primary.as_ref() == Some(eni);
        let subject = if is_primary { Subject::Node } else { Subject::Eni(eni.clone()) };
        let as_desired = if is_primary { plan.node_ready() } else { plan.ready(eni) };
        if as_desired && !known_ready {
            ready.push(eni.clone());
        } else if let Some(why) = stuck.get(&subject) {
            not_ready.push((eni.clone(), why.clone()));
        }
    }
    (ready, not_ready)
}

/// The subjects that cannot be repaired now, with the reasons.
fn stuck(plan: &Plan, applied: &Applied) -> BTreeMap<Subject, String> {
    let notes = plan.notes.iter().filter_map(|note| match note {
        Note::LinkMissing { subject, .. } | Note::LinkAmbiguous { subject, .. } => {
            Some((subject.clone(), note.to_string()))
        }
        Note::VethMissing { .. }
        | Note::GatewayPortMissing { .. }
        | Note::VlanHeld { .. }
        | Note::ForeignInReapGroup { .. } => None,
    });
    let refused = applied.refused.iter();
    notes
        .chain(refused.map(|refused| (refused.op.subject().clone(), refused.to_string())))
        .collect()
}
