//! `ferrule policy status`: the state of each node's agent.

use super::{NO, realized};
use crate::{
    output::{self, Output},
    target::KubeTarget,
};
use anyhow::{Context as _, Result, bail};
use policy_kube::{Cluster, KubeError};
use policy_objects::{Kind, Object};
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use view_policy::{Agent, GROUP, Policy, VERSION};
use view_text::{Cell, Table, Text, Tone};

/// Limit of failing policies whose names are read.
const NAMED: usize = 50;

/// Prints the status and returns the exit code.
pub(super) fn run(which: &KubeTarget, output: Output) -> Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let status = runtime.context("cannot start the async runtime")?.block_on(async {
        let cluster = which.connect().await?;
        Status::of(&cluster).await
    })?;
    match output {
        Output::Text => output::write(&status.text(output::columns()))?,
        Output::Json | Output::Yaml => output.write(&json!({
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
                    "cannot read the state of nodes in cluster {name}: it has no aggregated API of ferrule-controller; \
                     set controller.view of the chart, or read the status of policies with kubectl"
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

    fn text(&self, columns: Option<u16>) -> Text {
        let mut table = Table::new(&["NODE", "IN FORCE", "FAILING", "REPORTED", "OWED"]);
        let mut failing = Text::default();
        for agent in &self.agents {
            table.row(cells(agent));
            self.add_failing(agent, &mut failing);
        }
        for node in &self.silent {
            let never = Cell::new(Tone::Bad, "never");
            table.row([Cell::from(node), "-".into(), "-".into(), never, "-".into()]);
        }
        let mut text = table.text(columns);
        text.append(failing);
        text
    }

    fn add_failing(&self, agent: &Agent, text: &mut Text) {
        let node = &agent.metadata.name;
        let Some(realized) = &agent.realized else { return };
        if realized.unenforced {
            text.push(Tone::Bad, "NOTHING IN FORCE");
            let policies = realized.policies;
            text.push_plain(&format!(
                " on {node}: the agent has no backend; policies held: {policies}\n"
            ));
        }
        for it in &realized.failing {
            let name = self.names.get(&it.uid).unwrap_or(&it.uid);
            text.push(Tone::Bad, "NOT IN FORCE");
            text.push_plain(&format!(" on {node}: {name}: {}\n", it.error));
        }
    }
}

fn cells(agent: &Agent) -> [Cell; 5] {
    let none = || Cell::from("-");
    let owed = agent.stream.as_ref().filter(|stream| stream.follows);
    let owed = owed.map_or_else(none, |stream| Cell::from(stream.owed.to_string()));
    let node = Cell::from(&agent.metadata.name);
    let Some(realized) = &agent.realized else { return [node, none(), none(), none(), owed] };
    let in_force = if realized.unenforced { 0 } else { realized.policies };
    let bad = |is_bad: bool| if is_bad { Tone::Bad } else { Tone::Plain };
    let failing = realized.failing.len();
    let ago = realized.seconds_ago;
    [
        node,
        Cell::new(bad(realized.unenforced), in_force.to_string()),
        Cell::new(bad(failing > 0), failing.to_string()),
        match realized.is_stale() {
            true => Cell::new(Tone::Bad, format!("{ago} s ago (silent)")),
            false => Cell::from(format!("{ago} s ago")),
        },
        owed,
    ]
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
