//! The same rules in a table of our own, written with `nft`.
//!
//! Every rule has a comment with its name and a digest of its text. So the listed rules can be compared, although
//! versions of `nft` print expressions differently. A table with any difference is replaced in one transaction, so
//! that no packet meets a part of it.
//!
//! A chain of type *filter* after the translation of Services sets the mark. The kernel skips further chains of type
//! *nat* for a translated connection. Connections that a Service leads out of the VPC need the mark as well.

mod listed;

pub use listed::{Listed, ListedChain, Unreadable, parse};

use super::{NatDesired, Ports, VLAN_PREFIX};
use config_model::Mark;
use sha1::{Digest as _, Sha1};
use std::{borrow::Cow, fmt::Write as _};

/// The table, of family `ip`. Its whole content is ours.
pub const TABLE: &str = "ferrule";
/// amazon-vpc-cni's table, of family `ip`. Ours contains the same rules.
pub const PREDECESSOR: &str = "aws-cni";

/// Before the translation of Services (priority of iptables' table mangle).
const BEFORE_DNAT: i32 = -150;
/// After the translation of Services at -100.
const AFTER_DNAT: i32 = -90;
/// After the masquerading of kube-proxy and others at 100.
const AFTER_SNAT: i32 = 105;

/// A desired chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) name: Cow<'static, str>,
    pub(super) hook: Option<Hook>,
    pub(super) rules: Vec<Rule>,
}

/// The hook of a base chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hook {
    pub(super) kind: &'static str,
    pub(super) at: &'static str,
    pub(super) priority: i32,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) text: String,
    pub(super) about: &'static str,
}

impl Rule {
    /// The comment that identifies the rule in a listing.
    pub(super) fn comment(&self) -> String {
        let mut comment = format!("{} ", self.about);
        for byte in Sha1::digest(&self.text).iter().take(6) {
            let _ = write!(comment, "{byte:02x}");
        }
        comment
    }
}

/// The part of the rules that the table contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All rules, without iptables.
    Whole,
    /// Beside iptables: the mark for connections that a Service leads out of the VPC, which iptables cannot set.
    Services,
}

/// The relevant tables of nftables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Our table; `None` if it does not exist.
    pub ours: Option<Listed>,
    /// True if amazon-vpc-cni's table exists.
    pub predecessor: bool,
}

/// The input of `nft -f -` that leads to this part; `None` if nothing differs.
///
/// Without `desired`, our table is removed. amazon-vpc-cni's is removed in any case, in the same transaction.
pub fn plan(desired: Option<(&NatDesired, Part)>, tables: &Tables) -> Option<String> {
    let chains = desired.map(|(desired, part)| chains(desired, part)).unwrap_or_default();
    let mut script = match &tables.ours {
        ours if chains.is_empty() => {
            ours.as_ref().map(|_| format!("delete table ip {TABLE}\n")).unwrap_or_default()
        }
        Some(ours) if ours.marks.is_none() && same(&chains, ours) => String::new(),
        _ => table(&format!("ip {TABLE}"), "", &chains),
    };
    if tables.predecessor {
        let _ = writeln!(script, "delete table ip {PREDECESSOR}");
    }
    (!script.is_empty()).then_some(script)
}

/// A whole table of this family and name with `maps` and chains. It replaces an existing one.
pub(super) fn table(name: &str, maps: &str, chains: &[Chain]) -> String {
    // `add` before `delete` avoids an error if the table does not exist.
    let mut script = format!("add table {name}\ndelete table {name}\ntable {name} {{\n{maps}");
    for chain in chains {
        let _ = writeln!(script, "\tchain {} {{", chain.name);
        if let Some(Hook { kind, at, priority }) = chain.hook {
            let _ =
                writeln!(script, "\t\ttype {kind} hook {at} priority {priority}; policy accept;");
        }
        for rule in &chain.rules {
            let _ = writeln!(script, "\t\t{} comment \"{}\"", rule.text, rule.comment());
        }
        script.push_str("\t}\n");
    }
    script.push_str("}\n");
    script
}

/// True if chains and rules are as desired.
pub(super) fn same(chains: &[Chain], listed: &Listed) -> bool {
    let hook = |chain: &Chain| chain.hook.map(|Hook { kind, at, priority }| (kind, at, priority));
    let as_listed = |chain: &Chain, there: &ListedChain| {
        let listed = there.hook.as_ref().map(|(kind, at, priority)| (&**kind, &**at, *priority));
        let comments = chain.rules.iter().map(|rule| Some(rule.comment()));
        let lets_pass = there.policy.as_deref().unwrap_or("accept") == "accept";
        hook(chain) == listed && lets_pass && comments.eq(there.rules.iter().cloned())
    };
    let found = |chain: &Chain| {
        listed.chains.get(&*chain.name).is_some_and(|there| as_listed(chain, there))
    };
    chains.len() == listed.chains.len() && !listed.more && chains.iter().all(found)
}

fn chains(desired: &NatDesired, part: Part) -> Vec<Chain> {
    let mut chains = Vec::new();
    let whole = part == Part::Whole;
    if desired.snat.is_some() {
        chains.push(Chain { name: "kept".into(), hook: None, rules: kept(desired) });
    }
    if whole && desired.node_ports {
        let hook = Hook { kind: "filter", at: "prerouting", priority: BEFORE_DNAT };
        chains.push(Chain {
            name: "node-ports".into(),
            hook: Some(hook),
            rules: node_ports(desired),
        });
    }
    if desired.snat.is_some() || (whole && desired.node_ports) {
        let hook = Hook { kind: "filter", at: "prerouting", priority: AFTER_DNAT };
        chains.push(Chain {
            name: "from-pods".into(),
            hook: Some(hook),
            rules: from_pods(desired),
        });
    }
    if whole && let Some(ports) = desired.snat {
        let hook = Hook { kind: "nat", at: "postrouting", priority: AFTER_SNAT };
        chains.push(Chain {
            name: "to-outside".into(),
            hook: Some(hook),
            rules: snat(desired, ports),
        });
    }
    chains
}

/// Accepts packets to the ranges in which pods keep their addresses.
fn kept(desired: &NatDesired) -> Vec<Rule> {
    let rule = |(net, is_excluded)| Rule {
        text: format!("ip daddr {net} accept"),
        about: if is_excluded { "excluded" } else { "vpc" },
    };
    desired.exempt().map(rule).collect()
}

fn node_ports(desired: &NatDesired) -> Vec<Rule> {
    let link = &desired.primary_link;
    let text = format!("iifname \"{link}\" fib daddr . iif type local {}", set("ct", desired.mark));
    vec![Rule { text, about: "from the primary ENI" }]
}

fn from_pods(desired: &NatDesired) -> Vec<Rule> {
    let Mark { value, mask } = desired.mark;
    let veth = &desired.veth_prefix;
    let stranger = format!("iifname != \"{veth}*\" iifname != \"{VLAN_PREFIX}*\" accept");
    let marked = format!("ct mark & {mask:#x} == {value:#x} {} accept", set("meta", desired.mark));
    let mut rules = vec![
        Rule { text: stranger, about: "not from a pod" },
        Rule { text: marked, about: "marked before" },
    ];
    if desired.snat.is_some() {
        let branch = format!("iifname \"{VLAN_PREFIX}*\" accept");
        let first = "ct state != new accept".to_owned();
        let local = "fib daddr type local accept".to_owned();
        let (connection, packet) = (set("ct", desired.mark), set("meta", desired.mark));
        rules.extend([
            Rule { text: branch, about: "of a branch ENI" },
            Rule { text: first, about: "not new" },
            Rule { text: local, about: "to the node" },
            Rule { text: "jump kept".to_owned(), about: "within the VPC" },
            Rule { text: connection, about: "out of the VPC" },
            Rule { text: packet, about: "out of the VPC" },
        ]);
    }
    rules
}

fn snat(desired: &NatDesired, ports: Ports) -> Vec<Rule> {
    let ports = ports.flags();
    let branch = format!("oifname \"{VLAN_PREFIX}*\" accept");
    let text = format!("snat to {}{ports}", desired.primary_address);
    vec![
        Rule { text: branch, about: "by a branch ENI" },
        Rule { text: "fib daddr type local accept".to_owned(), about: "to the node" },
        Rule { text: "jump kept".to_owned(), about: "within the VPC" },
        Rule { text, about: "out of the VPC" },
    ]
}

/// Sets the bits of the mark and keeps the other bits.
pub(super) fn set(of: &str, mark: Mark) -> String {
    format!("{of} mark set {of} mark & {:#x} | {:#x}", !mark.mask, mark.value & mark.mask)
}

#[cfg(test)]
mod tests;
