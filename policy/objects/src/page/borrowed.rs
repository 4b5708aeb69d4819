//! NetworkPolicies, borrowed by a page.

use super::MetaView;
use crate::{
    Block, Flavor, Meta, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, Operator, Parsed,
    PolicyType, Read, Requirement, Selector, Subject,
};

/// An item of a page of NetworkPolicies.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyItem<'a> {
    /// The object is completely understood and has no notes.
    Borrowed(PolicyView<'a>),
    /// Anything else.
    Read(Box<Parsed>),
}

/// A NetworkPolicy of `networking.k8s.io/v1` without anything odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView<'a> {
    pub meta: MetaView<'a>,
    /// The pods of its namespace that it is about.
    pub subject: SelectorView<'a>,
    /// Allowed ingress; `None`: the policy does not apply to ingress.
    pub ingress: Option<Vec<RuleView<'a>>>,
    /// Allowed egress; `None`: the policy does not apply to egress.
    pub egress: Option<Vec<RuleView<'a>>>,
}

/// A rule; the fields are [`NetworkRule`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView<'a> {
    /// None: any peer.
    pub peers: Vec<PeerView<'a>>,
    /// None: any port of any protocol.
    pub ports: Vec<NetworkPort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerView<'a> {
    Pods {
        /// Of these namespaces; `None`: of the policy's own.
        namespaces: Option<SelectorView<'a>>,
        /// These; `None`: all.
        pods: Option<SelectorView<'a>>,
    },
    /// Addresses.
    Block(Block),
}

/// A selector; sorted as [`Selector`]'s requirements are, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectorView<'a> {
    requirements: Vec<RequirementView<'a>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequirementView<'a> {
    /// The label's key.
    pub key: &'a str,
    pub operator: OperatorView<'a>,
}

/// A condition on a label's value; ordered as [`Operator`] is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorView<'a> {
    In(ValuesView<'a>),
    /// None of these.
    NotIn(ValuesView<'a>),
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// Values, sorted, each once; one of them needs no memory.
#[derive(Clone, Debug)]
pub struct ValuesView<'a>(Values<'a>);

#[derive(Clone, Debug)]
enum Values<'a> {
    One(&'a str),
    Many(Vec<&'a str>),
}

impl<'a> ValuesView<'a> {
    pub(super) fn one(value: &'a str) -> Self {
        Self(Values::One(value))
    }

    /// Any number of them, in any order.
    pub(super) fn many(mut values: Vec<&'a str>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self(Values::Many(values))
    }

    pub fn as_slice(&self) -> &[&'a str] {
        match &self.0 {
            Values::One(value) => std::slice::from_ref(value),
            Values::Many(values) => values,
        }
    }
}

impl PartialEq for ValuesView<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for ValuesView<'_> {}

impl PartialOrd for ValuesView<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ValuesView<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl<'a> SelectorView<'a> {
    pub(super) fn new(mut requirements: Vec<RequirementView<'a>>) -> Self {
        if requirements.len() > 1 {
            requirements.sort_unstable();
            requirements.dedup();
        }
        Self { requirements }
    }

    pub fn requirements(&self) -> &[RequirementView<'a>] {
        &self.requirements
    }
}

impl<'a> From<&'a Selector> for SelectorView<'a> {
    fn from(selector: &'a Selector) -> Self {
        let values = |values: &'a std::collections::BTreeSet<String>| match values.first() {
            Some(only) if values.len() == 1 => ValuesView::one(only),
            _ => ValuesView::many(values.iter().map(String::as_str).collect()),
        };
        let requirement = |Requirement { key, operator }: &'a Requirement| RequirementView {
            key,
            operator: match operator {
                Operator::In(of) => OperatorView::In(values(of)),
                Operator::NotIn(of) => OperatorView::NotIn(values(of)),
                Operator::Exists => OperatorView::Exists,
                Operator::DoesNotExist => OperatorView::DoesNotExist,
            },
        };
        Self { requirements: selector.requirements.iter().map(requirement).collect() }
    }
}

impl From<SelectorView<'_>> for Selector {
    fn from(view: SelectorView<'_>) -> Self {
        let values = |values: ValuesView<'_>| {
            values.as_slice().iter().map(|value| (*value).to_owned()).collect()
        };
        let requirement = |RequirementView { key, operator }: RequirementView<'_>| Requirement {
            key: key.to_owned(),
            operator: match operator {
                OperatorView::In(of) => Operator::In(values(of)),
                OperatorView::NotIn(of) => Operator::NotIn(values(of)),
                OperatorView::Exists => Operator::Exists,
                OperatorView::DoesNotExist => Operator::DoesNotExist,
            },
        };
        Self { requirements: view.requirements.into_iter().map(requirement).collect() }
    }
}

impl<'a> PolicyView<'a> {
    /// Borrows from an object; `None` if a part is not understood or a view cannot express it.
    pub fn of(policy: &'a NetworkPolicy) -> Option<Self> {
        let NetworkPolicy { meta, flavor, subject, types, ingress, egress } = policy;
        if *flavor != Flavor::Kubernetes || subject.doubt.is_some() {
            return None;
        }
        let of = |direction, rules: &'a [Read<NetworkRule>]| match types.contains(&direction) {
            true => rules
                .iter()
                .map(|rule| RuleView::of(rule.known()?))
                .collect::<Option<_>>()
                .map(Some),
            false => rules.is_empty().then_some(None),
        };
        Some(Self {
            meta: MetaView::from(meta),
            subject: SelectorView::from(&subject.selects),
            ingress: of(PolicyType::Ingress, ingress)?,
            egress: of(PolicyType::Egress, egress)?,
        })
    }
}

impl<'a> RuleView<'a> {
    fn of(rule: &'a NetworkRule) -> Option<Self> {
        let peer = |peer: &'a NetworkPeer| match peer {
            NetworkPeer::Pods { namespaces, pods } => Some(PeerView::Pods {
                namespaces: namespaces.as_ref().map(SelectorView::from),
                pods: pods.as_ref().map(SelectorView::from),
            }),
            NetworkPeer::Block(block) => Some(PeerView::Block(block.clone())),
            NetworkPeer::Domains(_) => None,
        };
        let peers = rule.peers.iter().map(peer).collect::<Option<_>>()?;
        Some(Self { peers, ports: rule.ports.clone() })
    }
}

impl From<RuleView<'_>> for NetworkRule {
    fn from(view: RuleView<'_>) -> Self {
        let peer = |peer: PeerView<'_>| match peer {
            PeerView::Pods { namespaces, pods } => NetworkPeer::Pods {
                namespaces: namespaces.map(Selector::from),
                pods: pods.map(Selector::from),
            },
            PeerView::Block(block) => NetworkPeer::Block(block),
        };
        Self { peers: view.peers.into_iter().map(peer).collect(), ports: view.ports }
    }
}

impl From<PolicyView<'_>> for NetworkPolicy {
    fn from(view: PolicyView<'_>) -> Self {
        let types = [
            (PolicyType::Ingress, view.ingress.is_some()),
            (PolicyType::Egress, view.egress.is_some()),
        ];
        let rules = |rules: Option<Vec<RuleView<'_>>>| {
            rules.into_iter().flatten().map(|rule| Read::Known(rule.into())).collect()
        };
        Self {
            meta: Meta::from(view.meta),
            flavor: Flavor::Kubernetes,
            subject: Subject { selects: view.subject.into(), doubt: None },
            types: types.into_iter().filter(|(_, is)| *is).map(|(of, _)| of).collect(),
            ingress: rules(view.ingress),
            egress: rules(view.egress),
        }
    }
}
