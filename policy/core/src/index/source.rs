//! Sources of a group's members.

use super::{
    delta::{Canonical, GroupId},
    entities::ACCOUNT,
    matching::{Borrowed, PodSelection},
};
use crate::{Peer, Pods, Scope};
use policy_objects::{Named, Operator, Requirement, Selector, page::SelectorView};
use std::{borrow::Cow, collections::BTreeSet};

/// Object on which a group's members depend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Dependency {
    Group(Named),
    Service(Named),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source<'a> {
    Pods(PodSelection<'a>),
    Members(MembersOf),
    /// The addresses of a Service; as a subject it has no pods.
    Service(Cow<'a, Named>),
}

/// Members of a ClusterGroup, of a Group, or behind a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MembersOf {
    pub(super) thing: Dependency,
    pub(super) space: Option<String>,
    /// Of namespaces with these labels alone.
    pub(super) spaces: Option<Selector>,
}

impl<'a> Source<'a> {
    /// `None` for pods that depend on the subject's namespace.
    pub(super) fn of(pods: &'a Pods) -> Option<Self> {
        Some(match pods {
            Pods::Labeled { scope, pods } => {
                let (space, spaces) = match scope {
                    Scope::Namespace(name) => (Some(Cow::Borrowed(name.as_str())), None),
                    Scope::Namespaces(selector) => (None, Some(Cow::Borrowed(selector))),
                    Scope::SameNamespace | Scope::SameLabels(_) => return None,
                };
                Self::Pods(PodSelection { space, spaces, selector: Cow::Borrowed(pods) })
            }
            Pods::Group(group) => Self::members(Dependency::Group(group.clone())),
            Pods::Service(service) => Self::members(Dependency::Service(service.clone())),
            Pods::ServiceAccount(account) => Self::Pods(PodSelection {
                space: Some(Cow::Borrowed(&account.namespace)),
                spaces: None,
                selector: Cow::Owned(only(ACCOUNT, &account.name)),
            }),
        })
    }

    fn members(thing: Dependency) -> Self {
        Self::Members(MembersOf { thing, space: None, spaces: None })
    }

    pub(super) fn of_peer(peer: &'a Peer) -> Option<Self> {
        match peer {
            Peer::Pods(pods) => Self::of(pods),
            Peer::Nodes(selector) => Some(Self::nodes(selector)),
            Peer::Service(name) => Some(Self::Service(Cow::Borrowed(name))),
            Peer::Block(_) | Peer::Name(_) => None,
        }
    }

    pub(super) fn nodes(selector: &'a Selector) -> Self {
        let (space, selector) = (Some(Cow::Borrowed("")), Cow::Borrowed(selector));
        Self::Pods(PodSelection { space, spaces: None, selector })
    }

    pub(super) fn all_pods() -> Self {
        Self::Pods(PodSelection { space: None, spaces: None, selector: Cow::default() })
    }

    /// Limits the source to one namespace. `None`: it can have no members.
    pub(super) fn within_space(self, name: &str) -> Option<Self> {
        Some(match self {
            Self::Pods(wanted) => match &wanted.space {
                Some(space) if space == name => Self::Pods(wanted),
                Some(_) => return None,
                None => {
                    let space = Some(Cow::Owned(name.to_owned()));
                    Self::Pods(PodSelection { space, ..wanted })
                }
            },
            Self::Members(of) => {
                let other = of.space.as_ref().is_some_and(|space| space != name);
                let space = Some(name.to_owned());
                (!other).then_some(Self::Members(MembersOf { space, ..of }))?
            }
            Self::Service(_) => return None,
        })
    }

    /// Limits the source to namespaces with such labels.
    pub(super) fn within_spaces(self, more: &Selector) -> Self {
        match self {
            Self::Pods(wanted) => {
                let spaces = wanted.spaces.map(Cow::into_owned);
                Self::Pods(PodSelection { spaces: Some(Cow::Owned(both(spaces, more))), ..wanted })
            }
            Self::Members(of) => {
                Self::Members(MembersOf { spaces: Some(both(of.spaces, more)), ..of })
            }
            Self::Service(name) => Self::Service(name),
        }
    }

    pub(super) fn id(&self) -> GroupId {
        let (mut canonical, space, spaces) = match self {
            Self::Pods(PodSelection { space, spaces, selector }) => {
                let mut canonical = Canonical::new("pods");
                canonical.selector(&SelectorView::from(&**selector));
                (canonical, space.as_deref(), spaces.as_deref())
            }
            Self::Members(MembersOf { thing, space, spaces }) => {
                let (word, name) = match thing {
                    Dependency::Group(name) => ("members", name),
                    Dependency::Service(name) => ("behind", name),
                };
                let mut canonical = Canonical::new(word);
                canonical.text(&name.namespace);
                canonical.text(&name.name);
                (canonical, space.as_deref(), spaces.as_ref())
            }
            Self::Service(name) => {
                let mut canonical = Canonical::new("service");
                canonical.text(&name.namespace);
                canonical.text(&name.name);
                (canonical, None, None)
            }
        };
        canonical.maybe(space);
        // All ways to select all namespaces give the same scope.
        let spaces = spaces.filter(|spaces| !spaces.requirements.is_empty());
        canonical.number(usize::from(spaces.is_some()));
        spaces.into_iter().for_each(|spaces| canonical.selector(&SelectorView::from(spaces)));
        canonical.id()
    }
}

impl Borrowed<'_> {
    /// As [`Source::id`] of the same.
    pub(super) fn id(self) -> GroupId {
        let mut canonical = Canonical::new("pods");
        canonical.selector(self.selector);
        canonical.maybe(self.spaces.is_none().then_some(self.own));
        let spaces = self.spaces.filter(|spaces| !spaces.requirements().is_empty());
        canonical.number(usize::from(spaces.is_some()));
        spaces.into_iter().for_each(|spaces| canonical.selector(spaces));
        canonical.id()
    }
}

impl GroupId {
    /// The group of pods that a rule of a policy of this namespace (empty: of the cluster) is about. `None`:
    /// there can be no such pods.
    pub fn of_subject(pods: &Pods, own: &str) -> Option<Self> {
        let source = Source::of(pods)?;
        let source = if own.is_empty() { Some(source) } else { source.within_space(own) };
        source.map(|source| source.id())
    }

    /// The group of a peer. `None` for peers without a group. These are blocks and names, which are in the policy's
    /// form, and pods that depend on the subject's namespace, whose groups are
    /// [expanded](super::Uses::expanded).
    pub fn of_peer(peer: &Peer) -> Option<Self> {
        Source::of_peer(peer).map(|source| source.id())
    }

    /// The group of all pods, from which ports of any address are known by name.
    pub fn of_all_pods() -> Self {
        Source::all_pods().id()
    }
}

/// Both selectors' requirements.
fn both(one: Option<Selector>, other: &Selector) -> Selector {
    let mut requirements = one.unwrap_or_default().requirements;
    requirements.extend(other.requirements.iter().cloned());
    Selector { requirements }
}

/// One label, with one value.
pub(super) fn only(key: &str, value: &str) -> Selector {
    let operator = Operator::In(BTreeSet::from([value.to_owned()]));
    Selector { requirements: BTreeSet::from([Requirement { key: key.to_owned(), operator }]) }
}
