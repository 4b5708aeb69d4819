//! What `nft -j list table ip ferrule` prints.

use serde::Deserialize;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// The table as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// By name.
    pub chains: BTreeMap<String, ListedChain>,
    /// The chain that each address leads to, if there is one map that says so; its name comes first.
    pub marks: Option<(String, BTreeMap<Ipv4Addr, String>)>,
    /// Whether there is something else about it: sets, other maps, counters, flags.
    pub more: bool,
}

/// A chain as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedChain {
    /// Type, hook and priority, if the kernel calls it.
    pub hook: Option<(String, String, i32)>,
    /// What becomes of a packet at its end, if the kernel calls it.
    pub policy: Option<String>,
    /// The comments of its rules, in order.
    pub rules: Vec<Option<String>>,
}

/// The answer is not what `nft -j` prints.
#[derive(Debug, thiserror::Error)]
#[error("nft's list of the table is not understood: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

#[derive(Deserialize)]
struct Answer {
    nftables: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Metainfo(serde::de::IgnoredAny),
    Table(Table),
    Chain(Chain),
    Rule(Rule),
    Map(Map),
    #[serde(untagged)]
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Table {
    /// Such as `dormant`: then nothing in it counts.
    flags: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Chain {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    hook: Option<String>,
    prio: Option<i32>,
    policy: Option<String>,
}

#[derive(Deserialize)]
struct Rule {
    chain: String,
    comment: Option<String>,
}

#[derive(Deserialize)]
struct Map {
    name: String,
    #[serde(default)]
    elem: Vec<(Ipv4Addr, Goto)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Goto {
    Goto { target: String },
}

/// Reads what `nft -j` printed.
///
/// # Errors
/// It is not JSON of that shape.
pub fn parse(text: &str) -> Result<Listed, Unreadable> {
    let answer: Answer = serde_json::from_str(text)?;
    let mut listed = Listed::default();
    for entry in answer.nftables {
        match entry {
            Entry::Metainfo(_) => {}
            Entry::Table(Table { flags }) => listed.more |= flags.is_some(),
            Entry::Chain(Chain { name, kind, hook, prio, policy }) => {
                let hook = kind.zip(hook).zip(prio).map(|((kind, at), prio)| (kind, at, prio));
                let chain = listed.chains.entry(name).or_default();
                (chain.hook, chain.policy) = (hook, policy);
            }
            Entry::Rule(Rule { chain, comment }) => {
                listed.chains.entry(chain).or_default().rules.push(comment);
            }
            Entry::Map(Map { name, elem }) if listed.marks.is_none() => {
                let elements = elem.into_iter().map(|(of, Goto::Goto { target })| (of, target));
                listed.marks = Some((name, elements.collect()));
            }
            Entry::Map(_) => listed.more = true,
            Entry::Other(_) => listed.more = true,
        }
    }
    Ok(listed)
}
