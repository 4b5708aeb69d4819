//! Operations, what the kernel's answers to them mean, and the order that executors keep.

use crate::{IfIndex, Ipv4Conf, Ipv6Conf, LinkAddr, Neighbor, Route, Rule, SysctlName};
use config_model::{EniId, Mac, registry};
use std::{collections::BTreeSet, fmt, net::IpAddr};

/// What an operation is for. A refusal stops the rest of its own subject and of no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The primary ENI and what belongs to the node as a whole.
    Node,
    /// A secondary ENI.
    Eni(EniId),
    /// A pod's address: host route and rules.
    Address(IpAddr),
    /// A link that may belong to no pod any more.
    Link(IfIndex),
    /// A rule that belongs to an ENI of before.
    Leftover(Rule),
    /// One setting that is a file.
    Sysctl(SysctlName),
    /// The links that wait to be deleted.
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

/// A link as operations hold it: by number, with the name that it had, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRef {
    /// What counts.
    pub index: IfIndex,
    /// What is written in messages.
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

/// A VLAN link to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanLink {
    /// Its number and its name.
    pub link: LinkRef,
    /// The link that carries it.
    pub parent: LinkRef,
    /// The number of the VLAN.
    pub vlan: u16,
    /// Its Ethernet address.
    pub mac: Mac,
}

impl fmt::Display for VlanLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, parent, vlan, mac } = self;
        write!(f, "{link} with MAC {mac}, VLAN {vlan} of {parent}")
    }
}

/// Every rule of one priority with one address, whatever its table and whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulePattern {
    /// Those to the address.
    To {
        /// The priority.
        pref: u32,
        /// The address.
        address: IpAddr,
    },
    /// Those from the address.
    From {
        /// The priority.
        pref: u32,
        /// The address.
        address: IpAddr,
    },
}

impl fmt::Display for RulePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To { pref, address } => write!(f, "pref {pref} to {address}"),
            Self::From { pref, address } => write!(f, "pref {pref} from {address}"),
        }
    }
}

/// One thing to do to the kernel, with every value that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a VLAN link, and bring it up.
    AddVlan(VlanLink),
    /// Bring the link up.
    SetUp(LinkRef),
    /// Set the link's MTU.
    SetMtu(LinkRef, u32),
    /// Set the link's alias.
    SetAlias(LinkRef, String),
    /// Put the link in a device group.
    SetGroup(LinkRef, u32),
    /// Set one of the link's IPv4 settings.
    SetIpv4(LinkRef, Ipv4Conf, u32),
    /// Set one of the link's IPv6 settings; by a file, so the link is found by name after all.
    SetIpv6(LinkRef, Ipv6Conf, u32),
    /// Delete the link.
    DeleteLink(LinkRef),
    /// Delete every link of the device group.
    DeleteGroup(u32),
    /// Add an address.
    AddAddress(LinkAddr),
    /// Remove an address.
    DeleteAddress(LinkAddr),
    /// Put a route in place, over any of the same table, destination and metric.
    ReplaceRoute(Route),
    /// Add a route where none of the same table, destination and metric is.
    AddRoute(Route),
    /// Remove exactly this route.
    DeleteRoute(Route),
    /// Add a rule.
    AddRule(Rule),
    /// Remove exactly this rule; a twin stays.
    DeleteRule(Rule),
    /// Remove all rules that fit.
    PurgeRules(RulePattern),
    /// Put a neighbor in place.
    SetNeighbor(Neighbor),
    /// Write a setting that is a file.
    WriteSysctl(SysctlName, String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddVlan(vlan) => write!(f, "make {vlan}"),
            Self::SetUp(link) => write!(f, "bring up {link}"),
            Self::SetMtu(link, mtu) => write!(f, "set MTU of {link} to {mtu}"),
            Self::SetAlias(link, alias) => write!(f, "set alias of {link} to {alias}"),
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
            Self::WriteSysctl(name, value) => write!(f, "set {name} to {value}"),
        }
    }
}

/// An operation: what to do, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it is for.
    pub subject: Subject,
    /// What to do.
    pub action: Action,
}

impl Op {
    /// An operation.
    pub fn new(subject: Subject, action: Action) -> Self {
        Self { subject, action }
    }

    /// What it is for.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.action)
    }
}

/// An error number of Linux.
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

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel did it.
    Changed,
    /// It was so before.
    AlreadySo,
    /// Something else is in its place; the next observation decides.
    Conflict(Errno),
    /// The kernel would not.
    Refused(Errno),
}

/// What the kernel's answer to an action means.
///
/// The table goes by object, not by number alone: EEXIST for a rule says that the same rule of the
/// same protocol is there; for a route it can be another next hop on the same key.
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
            if gone =>
        {
            Outcome::AlreadySo
        }
        // What waits for its deletion may be deleted by another, as with its network namespace.
        Action::SetGroup(_, registry::GROUP_REAP) if gone => Outcome::AlreadySo,
        Action::AddVlan(_)
        | Action::SetUp(_)
        | Action::SetMtu(..)
        | Action::SetAlias(..)
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
        | Action::WriteSysctl(..) => Outcome::Refused(errno),
    }
}

/// An operation that the kernel did not carry out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {errno}")]
pub struct Refused {
    /// Which.
    pub op: Op,
    /// Why.
    pub errno: Errno,
}

/// What became of a list of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// How many changed something.
    pub changed: usize,
    /// How many found it done.
    pub already: usize,
    /// How many were left out after a refusal within their subject.
    pub skipped: usize,
    /// Every refusal.
    pub refused: Vec<Refused>,
}

/// The bookkeeping of an executor: which subjects are stuck, and what became of each operation.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    stuck: BTreeSet<Subject>,
    applied: Applied,
}

impl Execution {
    /// Whether the operation is to be carried out; if not, it is counted as left out.
    pub fn admits(&mut self, op: &Op) -> bool {
        let free = !self.stuck.contains(&op.subject);
        self.applied.skipped += usize::from(!free);
        free
    }

    /// Takes down the kernel's answer.
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

    /// What became of all.
    pub fn finish(self) -> Applied {
        self.applied
    }
}
