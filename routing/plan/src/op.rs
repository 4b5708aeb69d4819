//! Operations, the meaning of the kernel's answers, and the order of execution.

use crate::{IfIndex, Ipv4Conf, Ipv6Conf, LinkAddr, Neighbor, Route, Rule, SysctlName};
use config_model::{EniId, Mac, registry};
use std::{collections::BTreeSet, fmt, net::IpAddr};

/// The object that an operation is for. A refusal stops the other operations of its own subject only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The primary ENI and what belongs to the node as a whole.
    Node,
    /// A secondary ENI.
    Eni(EniId),
    /// A pod's address: host route and rules.
    Address(IpAddr),
    /// A link that may belong to no pod any longer.
    Link(IfIndex),
    /// A rule of a former ENI or of a former layout.
    Leftover(Rule),
    Sysctl(SysctlName),
    /// The links of the reap group.
    Reap,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("node"),
            Self::Eni(eni) => write!(f, "{eni}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Link(index) => write!(f, "link #{index}"),
            Self::Leftover(rule) => write!(f, "rule {rule}"),
            Self::Sysctl(name) => write!(f, "{name}"),
            Self::Reap => f.write_str("links to be deleted"),
        }
    }
}

/// A link in an operation. The kernel uses the index; the name is for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRef {
    pub index: IfIndex,
    pub name: String,
}

impl From<&crate::Link> for LinkRef {
    fn from(link: &crate::Link) -> Self {
        Self { index: link.index, name: link.name.clone() }
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (#{})", self.name, self.index)
    }
}

/// A VLAN link to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanLink {
    pub link: LinkRef,
    /// The trunk's link.
    pub parent: LinkRef,
    /// The VLAN id.
    pub vlan: u16,
    pub mac: Mac,
}

impl fmt::Display for VlanLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, parent, vlan, mac } = self;
        write!(f, "{link} with MAC {mac}, VLAN {vlan} of {parent}")
    }
}

/// All rules of one priority with one address, whatever their table or protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePattern {
    /// Rules to the address.
    To { pref: u32, address: IpAddr },
    /// Rules from the address.
    From { pref: u32, address: IpAddr },
}

impl fmt::Display for RulePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To { pref, address } => write!(f, "pref {pref} to {address}"),
            Self::From { pref, address } => write!(f, "pref {pref} from {address}"),
        }
    }
}

/// One change of the kernel's state, with every value that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a VLAN link and set it up.
    AddVlan(VlanLink),
    SetUp(LinkRef),
    SetMtu(LinkRef, u32),
    SetAlias(LinkRef, String),
    /// Set the alias of a new link and take it out of [`registry::GROUP_NEW`] with one message.
    Claim(LinkRef, String),
    SetGroup(LinkRef, u32),
    SetIpv4(LinkRef, Ipv4Conf, u32),
    /// Set an IPv6 setting of the link. The file's path contains the link's name instead of its index.
    SetIpv6(LinkRef, Ipv6Conf, u32),
    DeleteLink(LinkRef),
    /// Delete all links of the device group with one message.
    DeleteGroup(u32),
    AddAddress(LinkAddr),
    DeleteAddress(LinkAddr),
    /// Add a route, or replace the one with the same table, destination and metric.
    ReplaceRoute(Route),
    /// Add a route; refused if one with the same table, destination and metric exists.
    AddRoute(Route),
    DeleteRoute(Route),
    AddRule(Rule),
    /// Remove exactly this rule; an equal rule with another protocol stays.
    DeleteRule(Rule),
    /// Remove all matching rules.
    PurgeRules(RulePattern),
    /// Add or replace a neighbor entry.
    SetNeighbor(Neighbor),
    /// Remove the neighbor entry of this link and address.
    DeleteNeighbor(Neighbor),
    WriteSysctl(SysctlName, String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddVlan(vlan) => write!(f, "make {vlan}"),
            Self::SetUp(link) => write!(f, "bring up {link}"),
            Self::SetMtu(link, mtu) => write!(f, "set MTU of {link} to {mtu}"),
            Self::SetAlias(link, alias) => write!(f, "set alias of {link} to {alias}"),
            Self::Claim(link, alias) => write!(f, "claim {link} as {alias}"),
            Self::SetGroup(link, group) => write!(f, "put {link} in group {group:#x}"),
            Self::SetIpv4(link, conf, value) => write!(f, "set {conf} of {link} to {value}"),
            Self::SetIpv6(link, conf, value) => write!(f, "set {conf} of {link} to {value}"),
            Self::DeleteLink(link) => write!(f, "delete {link}"),
            Self::DeleteGroup(group) => write!(f, "delete the links of group {group:#x}"),
            Self::AddAddress(a) => write!(f, "add address {} to link #{}", a.address, a.dev),
            Self::DeleteAddress(a) => write!(f, "remove address {} of link #{}", a.address, a.dev),
            Self::ReplaceRoute(route) => write!(f, "put route {route}"),
            Self::AddRoute(route) => write!(f, "add route {route}"),
            Self::DeleteRoute(route) => write!(f, "remove route {route}"),
            Self::AddRule(rule) => write!(f, "add rule {rule}"),
            Self::DeleteRule(rule) => write!(f, "remove rule {rule}, protocol {}", rule.protocol),
            Self::PurgeRules(pattern) => write!(f, "remove all rules {pattern}"),
            Self::SetNeighbor(n) => write!(f, "put neighbor {} on link #{}", n.address, n.dev),
            Self::DeleteNeighbor(n) => {
                write!(f, "remove neighbor {} of link #{}", n.address, n.dev)
            }
            Self::WriteSysctl(name, value) => write!(f, "set {name} to {value}"),
        }
    }
}

/// An action with its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub subject: Subject,
    pub action: Action,
}

impl Op {
    pub fn new(subject: Subject, action: Action) -> Self {
        Self { subject, action }
    }

    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.action)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const EPERM: Self = Self(1);
    /// No such object.
    pub const ENOENT: Self = Self(2);
    /// No such route.
    pub const ESRCH: Self = Self(3);
    /// Input or output failed.
    pub const EIO: Self = Self(5);
    /// In use.
    pub const EBUSY: Self = Self(16);
    /// The object is there already.
    pub const EEXIST: Self = Self(17);
    /// No such link.
    pub const ENODEV: Self = Self(19);
    /// The request makes no sense.
    pub const EINVAL: Self = Self(22);
    /// The kernel does not have this family of addresses.
    pub const EAFNOSUPPORT: Self = Self(97);
    /// The object cannot do that.
    pub const EOPNOTSUPP: Self = Self(95);
    /// No such address on the link.
    pub const EADDRNOTAVAIL: Self = Self(99);
    /// The link is down.
    pub const ENETDOWN: Self = Self(100);
    /// The gateway cannot be reached.
    pub const ENETUNREACH: Self = Self(101);
    /// The same, of IPv6.
    pub const EHOSTUNREACH: Self = Self(113);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::EPERM => "EPERM",
            Self::ENOENT => "ENOENT",
            Self::ESRCH => "ESRCH",
            Self::EIO => "EIO",
            Self::EBUSY => "EBUSY",
            Self::EEXIST => "EEXIST",
            Self::ENODEV => "ENODEV",
            Self::EINVAL => "EINVAL",
            Self::EAFNOSUPPORT => "EAFNOSUPPORT",
            Self::EOPNOTSUPP => "EOPNOTSUPP",
            Self::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            Self::ENETDOWN => "ENETDOWN",
            Self::ENETUNREACH => "ENETUNREACH",
            Self::EHOSTUNREACH => "EHOSTUNREACH",
            Self(number) => return write!(f, "errno {number}"),
        };
        f.write_str(name)
    }
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel changed its state.
    Changed,
    /// The state was as desired before.
    AlreadySo,
    /// Another object is in its place. The next observation decides.
    Conflict(Errno),
    /// The kernel refused.
    Refused(Errno),
}

/// Interprets the kernel's answer to an action.
///
/// The meaning depends on the action. EEXIST for a rule means that the same rule with the same protocol exists. For a
/// route it may be a different next hop for the same key.
pub fn outcome(action: &Action, answer: Result<(), Errno>) -> Outcome {
    let Err(errno) = answer else { return Outcome::Changed };
    let gone = matches!(errno, Errno::ENOENT | Errno::ESRCH | Errno::ENODEV | Errno::EADDRNOTAVAIL);
    match action {
        Action::AddRule(_) | Action::AddAddress(_) if errno == Errno::EEXIST => Outcome::AlreadySo,
        Action::AddRoute(_) if errno == Errno::EEXIST => Outcome::Conflict(errno),
        Action::DeleteLink(_)
        | Action::DeleteGroup(_)
        | Action::DeleteAddress(_)
        | Action::DeleteRoute(_)
        | Action::DeleteRule(_)
        | Action::PurgeRules(_)
        | Action::DeleteNeighbor(_)
            if gone =>
        {
            Outcome::AlreadySo
        }
        // Another process may delete a link of the reap group, for example with its network namespace.
        Action::SetGroup(_, registry::GROUP_REAP) if gone => Outcome::AlreadySo,
        Action::AddVlan(_)
        | Action::SetUp(_)
        | Action::SetMtu(..)
        | Action::SetAlias(..)
        | Action::Claim(..)
        | Action::SetGroup(..)
        | Action::SetIpv4(..)
        | Action::SetIpv6(..)
        | Action::DeleteLink(_)
        | Action::DeleteGroup(_)
        | Action::AddAddress(_)
        | Action::DeleteAddress(_)
        | Action::ReplaceRoute(_)
        | Action::AddRoute(_)
        | Action::DeleteRoute(_)
        | Action::AddRule(_)
        | Action::DeleteRule(_)
        | Action::PurgeRules(_)
        | Action::SetNeighbor(_)
        | Action::DeleteNeighbor(_)
        | Action::WriteSysctl(..) => Outcome::Refused(errno),
    }
}

/// An operation that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {errno}")]
pub struct Refused {
    pub op: Op,
    pub errno: Errno,
}

/// The result of a list of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Number of operations that changed something.
    pub changed: usize,
    /// Number of operations whose result existed before.
    pub already: usize,
    /// Number of operations that were skipped after a refusal within their subject.
    pub skipped: usize,
    pub refused: Vec<Refused>,
}

/// Bookkeeping of an executor: the subjects with a refusal, and the results.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    stuck: BTreeSet<Subject>,
    applied: Applied,
}

impl Execution {
    /// Returns true if the operation is to be executed. Otherwise it counts as skipped.
    pub fn admits(&mut self, op: &Op) -> bool {
        let free = !self.stuck.contains(&op.subject);
        self.applied.skipped += usize::from(!free);
        free
    }

    /// Records the kernel's answer.
    pub fn record(&mut self, op: &Op, answer: Result<(), Errno>) -> Outcome {
        let outcome = outcome(&op.action, answer);
        match outcome {
            Outcome::Changed => self.applied.changed += 1,
            Outcome::AlreadySo => self.applied.already += 1,
            Outcome::Conflict(errno) | Outcome::Refused(errno) => {
                self.stuck.insert(op.subject.clone());
                self.applied.refused.push(Refused { op: op.clone(), errno });
            }
        }
        outcome
    }

    pub fn finish(self) -> Applied {
        self.applied
    }
}
