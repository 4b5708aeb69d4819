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
/// The pause between two writes of the order of annotations to the checkpoint. A tenant can edit an annotation in a
/// loop, and a write waits for the disk.
const WRITE_PAUSE: Span = Span::seconds(1);

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
    /// The checkpoint may lack a change of `first`.
    is_unwritten: bool,
    /// The time of the last write of a change.
    written: Option<Time>,
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

    /// Notes a pod's annotation. The confirmation of a replaced or removed one ends.
    pub(crate) fn annotated(&mut self, pod: &PodName, annotated: Option<&(String, BranchEni)>) {
        if self.confirmed.get(pod) != annotated {
            self.confirmed.remove(pod);
        }
        let is_same = |eni: &EniId, uid: &String| {
            annotated.is_some_and(|(now, branch)| now == uid && branch.eni == *eni)
        };
        let of_pod = self.first.iter().filter(|(_, (first, _))| first == pod);
        let ended = of_pod.filter(|(eni, (_, uid))| !is_same(eni, uid));
        let ended: Vec<EniId> = ended.map(|(eni, _)| eni.clone()).collect();
        self.forget(ended);
        let Some((uid, branch)) = annotated else { return };
        match self.first.get(&branch.eni) {
            Some((first, _)) if first == pod => {
                self.unseen.remove(&branch.eni);
            }
            Some(_) => {}
            None => {
                self.first.insert(branch.eni.clone(), (pod.clone(), uid.clone()));
                self.is_unwritten = true;
                // EC2 is asked soon about a new ENI.
                self.fruitless = 0;
            }
        }
    }

    /// Ends the restored entries that the first complete list of pods does not confirm: their annotations are gone.
    pub(crate) fn listed(&mut self) {
        let unseen = std::mem::take(&mut self.unseen);
        self.forget(unseen);
    }

    fn forget(&mut self, enis: impl IntoIterator<Item = EniId>) {
        for eni in enis {
            self.first.remove(&eni);
            self.unseen.remove(&eni);
            self.is_unwritten = true;
        }
    }

    /// The time of the next write of the order. `None` if the checkpoint has the order.
    pub(crate) fn next_write(&self) -> Option<Time> {
        self.is_unwritten.then(|| self.written.map_or(Time(0), |at| at + WRITE_PAUSE))
    }

    /// Takes the changes from the order in the checkpoint. An order that has changed back needs none.
    pub(crate) fn take_changes(
        &mut self,
        checkpoint: &BTreeMap<EniId, (PodName, String)>,
        now: Time,
    ) -> Vec<OrderChange> {
        if !std::mem::take(&mut self.is_unwritten) {
            return Vec::new();
        }
        let ended = checkpoint.keys().filter(|eni| !self.first.contains_key(*eni));
        let ended = ended.map(|eni| OrderChange::Ended { eni: eni.clone() });
        let first = self.first.iter().filter(|(eni, of)| checkpoint.get(*eni) != Some(*of));
        let first = first.map(|(eni, (pod, uid))| {
            let (eni, pod, uid) = (eni.clone(), pod.clone(), uid.clone());
            OrderChange::First { eni, pod, uid }
        });
        let changes: Vec<OrderChange> = ended.chain(first).collect();
        if !changes.is_empty() {
            self.written = Some(now);
        }
        changes
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

#[cfg(test)]
mod tests {
    use super::*;
    use config_model::Mac;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn annotation(uid: &str, eni: &str) -> (String, BranchEni) {
        let branch = BranchEni {
            eni: eni.into(),
            mac: Mac([6, 0, 0, 0, 0, 1]),
            address: None,
            address_v6: None,
            vlan: 7,
            subnet_cidr: None,
            subnet_cidr_v6: None,
        };
        (uid.to_owned(), branch)
    }

    fn first(eni: &str, name: &str, uid: &str) -> OrderChange {
        OrderChange::First { eni: eni.into(), pod: pod(name), uid: uid.to_owned() }
    }

    #[test]
    fn the_changes_lead_from_the_checkpoint_to_the_order() {
        let mut checks = BranchChecks::default();
        let start = BTreeMap::from([
            ("eni-a".into(), (pod("a"), "1".to_owned())),
            ("eni-b".into(), (pod("b"), "2".to_owned())),
            ("eni-c".into(), (pod("c"), "3".to_owned())),
        ]);
        checks.restore(start.clone());
        assert_eq!(checks.next_write(), None);
        // The same annotation, another ENI, another pod of the name, and a new pod.
        checks.annotated(&pod("a"), Some(&annotation("1", "eni-a")));
        assert_eq!(checks.next_write(), None);
        checks.annotated(&pod("b"), Some(&annotation("2", "eni-x")));
        checks.annotated(&pod("c"), Some(&annotation("4", "eni-c")));
        checks.annotated(&pod("d"), Some(&annotation("5", "eni-b")));
        let changes = checks.take_changes(&start, Time(0));
        let wanted = [first("eni-b", "d", "5"), first("eni-c", "c", "4"), first("eni-x", "b", "2")];
        assert_eq!(changes, wanted);
        assert_eq!(checks.take_changes(&start, Time(0)), []);
        checks.annotated(&pod("a"), None);
        let changes = checks.take_changes(&start, Time(0));
        assert!(changes.contains(&OrderChange::Ended { eni: "eni-a".into() }), "{changes:?}");
    }

    #[test]
    fn a_first_change_is_due_at_once_and_further_ones_after_a_pause() {
        let (mut checks, mut checkpoint) = (BranchChecks::default(), BTreeMap::new());
        let now = Time(60_000);
        checks.annotated(&pod("a"), Some(&annotation("1", "eni-a")));
        assert!(checks.next_write() <= Some(now));
        assert_eq!(checks.take_changes(&checkpoint, now), [first("eni-a", "a", "1")]);
        checkpoint.insert("eni-a".into(), (pod("a"), "1".to_owned()));
        assert_eq!(checks.next_write(), None);
        for eni in ["eni-b", "eni-a"] {
            checks.annotated(&pod("a"), Some(&annotation("1", eni)));
            assert_eq!(checks.next_write(), Some(now + WRITE_PAUSE));
        }
        // The order has changed back, so nothing is written and the next change is due as before.
        assert_eq!(checks.take_changes(&checkpoint, now + WRITE_PAUSE), []);
        checks.annotated(&pod("a"), None);
        assert_eq!(checks.next_write(), Some(now + WRITE_PAUSE));
    }
}
