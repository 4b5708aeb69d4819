//! The dashboard: its queries use existing metrics, and nothing depends on one installation.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use tests_metrics::{DASHBOARD, document, queries, unknown};

#[test]
fn each_panel_queries_existing_metrics() -> Result<()> {
    let dashboard = document(DASHBOARD)?;
    let queries = queries(&dashboard);
    ensure!(queries.len() > 20, "only {} queries", queries.len());
    for query in queries {
        ensure!(unknown(&query).is_empty(), "{query} has unknown {:?}", unknown(&query));
    }
    Ok(())
}

#[test]
fn the_viewer_chooses_the_data_source() -> Result<()> {
    let dashboard = document(DASHBOARD)?;
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().context("no panels")? {
        ensure!(ids.insert(panel["id"].as_u64()), "two panels with one ID: {panel}");
        ensure!(panel["title"].is_string(), "a panel without a title: {panel}");
        if panel["type"] == "row" {
            continue;
        }
        ensure!(panel["description"].is_string(), "{} has no description", panel["title"]);
        let targets = panel["targets"].as_array().into_iter().flatten();
        for source in targets.chain([panel]).map(|it| &it["datasource"]["uid"]) {
            ensure!(source == "${datasource}", "{}: {source}", panel["title"]);
        }
    }
    ensure!(dashboard["id"] == Value::Null, "the ID belongs to one Grafana");
    Ok(())
}

/// The PodMonitors set the label.
#[test]
fn the_viewer_chooses_nodes() -> Result<()> {
    let dashboard = document(DASHBOARD)?;
    let variables = dashboard["templating"]["list"].as_array().context("no variables")?;
    let node = variables.iter().find(|variable| variable["name"] == "node");
    let node = node.context("no variable `node`")?;
    ensure!(node["query"].as_str().is_some_and(|query| query.ends_with(", node)")), "{node}");
    // Series that another scrape configuration made have no label `node`.
    ensure!(node["allValue"] == ".*", "{node}");
    for query in queries(&dashboard["panels"]) {
        let is_of_nodes = !query.contains("ferrule_controller_");
        ensure!(query.contains(r#"node=~"$node""#) == is_of_nodes, "{query}");
    }
    Ok(())
}
