//! `ferrule policy status`: the state of each node's agent.

use super::{NO, realized};
use crate::{
    output::{Output, write_json, write_text},
    target::KubeTarget,
};
use anyhow::{Context as _, Result, bail};
use comfy_table::{Table, presets::NOTHING};
use policy_kube::{Cluster, KubeError};
use policy_objects::{Kind, Object};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use view_policy::{Agent, GROUP, Policy, VERSION};

/// Limit of failing policies whose names are read.
const NAMED: usize = 50;

/// Prints the status and returns the exit code.
pub(super) fn run(which: &KubeTarget, output: Output) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let status = runtime.context("cannot start the async runtime")?.block_on(async {
        let cluster =
            Cluster::connect(which.kubeconfig.as_deref(), which.context.as_deref()).await?;
        Status::of(&cluster).await
    })?;
    match output {
        Output::Text => write_text(&status.text())?,
        Output::Json => write_json(&json!({
            "agents": status.agents, "silent": status.silent, "policies": status.names,
        }))?,
    }
    Ok(if status.is_good() { 0 } else { NO })
}

/// The controller's data.
struct Status {
    agents: Vec<Agent>,
    /// Nodes of the cluster that the controller has no data about.
    silent: BTreeSet<String>,
    /// Failing policies by UID.
    names: BTreeMap<String, String>,
}

impl Status {
    async fn of(cluster: &Cluster) -> Result<Self> {
        let agents = match realized::agents(cluster).await {
            Err(KubeError::NotFound { .. }) => {
                let name = cluster.name();
                bail!(
                    "cannot find a Ferrule controller in cluster {name}: none is registered; start one with --view"
                );
            }
            agents => agents?,
        };
        let mut silent = nodes(cluster).await?;
        agents.iter().for_each(|agent| _ = silent.remove(&agent.metadata.name));
        let mut names = BTreeMap::new();
        let failing = agents.iter().filter_map(|agent| agent.realized.as_ref());
        let failing: BTreeSet<&str> =
            failing.flat_map(|realized| &realized.failing).map(|it| it.uid.as_str()).collect();
        for uid in failing.into_iter().take(NAMED) {
            match get::<Policy>(cluster, &format!("policies/{uid}")).await {
                Ok(policy) => drop(names.insert(uid.to_owned(), policy.policy)),
                Err(KubeError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self { agents, silent, names })
    }

    fn is_good(&self) -> bool {
        let good = |agent: &Agent| {
            let realized = agent.realized.as_ref();
            realized.is_some_and(|realized| {
                realized.failing.is_empty() && !realized.unenforced && !realized.is_stale()
            })
        };
        self.silent.is_empty() && self.agents.iter().all(good)
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["NODE", "IN FORCE", "FAILING", "REPORTED", "OWED"]);
        let mut failing = String::new();
        for agent in &self.agents {
            let node = &agent.metadata.name;
            let none = || "-".to_owned();
            let realized = agent.realized.as_ref();
            let of = |what: fn(&view_policy::Realized) -> String| realized.map_or_else(none, what);
            let owed = agent.stream.as_ref().filter(|stream| stream.follows);
            table.add_row([
                node.clone(),
                of(|realized| if realized.unenforced { 0 } else { realized.policies }.to_string()),
                of(|realized| realized.failing.len().to_string()),
                of(|realized| {
                    let stale = if realized.is_stale() { " (silent)" } else { "" };
                    format!("{} s ago{stale}", realized.seconds_ago)
                }),
                owed.map_or_else(none, |stream| stream.owed.to_string()),
            ]);
            if let Some(realized) = realized.filter(|realized| realized.unenforced) {
                failing.push_str(&format!(
                    "NOTHING IN FORCE on {node}: the agent has no backend; policies held: {}\n",
                    realized.policies
                ));
            }
            for it in realized.iter().flat_map(|realized| &realized.failing) {
                let name = self.names.get(&it.uid).unwrap_or(&it.uid);
                failing.push_str(&format!("NOT IN FORCE on {node}: {name}: {}\n", it.error));
            }
        }
        for node in &self.silent {
            table.add_row([node.as_str(), "-", "-", "never", "-"]);
        }
        let table = table.to_string();
        let lines = table.lines().map(|line| format!("{}\n", line.trim_end()));
        lines.collect::<String>() + &failing
    }
}

async fn nodes(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let served = cluster.served().await?;
    let nodes = served.iter().find(|resource| resource.kind == Some(Kind::Node));
    let Some(nodes) = nodes else { return Ok(BTreeSet::new()) };
    let listed = cluster.list(nodes, |_| ()).await?.items.into_iter();
    let names = listed.filter_map(|item| {
        let Object::Node(node) = item.read.ok()?.object else { return None };
        Some(node.meta.name)
    });
    Ok(names.collect())
}

async fn get<T: DeserializeOwned>(cluster: &Cluster, path: &str) -> Result<T, KubeError> {
    let what = format!("agents.{GROUP}");
    let text = cluster.get(&format!("/apis/{GROUP}/{VERSION}/{path}"), &what).await?;
    serde_json::from_str(&text).map_err(|error| KubeError::Failed {
        verb: "read",
        what,
        cause: error.to_string(),
    })
}
