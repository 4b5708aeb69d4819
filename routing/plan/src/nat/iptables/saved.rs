//! The output of `iptables-save`.

use std::collections::BTreeMap;

/// All tables in the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    pub tables: BTreeMap<String, SavedTable>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedTable {
    /// The rules of each chain in order, without `-A` and the chain's name.
    pub chains: BTreeMap<String, Vec<String>>,
}

/// Cause of a failed parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse line {line} of iptables-save: {text:?}")]
pub struct Unreadable {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

/// Parses the output of `iptables-save`.
///
/// # Errors
/// A line is outside of a table, or is not a table, chain, rule, `COMMIT` or comment. The caller must not change
/// anything then.
pub fn parse(text: &str) -> Result<Saved, Unreadable> {
    let mut saved = Saved::default();
    let mut table: Option<String> = None;
    for (number, line) in text.lines().enumerate() {
        let unreadable = || Unreadable { line: number + 1, text: line.to_owned() };
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('*') {
            saved.tables.entry(name.to_owned()).or_default();
            table = Some(name.to_owned());
            continue;
        }
        if line == "COMMIT" {
            table.take().ok_or_else(unreadable)?;
            continue;
        }
        let of = table.as_ref().and_then(|name| saved.tables.get_mut(name));
        let chains = &mut of.ok_or_else(unreadable)?.chains;
        if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().filter(|name| !name.is_empty());
            chains.entry(name.ok_or_else(unreadable)?.to_owned()).or_default();
        } else {
            // With `-c` the counters precede a rule.
            let counted = line.strip_prefix('[').and_then(|rest| rest.split_once("] "));
            let rule = counted.map_or(line, |(_, rule)| rule).strip_prefix("-A ");
            let rule = rule.ok_or_else(unreadable)?;
            let (chain, rule) = rule.split_once(' ').unwrap_or((rule, ""));
            if chain.is_empty() {
                return Err(unreadable());
            }
            chains.entry(chain.to_owned()).or_default().push(rule.to_owned());
        }
    }
    Ok(saved)
}
