//! Findings, as lines, as counts and as JSON.

use super::{passage::CODE_SPACE, rule::Rule, sentence::Sentence};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// One sentence that one rule rejects.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) sentence: String,
    pub(crate) hint: String,
}

impl Finding {
    pub(crate) fn of(path: &str, rule: &Rule, sentence: &Sentence<'_>) -> Self {
        Self {
            path: path.to_owned(),
            line: sentence.line,
            rule: rule.name,
            sentence: sentence.text.replace(CODE_SPACE, " "),
            hint: rule.hint.to_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, sentence, hint } = self;
        write!(f, "{path}:{line}: {rule}: {sentence} — {hint}")
    }
}

/// Returns a table: a row per top-level folder, a column per rule, totals last.
pub(crate) fn counts(findings: &[Finding]) -> Vec<String> {
    let mut folders: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in findings {
        let folder = finding.path.split('/').next().unwrap_or_default();
        *folders.entry(folder).or_default().entry(finding.rule).or_default() += 1;
        *totals.entry(finding.rule).or_default() += 1;
    }
    let rules: Vec<&str> = totals.keys().copied().collect();
    let heads = rules.iter().map(|rule| format!(" {rule:>8}")).collect::<String>();
    let row = |name: &str, counts: &BTreeMap<&str, usize>| {
        let cell = |rule: &&str| {
            let count = counts.get(rule).copied().unwrap_or_default();
            format!(" {count:>width$}", width = rule.len().max(8))
        };
        let cells = rules.iter().map(cell).collect::<String>();
        format!("{name:16} {:>7}{cells}", counts.values().sum::<usize>())
    };
    let mut lines = vec![format!("{:16} {:>7}{heads}", "folder", "all")];
    lines.extend(folders.iter().map(|(folder, counts)| row(folder, counts)));
    lines.push(row("all", &totals));
    lines
}

/// Returns one JSON object with every finding; `converted` is false for a path that is exempt.
pub(crate) fn json(findings: &[Finding], is_exempt: fn(&str) -> bool) -> Result<String> {
    #[derive(Serialize)]
    struct Row<'a> {
        converted: bool,
        #[serde(flatten)]
        finding: &'a Finding,
    }
    let rows: Vec<Row<'_>> = findings
        .iter()
        .map(|finding| Row { converted: !is_exempt(&finding.path), finding })
        .collect();
    serde_json::to_string(&serde_json::json!({ "findings": rows })).context("cannot write JSON")
}
