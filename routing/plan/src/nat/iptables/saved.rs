//! What `iptables-save` prints.

use std::collections::BTreeMap;

/// Every table that it told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// By name.
    pub tables: BTreeMap<String, SavedTable>,
}

/// One table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedTable {
    /// Rules in order, each without `-A` and its chain, by chain.
    pub chains: BTreeMap<String, Vec<String>>,
}

/// Why the text is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of iptables-save is not understood: {text:?}")]
pub struct Unreadable {
    /// Counted from one.
    pub line: usize,
    /// The line.
    pub text: String,
}

/// Reads what `iptables-save` printed.
///
/// # Errors
/// A line that is neither a table, a chain, a rule, an end nor a comment, or stands outside a
/// table: then nothing is known, and nothing should be changed.
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
            // With `-c` its counters stand before a rule.
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
