//! Alerts: each uses existing metrics, has a runbook, and fires in a promtool case.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, fs};
use tests_metrics::{RULES, RUNBOOKS, alerts, at_root, document, text, unknown};
use tests_support::promtool;

/// The cases for promtool: series and the expected alerts.
const CASES: &str = "tests/metrics/rules/ferrule.test.yaml";

fn names(rules: &Value) -> BTreeSet<String> {
    alerts(rules).filter_map(|alert| alert["alert"].as_str()).map(str::to_owned).collect()
}

#[test]
fn each_alert_queries_existing_metrics_and_has_a_summary_a_description_and_a_severity() -> Result<()>
{
    let rules = document(RULES)?;
    for alert in alerts(&rules) {
        let name = alert["alert"].as_str().context("a rule without a name")?;
        let expr = alert["expr"].as_str().context("a rule without an expression")?;
        ensure!(unknown(expr).is_empty(), "{name} has unknown {:?}", unknown(expr));
        let severity = alert["labels"]["severity"].as_str();
        ensure!(matches!(severity, Some("critical" | "warning")), "{name}: {severity:?}");
        let annotations = &alert["annotations"];
        for annotation in ["summary", "description"] {
            let text = annotations[annotation].as_str().unwrap_or_default();
            ensure!(!text.is_empty(), "{name} has no {annotation}");
        }
        let runbook = annotations["runbook_url"].as_str().unwrap_or_default();
        let section = format!("{RUNBOOKS}#{}", name.to_lowercase());
        ensure!(runbook.ends_with(&section), "{name}: {runbook}");
    }
    Ok(())
}

#[test]
fn each_alert_has_a_runbook_and_each_runbook_an_alert() -> Result<()> {
    let page = text(RUNBOOKS)?;
    let sections: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    assert_eq!(sections, names(&document(RULES)?));
    // Links between runbooks.
    for link in page.split("](#").skip(1).filter_map(|rest| rest.split_once(')')) {
        let there = sections.iter().any(|section| section.to_lowercase() == link.0);
        ensure!(there, "a runbook links to #{}", link.0);
    }
    Ok(())
}

/// Alerts of all nodes together have no node.
#[test]
fn an_alert_about_a_node_names_the_node() -> Result<()> {
    let rules = document(RULES)?;
    for group in rules["groups"].as_array().context("no groups")? {
        for alert in group["rules"].as_array().context("no rules")? {
            let annotations = alert["annotations"].to_string();
            let is_of_nodes = group["name"] != "ferrule.controller";
            ensure!(!(is_of_nodes && annotations.contains("$labels.pod")), "{}", alert["alert"]);
            let expr = alert["expr"].as_str().unwrap_or_default();
            let is_sum = expr.contains("by (namespace, ") && !expr.contains("by (namespace, node");
            let summary = alert["annotations"]["summary"].as_str().unwrap_or_default();
            let names_node = summary.contains("$labels.node");
            ensure!(names_node == (is_of_nodes && !is_sum), "{}: {summary}", alert["alert"]);
        }
    }
    Ok(())
}

/// Firing alerts must have the labels in their annotations.
#[test]
fn each_alert_is_shown_to_fire_and_not_to_fire() -> Result<()> {
    let rules = document(RULES)?;
    let cases = document(CASES)?;
    let (mut fire, mut calm) = (BTreeSet::new(), BTreeSet::new());
    for case in cases["tests"].as_array().context("no cases")? {
        for expected in case["alert_rule_test"].as_array().into_iter().flatten() {
            let name = expected["alertname"].as_str().unwrap_or_default().to_owned();
            let fired = expected["exp_alerts"].as_array().cloned().unwrap_or_default();
            if fired.is_empty() {
                calm.insert(name);
                continue;
            }
            let alert = alerts(&rules).find(|alert| alert["alert"] == name.as_str());
            let annotations = alert.context("a case without an alert")?["annotations"].to_string();
            for label in annotations.split("$labels.").skip(1) {
                let label: String =
                    label.chars().take_while(|at| at.is_ascii_alphanumeric()).collect();
                let carries = fired.iter().all(|alert| alert["exp_labels"][&label].is_string());
                ensure!(carries, "{name} lacks the label {label} of its annotations");
            }
            fire.insert(name);
        }
    }
    let wanted = names(&rules);
    assert_eq!((&fire, &calm), (&wanted, &wanted));
    Ok(())
}

#[test]
fn promtool_accepts_the_rules_and_each_case_passes() -> Result<()> {
    if !promtool::is_there("promtool_accepts_the_rules_and_each_case_passes") {
        return Ok(());
    }
    promtool::run(&["check", "rules", &at_root(RULES).display().to_string()])?;
    // Annotations are removed, because promtool would compare their text.
    let mut rules = document(RULES)?;
    for group in rules["groups"].as_array_mut().into_iter().flatten() {
        for rule in group["rules"].as_array_mut().into_iter().flatten() {
            rule.as_object_mut().context("a rule is not an object")?.remove("annotations");
        }
    }
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("ferrule.yaml"), rules.to_string())?;
    let cases = folder.path().join("ferrule.test.yaml");
    fs::copy(at_root(CASES), &cases)?;
    promtool::run(&["test", "rules", &cases.display().to_string()])
}
