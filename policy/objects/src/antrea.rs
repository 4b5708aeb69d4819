//! `crd.antrea.io/v1beta1`: Tier, ClusterNetworkPolicy, NetworkPolicy, ClusterGroup, Group.

use crate::{Block, Meta, PortRange, Protocol, Read, Selector, Subject, TargetPort};
use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    pub meta: Meta,
    /// Lower is before; what is not understood makes the Tier one that does not exist.
    pub priority: Read<u8>,
}

/// A ClusterNetworkPolicy, or a NetworkPolicy where `meta` has a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct AntreaPolicy {
    pub meta: Meta,
    /// As written, except the old capitalized names of tiers; `application` if absent.
    pub tier: String,
    /// Lower first; finite. Not understood: before every other of the tier, for no rule is understood
    /// either, and what denies denies all.
    pub priority: f64,
    /// Subjects of the policy; empty if its rules have their own.
    pub applied_to: Vec<Subject<AntreaAppliedTo>>,
    pub ingress: Vec<AntreaEntry>,
    pub egress: Vec<AntreaEntry>,
}

/// A rule, with what it is about also where the rest of it is not understood.
#[derive(Clone, Debug, PartialEq)]
pub struct AntreaEntry {
    /// Subjects of the rule; if empty, those of the policy apply.
    pub applied_to: Vec<Subject<AntreaAppliedTo>>,
    pub rule: Read<AntreaRule>,
}

/// A subject of a policy or of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AntreaAppliedTo {
    /// Pods; both `None`: an empty item, which is nothing in a ClusterNetworkPolicy and the whole
    /// namespace in a NetworkPolicy.
    Pods {
        /// Of these namespaces; `None`: of all (ClusterNetworkPolicy), or of the policy's own.
        namespaces: Option<Selector>,
        /// These; `None`: all.
        pods: Option<Selector>,
    },
    /// The members of a ClusterGroup, or of a Group of the policy's namespace.
    Group(String),
    /// Pods of a service account.
    ServiceAccount(Named),
    /// Traffic to a Service from outside the cluster. It is not supported, because at the pods it cannot be
    /// distinguished from other traffic. `None`: the Service is not understood, so it may have any pod.
    Service(Option<Named>),
    /// Nodes, which are no pods: it is not supported.
    Nodes,
    /// External entities, which are no pods: it is not supported.
    External,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AntreaRule {
    /// For people; never empty.
    pub name: Option<String>,
    pub action: AntreaAction,
    /// One of these; none: every address, unless there are `services`.
    pub peers: Vec<AntreaPeer>,
    /// And one of these: `ports` and `protocols`; none: anything.
    pub ports: Vec<AntreaPort>,
    /// A Service's address that was asked for (`toServices`); egress alone, and then no peers and ports.
    pub services: Vec<Named>,
    /// `None` if the rule does not log.
    pub logging: Option<Logging>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AntreaAction {
    /// Allowed.
    Allow,
    /// Dropped.
    Drop,
    /// Drops the packet and informs the sender.
    Reject,
    /// On to NetworkPolicies.
    Pass,
}

/// A name in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Named {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AntreaPeer {
    /// Pods; both `None` as in [`AntreaAppliedTo::Pods`].
    Pods {
        /// Of these namespaces; `None`: of all (ClusterNetworkPolicy), or of the policy's own.
        namespaces: Option<Selector>,
        /// These; `None`: all.
        pods: Option<Selector>,
    },
    /// Pods of namespaces that are as the subject's is.
    Matching {
        namespaces: NamespaceMatch,
        /// These; `None`: all.
        pods: Option<Selector>,
    },
    /// Addresses.
    Block(Block),
    /// The members of a ClusterGroup, or of a Group of the policy's namespace.
    Group(String),
    /// Pods of a service account.
    ServiceAccount(Named),
    Nodes(Selector),
    Fqdn(FqdnPattern),
}

/// In what a namespace is as the subject's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamespaceMatch {
    Same,
    /// Namespaces with the subject's values of these labels; at least one label. The subject has all of them.
    SameLabels(Vec<String>),
}

/// A name where `*` stands for any characters, also none and also dots; in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FqdnPattern(pub String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AntreaPort {
    Transport {
        protocol: Protocol,
        /// `None`: every port of it.
        port: Option<TargetPort>,
        /// The sender's port; `None`: any.
        source: Option<PortRange>,
    },
    /// ICMP for IPv4, ICMPv6 for IPv6.
    Icmp(Icmp),
}

/// ICMP messages, by numbers of their own family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Icmp {
    /// `None`: every type.
    pub kind: Option<u8>,
    /// `None`: every code.
    pub code: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    /// The label of the rule in the log; empty if absent.
    pub label: String,
}

/// A ClusterGroup, or a Group where `meta` has a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub meta: Meta,
    /// Members of the group; unknown if the spec is not understood.
    pub spec: Read<GroupSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupSpec {
    /// A group without members.
    Empty,
    Pods {
        /// Of these namespaces; `None`: of all (ClusterGroup), or of the Group's own.
        namespaces: Option<Selector>,
        /// These; `None`: all.
        pods: Option<Selector>,
    },
    /// Addresses.
    Blocks(Vec<Block>),
    /// The pods that a Service selects.
    Service(Named),
    /// The addresses of nodes; ClusterGroup alone.
    Nodes(Selector),
    /// The members of these groups of the same kind and namespace.
    Children(Vec<String>),
    /// External entities, which are no pods: it is not supported.
    External,
}

impl FqdnPattern {
    /// True if the pattern matches a name, in any case. A dot at the end of a name or a pattern is an ordinary
    /// character. Callers remove it from names that come from DNS.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        // Where the last `*` stands, and how much of the name it took so far.
        let (mut star, mut p, mut n) = (None, 0, 0);
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(byte) if *byte == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((at, taken)) = star else { return false };
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
            }
        }
        pattern[p..].iter().all(|byte| *byte == b'*')
    }
}
