//! Parsed rules, runbooks and dashboard of the chart.

use anyhow::{Context as _, Result};
use config_metrics::{Kind, find};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

pub const RULES: &str = "charts/ferrule/rules/ferrule.yaml";
pub const DASHBOARD: &str = "charts/ferrule/dashboards/ferrule.json";
pub const RUNBOOKS: &str = "docs/guide/alerts.md";

/// Returns the path of a file of the repository.
pub fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Reads a file of the repository.
///
/// # Errors
/// If it cannot be read.
pub fn text(path: &str) -> Result<String> {
    fs::read_to_string(at_root(path)).with_context(|| format!("cannot read {path}"))
}

/// Parses a YAML or JSON file of the repository.
///
/// # Errors
/// If the file cannot be read or parsed.
pub fn document(path: &str) -> Result<Value> {
    serde_saphyr::from_str(&text(path)?).with_context(|| format!("cannot parse {path}"))
}

/// Returns the alerting rules of a rules document.
pub fn alerts(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

/// Returns the queries of a dashboard's panels and variables.
pub fn queries(dashboard: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(dashboard, &mut found);
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let asks = name == "expr" || name == "query";
                match field.as_str().filter(|_| asks) {
                    Some(text) => found.push(text.to_owned()),
                    None => collect(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the metric names of a query that the catalog lacks, and labels that a metric does not have.
pub fn unknown(query: &str) -> BTreeSet<String> {
    let mut unknown = BTreeSet::new();
    for (name, rest) in names(query) {
        let metric = find(name).or_else(|| {
            let plain = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let (program, metric) = find(plain?)?;
            matches!(metric.kind, Kind::Histogram(_) | Kind::Summary).then_some((program, metric))
        });
        let Some((_, metric)) = metric else {
            unknown.insert(name.to_owned());
            continue;
        };
        for label in labels(rest) {
            let given =
                ["namespace", "node", "pod", "container", "job", "instance"].contains(&label);
            if !given && label != "le" && !metric.labels.contains(&label) {
                unknown.insert(format!("{name}{{{label}}}"));
            }
        }
    }
    unknown
}

/// Returns the names of Ferrule's metrics in a query, each with the rest of the query.
fn names(query: &str) -> Vec<(&str, &str)> {
    let word = |at: char| at.is_ascii_alphanumeric() || at == '_' || at == ':';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(word) {
        let from = rest.get(start..).unwrap_or_default();
        let end = from.find(|at| !word(at)).unwrap_or(from.len());
        let (name, after) = from.split_at(end);
        if name.starts_with("ferrule_") || name.starts_with("awscni_") {
            found.push((name, after));
        }
        rest = after;
    }
    found
}

/// Returns the labels in a selector after a name.
fn labels(after: &str) -> Vec<&str> {
    let Some(inside) = after.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        return Vec::new();
    };
    let matchers = inside.0.split(',');
    matchers
        .filter_map(|matcher| Some(matcher.split_once(['=', '!'])?.0.trim()))
        .filter(|label| !label.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_metric_or_label_is_found() {
        let ours = "sum(rate(ferrule_add_duration_seconds_bucket{result=\"ok\",pod=~\"x\"}[5m]))";
        assert!(unknown(ours).is_empty());
        assert!(unknown("up{container=\"ipamd\"} == 0").is_empty());
        let wrong =
            "ferrule_waiting_adds{reason=\"n\"} + ferrule_nothing_total + awscni_eni_max_sum";
        let found: Vec<String> = unknown(wrong).into_iter().collect();
        assert_eq!(
            found,
            ["awscni_eni_max_sum", "ferrule_nothing_total", "ferrule_waiting_adds{reason}"]
        );
    }
}
