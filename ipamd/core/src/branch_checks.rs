//! EC2's answers about branch ENIs, and their comparison with annotations.

use crate::{BranchEni, EniKind, SeenEni};
use config_model::{EniId, PodName, Span, Time};
use std::{collections::BTreeMap, fmt::Display};

/// Tags of the VPC resource controller on the branch ENIs that it creates.
const TRUNK_TAG: &str = "vpcresources.k8s.aws/trunk-eni-id";
const VLAN_TAG: &str = "vpcresources.k8s.aws/vlan-id";
/// The interval of the calls while EC2 does not list a branch. EC2 shows a new ENI with a lag.
const ASK_INTERVAL: Span = Span::seconds(1);

/// EC2's answers about the branch ENIs of this node's pods.
#[derive(Debug, Default)]
pub(crate) struct BranchChecks {
    /// The branches that EC2 lists with the same values, with their pods' UIDs.
    pub(crate) confirmed: BTreeMap<PodName, (String, BranchEni)>,
    pub(crate) is_asking: bool,
    /// The start of the last call.
    pub(crate) asked: Option<Time>,
}

impl BranchChecks {
    pub(crate) fn confirms(&self, pod: &PodName, annotated: &(String, BranchEni)) -> bool {
        self.confirmed.get(pod) == Some(annotated)
    }

    /// Ends the confirmation of an annotation that was replaced or removed.
    pub(crate) fn annotated(&mut self, pod: &PodName, annotated: Option<&(String, BranchEni)>) {
        if self.confirmed.get(pod) != annotated {
            self.confirmed.remove(pod);
        }
    }

    pub(crate) fn next_ask(&self) -> Option<Time> {
        self.asked.map(|asked| asked + ASK_INTERVAL)
    }
}

/// The first difference between the annotation and the ENI in EC2's answer; `None` if EC2 confirms the annotation.
pub(crate) fn difference(branch: &BranchEni, seen: &SeenEni, trunk: &EniId) -> Option<String> {
    if seen.kind != Some(EniKind::Branch) {
        return Some("it is not a branch ENI".to_owned());
    }
    let tag = |key: &str| seen.tags.as_ref().and_then(|tags| tags.get(key)).map(String::as_str);
    let v6 = branch.address_v6.filter(|address| !seen.ipv6_addresses.contains(address));
    let pairs = [
        differs("trunk", trunk, tag(TRUNK_TAG).unwrap_or_default()),
        differs("VLAN", branch.vlan, tag(VLAN_TAG).unwrap_or_default()),
        differs("MAC address", branch.mac, seen.mac),
        branch.address.and_then(|own| {
            let shown = seen.primary_address.map(|address| address.to_string());
            differs("address", own, shown.unwrap_or_default())
        }),
        v6.map(|address| format!("EC2 does not show address {address}")),
    ];
    pairs.into_iter().flatten().next()
}

fn differs(name: &str, expected: impl Display, shown: impl Display) -> Option<String> {
    let (expected, shown) = (expected.to_string(), shown.to_string());
    (expected != shown).then(|| format!("{name} {expected}, which is {shown:?} in EC2"))
}
