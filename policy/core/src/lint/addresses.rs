//! Addresses that several pods have.

use super::{Check, Finding, ObjectName};
use crate::World;
use policy_objects::{Kind, Severity};

pub(super) fn look(world: &World, findings: &mut Vec<Finding>) {
    for (address, pod, owner) in world.passed_over() {
        let owner = ObjectName::new(Kind::Pod, &owner.meta);
        findings.push(Finding {
            severity: Severity::Warning,
            check: Check::Address,
            object: ObjectName::new(Kind::Pod, &pod.meta),
            field: "status.podIPs".to_owned(),
            text: format!(
                "{address} also belongs to {owner}, which is newer and owns it here: delete the pod that \
                 is gone, or read both again"
            ),
        });
    }
}
