//! EC2's answers about branch ENIs, and their comparison with annotations.

use crate::{BranchEni, EniKind, SeenEni};
use config_model::{EniId, PodName, Span, Time};
use ipnet::Ipv4Net;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

/// Tags of the VPC resource controller on the branch ENIs that it creates.
const TRUNK_TAG: &str = "vpcresources.k8s.aws/trunk-eni-id";
const VLAN_TAG: &str = "vpcresources.k8s.aws/vlan-id";
/// The intervals of the calls while EC2 does not list a branch: EC2 shows a new ENI with a lag. The interval doubles with each
/// answer that confirms no branch, so that a wrong annotation costs few calls.
const FIRST_INTERVAL: Span = Span::seconds(1);
const LAST_INTERVAL: Span = Span::seconds(30);

/// EC2's answers about the branch ENIs of this node's pods.
#[derive(Debug, Default)]
pub(crate) struct BranchChecks {
    /// The branches that EC2 lists with the same values, with their pods' UIDs.
    pub(crate) confirmed: BTreeMap<PodName, (String, BranchEni)>,
    pub(crate) is_asking: bool,
    /// The start of the last call.
    pub(crate) asked: Option<Time>,
    /// Answers in a row that confirmed no branch.
    pub(crate) fruitless: u32,
    /// The pod whose annotation was the first one with the ENI. A copy comes later.
    first: BTreeMap<EniId, (PodName, String)>,
    /// The ENIs of `first` from an earlier process, until this process has received the annotation.
    unseen: BTreeSet<EniId>,
}

/// A change of the order of annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OrderChange {
    /// The pod's annotation is the first one with the ENI.
    First { eni: EniId, pod: PodName, uid: String },
    /// The annotation of that pod no longer has the ENI.
    Ended { eni: EniId },
}

/// The comparison of an annotation with EC2's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    /// EC2 may not show the latest change yet.
    NotYet,
    Different(String),
}

impl BranchChecks {
    pub(crate) fn confirms(&self, pod: &PodName, annotated: &(String, BranchEni)) -> bool {
        self.confirmed.get(pod) == Some(annotated)
    }

    /// Restores the order of annotations. The first list after a start has no order.
    pub(crate) fn restore(&mut self, named: BTreeMap<EniId, (PodName, String)>) {
        self.unseen = named.keys().cloned().collect();
        self.first = named;
    }

    /// Notes a pod's annotation. The confirmation of a replaced or removed one ends. Returns the changes to persist.
    pub(crate) fn annotated(
        &mut self,
        pod: &PodName,
        annotated: Option<&(String, BranchEni)>,
    ) -> Vec<OrderChange> {
        if self.confirmed.get(pod) != annotated {
            self.confirmed.remove(pod);
        }
        let is_same = |eni: &EniId, uid: &String| {
            annotated.is_some_and(|(now, branch)| now == uid && branch.eni == *eni)
        };
        let of_pod = self.first.iter().filter(|(_, (first, _))| first == pod);
        let ended = of_pod.filter(|(eni, (_, uid))| !is_same(eni, uid));
        let ended: Vec<EniId> = ended.map(|(eni, _)| eni.clone()).collect();
        let mut changes = self.forget(ended);
        let Some((uid, branch)) = annotated else { return changes };
        match self.first.get(&branch.eni) {
            Some((first, _)) if first == pod => {
                self.unseen.remove(&branch.eni);
            }
            Some(_) => {}
            None => {
                let (eni, pod, uid) = (branch.eni.clone(), pod.clone(), uid.clone());
                self.first.insert(eni.clone(), (pod.clone(), uid.clone()));
                changes.push(OrderChange::First { eni, pod, uid });
                // EC2 is asked soon about a new ENI.
                self.fruitless = 0;
            }
        }
        changes
    }

    /// Ends the restored entries that the first complete list of pods does not confirm: their annotations are gone.
    /// Returns the changes to persist.
    pub(crate) fn listed(&mut self) -> Vec<OrderChange> {
        let unseen = std::mem::take(&mut self.unseen);
        self.forget(unseen)
    }

    fn forget(&mut self, enis: impl IntoIterator<Item = EniId>) -> Vec<OrderChange> {
        let forget = |eni: EniId| {
            self.first.remove(&eni);
            self.unseen.remove(&eni);
            OrderChange::Ended { eni }
        };
        enis.into_iter().map(forget).collect()
    }

    /// Another pod whose annotation had the ENI first.
    pub(crate) fn earlier(&self, pod: &PodName, branch: &BranchEni) -> Option<&PodName> {
        self.first.get(&branch.eni).map(|(first, _)| first).filter(|first| *first != pod)
    }

    pub(crate) fn next_ask(&self) -> Option<Time> {
        let doubled = Span(FIRST_INTERVAL.0 << self.fruitless.min(5));
        self.asked.map(|asked| asked + doubled.min(LAST_INTERVAL))
    }
}

/// Compares an annotation with the ENI in EC2's answer, and with the range of the ENI's subnet if it is known.
pub(crate) fn compare(
    branch: &BranchEni,
    seen: &SeenEni,
    trunk: &EniId,
    range: Option<Ipv4Net>,
) -> Comparison {
    let tag = |key: &str| seen.tags.as_ref().and_then(|tags| tags.get(key)).map(String::as_str);
    let pairs = [
        differs("trunk", trunk, tag(TRUNK_TAG).unwrap_or_default()),
        differs("VLAN", branch.vlan, tag(VLAN_TAG).unwrap_or_default()),
        differs("MAC address", branch.mac, seen.mac),
        branch.address.and_then(|own| {
            let shown = seen.primary_address.map(|address| address.to_string());
            differs("address", own, shown.unwrap_or_default())
        }),
        branch.subnet_cidr.zip(range).and_then(|(own, shown)| differs("subnet", own, shown)),
    ];
    let has_v6 = branch.address_v6.is_none_or(|address| seen.ipv6_addresses.contains(&address));
    match pairs.into_iter().flatten().next() {
        Some(difference) => Comparison::Different(difference),
        // An ENI becomes a branch, and gets its IPv6 address, after its creation.
        None if seen.kind != Some(EniKind::Branch) || !has_v6 => Comparison::NotYet,
        None => Comparison::Equal,
    }
}

fn differs(name: &str, expected: impl Display, shown: impl Display) -> Option<String> {
    let (expected, shown) = (expected.to_string(), shown.to_string());
    (expected != shown).then(|| format!("{name} {expected}, which is {shown:?} in EC2"))
}
