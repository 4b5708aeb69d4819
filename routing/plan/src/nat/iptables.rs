//! The rules of amazon-vpc-cni, written with `iptables-restore`.
//!
//! The observed state is the output of `iptables-save`, which is the same for the variants legacy and nft. Chains
//! with the prefix [`SNAT_CHAIN`] or [`MARK_CHAIN`] are ours. In the kernel's own chains a rule is ours if it has one
//! of amazon-vpc-cni's comments or jumps into a chain of ours.

mod saved;

pub use saved::{Saved, SavedTable, Unreadable, parse};

use super::{NatDesired, Ports, VLAN_PREFIX};
use config_model::Mark;
use std::{collections::BTreeMap, fmt::Write as _};

/// The prefix of chains with SNAT rules.
pub const SNAT_CHAIN: &str = "AWS-SNAT-CHAIN-";
/// The prefix of chains with connmark rules.
pub const MARK_CHAIN: &str = "AWS-CONNMARK-CHAIN-";

const JUMP_TO_SNAT: &str = "AWS SNAT CHAIN";
const EXCLUSION: &str = "AWS SNAT CHAIN EXCLUSION";
const SNAT: &str = "AWS, SNAT";
const JUMP_TO_MARK: &str = "AWS, outbound connections";
const MARK_EXEMPT: &str = "AWS CONNMARK CHAIN";
const MARK: &str = "AWS, CONNMARK";
const PRIMARY: &str = "AWS, primary ENI";

/// Our comments on rules in the kernel's chains.
const COMMENTS: &[&str] = &[JUMP_TO_SNAT, JUMP_TO_MARK, MARK, PRIMARY];

/// The chain in which kube-proxy translates. Later rules match the address of the pod and not that of the Service.
const KUBE_PROXY: &str = "KUBE-SERVICES";

/// The desired rules of one table: our chains, and our rules in the kernel's chains, by chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DesiredRules {
    chains: BTreeMap<String, Vec<String>>,
    rules: BTreeMap<&'static str, Vec<String>>,
}

/// The input of `iptables-restore --noflush` that leads to the desired state; `None` if nothing differs.
///
/// Without `desired`, everything of ours is removed.
pub fn plan(desired: Option<&NatDesired>, saved: &Saved) -> Option<String> {
    let tables = desired.map(rules_by_table).unwrap_or_default();
    let none = SavedTable::default();
    let mut script = String::new();
    for table in TABLES {
        let desired = tables.get(table).cloned().unwrap_or_default();
        let there = saved.tables.get(table).unwrap_or(&none);
        let lines = change(&desired, there);
        if !lines.is_empty() {
            let _ = writeln!(script, "*{table}\n{}\nCOMMIT", lines.join("\n"));
        }
    }
    (!script.is_empty()).then_some(script)
}

const NAT: &str = "nat";
const MANGLE: &str = "mangle";
const TABLES: [&str; 2] = [MANGLE, NAT];

/// The desired rules, in the syntax of `iptables-save`.
fn rules_by_table(desired: &NatDesired) -> BTreeMap<&'static str, DesiredRules> {
    let mut nat = DesiredRules::default();
    if let Some(ports) = desired.snat {
        let (chain, rules) = snat_chain(desired, ports);
        nat.rules.insert("POSTROUTING", vec![format!("{} -j {chain}", comment_of(JUMP_TO_SNAT))]);
        nat.chains.insert(chain, rules);
        let (chain, rules) = mark_chain(desired);
        let jump = format!("-i {}+ {} -j {chain}", desired.veth_prefix, comment_of(JUMP_TO_MARK));
        let restore = format!("{} {}", comment_of(MARK), restored(desired.mark));
        nat.rules.insert("PREROUTING", vec![jump, restore]);
        nat.chains.insert(chain, rules);
    }
    let mut mangle = DesiredRules::default();
    let mut rules = Vec::new();
    let (primary, mark) = (comment_of(PRIMARY), restored(desired.mark));
    if desired.node_ports {
        let local = "-m addrtype --dst-type LOCAL --limit-iface-in";
        let set = set(desired.mark);
        rules.push(format!("-i {} {primary} {local} {set}", desired.primary_link));
    }
    if desired.node_ports || desired.snat.is_some() {
        rules.push(format!("-i {}+ {primary} {mark}", desired.veth_prefix));
    }
    if desired.node_ports {
        rules.push(format!("-i {VLAN_PREFIX}+ {primary} {mark}"));
    }
    if !rules.is_empty() {
        mangle.rules.insert("PREROUTING", rules);
    }
    BTreeMap::from([(NAT, nat), (MANGLE, mangle)])
}

fn snat_chain(desired: &NatDesired, ports: Ports) -> (String, Vec<String>) {
    let ports = match ports {
        Ports::Kept => "",
        Ports::Hashed => " --random",
        Ports::Random => " --random-fully",
    };
    let (vpc, excluded) = (comment_of(JUMP_TO_SNAT), comment_of(EXCLUSION));
    let comment = |is_excluded| if is_excluded { &excluded } else { &vpc };
    let mut rules = exempt(desired, comment);
    rules.push(format!(
        "! -o {VLAN_PREFIX}+ {} -m addrtype ! --dst-type LOCAL -j SNAT --to-source {}{ports}",
        comment_of(SNAT),
        desired.primary_address,
    ));
    (format!("{SNAT_CHAIN}0"), rules)
}

fn mark_chain(desired: &NatDesired) -> (String, Vec<String>) {
    let comment = comment_of(MARK_EXEMPT);
    let mut rules = exempt(desired, |_| &comment);
    rules.push(format!("{} {}", comment_of(MARK), set(desired.mark)));
    (format!("{MARK_CHAIN}0"), rules)
}

/// Rules for the ranges in which pods keep their addresses. For a range of all addresses `iptables-save` prints no
/// `-d`.
fn exempt<'a>(desired: &NatDesired, comment: impl Fn(bool) -> &'a String) -> Vec<String> {
    let rule = |(net, is_excluded): (ipnet::Ipv4Net, bool)| {
        let to = if net.prefix_len() == 0 { String::new() } else { format!("-d {net} ") };
        format!("{to}{} -j RETURN", comment(is_excluded))
    };
    desired.exempt().map(rule).collect()
}

fn comment_of(comment: &str) -> String {
    format!("-m comment --comment \"{comment}\"")
}

fn set(mark: Mark) -> String {
    format!("-j CONNMARK --set-xmark {:#x}/{:#x}", mark.value, mark.mask)
}

fn restored(mark: Mark) -> String {
    format!("-j CONNMARK --restore-mark --nfmask {0:#x} --ctmask {0:#x}", mark.mask)
}

/// The lines between `*table` and `COMMIT`.
fn change(desired: &DesiredRules, there: &SavedTable) -> Vec<String> {
    let (mut declared, mut filled, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for (chain, rules) in &desired.chains {
        if there.chains.get(chain) != Some(rules) {
            // The declaration of an existing chain empties it.
            declared.push(format!(":{chain} - [0:0]"));
            filled.extend(rules.iter().map(|rule| format!("-A {chain} {rule}")));
        }
    }
    for chain in there.chains.keys().filter(|chain| is_our_chain(chain)) {
        if !desired.chains.contains_key(chain) {
            declared.push(format!(":{chain} - [0:0]"));
            dropped.push(format!("-X {chain}"));
        }
    }
    let mut jumps = Vec::new();
    for (chain, rules) in there.chains.iter().filter(|(chain, _)| !is_our_chain(chain)) {
        let desired = desired.rules.get(chain.as_str()).map_or(&[][..], Vec::as_slice);
        jumps.extend(change_of_chain(chain, desired, rules));
    }
    for (chain, rules) in &desired.rules {
        if !there.chains.contains_key(*chain) {
            jumps.extend(rules.iter().map(|rule| format!("-A {chain} {rule}")));
        }
    }
    [declared, filled, jumps, dropped].concat()
}

/// Corrects our rules in a chain of another owner. They must appear once, in the desired order and behind
/// kube-proxy's. Otherwise all of them are appended again.
fn change_of_chain(chain: &str, desired: &[String], there: &[String]) -> Vec<String> {
    let ours = |rule: &&String| is_our_rule(rule);
    let present: Vec<&String> = there.iter().filter(ours).collect();
    let first = there.iter().position(|rule| is_our_rule(rule));
    let kube_proxy = there.iter().rposition(|rule| jumps_to(rule, KUBE_PROXY));
    let behind = first.zip(kube_proxy).is_none_or(|(first, kube_proxy)| first > kube_proxy);
    if present.iter().copied().eq(desired) && behind {
        return Vec::new();
    }
    let delete = present.iter().map(|rule| format!("-D {chain} {rule}"));
    delete.chain(desired.iter().map(|rule| format!("-A {chain} {rule}"))).collect()
}

/// True if other programs have rules there.
pub fn has_foreign_rules(saved: &Saved) -> bool {
    let chains = saved.tables.values().flat_map(|table| &table.chains);
    let mut others = chains.filter(|(chain, _)| !is_our_chain(chain));
    others.any(|(_, rules)| rules.iter().any(|rule| !is_our_rule(rule)))
}

fn is_our_chain(chain: &str) -> bool {
    [SNAT_CHAIN, MARK_CHAIN].iter().any(|ours| chain.starts_with(ours))
}

fn is_our_rule(rule: &str) -> bool {
    let says = |comment: &&str| rule.contains(&format!("--comment \"{comment}\""));
    let jumps = target(rule).is_some_and(is_our_chain);
    jumps || COMMENTS.iter().any(says)
}

fn jumps_to(rule: &str, chain: &str) -> bool {
    target(rule) == Some(chain)
}

fn target(rule: &str) -> Option<&str> {
    let (_, after) = rule.rsplit_once("-j ")?;
    after.split(' ').next()
}

#[cfg(test)]
mod tests;
