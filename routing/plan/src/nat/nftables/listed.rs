//! The output of `nft -j list table ip ferrule`.

use serde::Deserialize;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// An observed table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub chains: BTreeMap<String, ListedChain>,
    /// The chain for each address, if the table has one such map. The map's name comes first.
    pub marks: Option<(String, BTreeMap<Ipv4Addr, String>)>,
    /// True if the table has other content: sets, other maps, counters, flags.
    pub more: bool,
}

/// An observed chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedChain {
    /// Type, hook and priority of a base chain.
    pub hook: Option<(String, String, i32)>,
    /// The policy of a base chain.
    pub policy: Option<String>,
    /// The comments of its rules in order.
    pub rules: Vec<Option<String>>,
}

/// The output is not that of `nft -j`.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse the table as listed by nft: {0}")]
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
    /// For example `dormant`: the table has no effect then.
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

/// Parses the output of `nft -j`.
///
/// # Errors
/// The text is not JSON of this form.
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
