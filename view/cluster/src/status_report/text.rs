//! The overview as text: a table, then the problems with the worst last, next to the prompt.

use super::{AgentLine, NodeLine, StatusReport};
use std::collections::BTreeMap;
use view_node::{Budget, Severity, Trouble, WaitingAdd};
use view_text::{Table, Text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Narrow,
    Wide,
}

impl StatusReport {
    /// Formats a table and the problems. `columns` is the width of the terminal.
    pub fn text(&self, width: Width, columns: Option<u16>) -> Text {
        let mut text = self.table(width).text(columns);
        for unasked in &self.unasked {
            text.push_plain(&format!("not read: {unasked}\n"));
        }
        for (node, add, more) in self.waiting() {
            let pod = format!("{}/{}", add.namespace, add.name);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push_plain(&format!(
                "waiting  {node}: {pod} for {} s{more}: {}\n         next: {}\n",
                add.seconds, add.reason, add.next_step
            ));
        }
        for severity in [Severity::Notice, Severity::Trouble] {
            for (trouble, nodes) in self.grouped(severity) {
                text.push_plain(&lines_of(&trouble, &nodes));
            }
        }
        text
    }

    fn table(&self, width: Width) -> Table {
        let wide = width == Width::Wide;
        // Without agents the column is left out.
        let agents = self.nodes.iter().any(|line| line.agent.is_some());
        let mut heads =
            vec!["NODE", "READY", "ENIS", "ADDRESSES", "FREE", "COOLING", "WAITING", "EC2"];
        heads.extend(agents.then_some("AGENT"));
        heads.extend(["VERSION", "STATE"]);
        if wide {
            heads.extend(["POD", "USABLE", "SHORT", "CALLS", "MAX PODS"]);
        }
        let mut table = Table::new(&heads);
        for line in &self.nodes {
            let mut cells = line.cells(agents);
            if wide {
                cells.extend(line.more_cells());
            }
            table.row(cells);
        }
        table
    }

    /// Returns the longest waiting ADD per node and reason, with the number of others.
    fn waiting(&self) -> Vec<(&str, &WaitingAdd, usize)> {
        let mut first: Vec<(&str, &WaitingAdd, usize)> = Vec::new();
        for line in &self.nodes {
            for add in &line.waiting_adds {
                let same = |it: &&mut (&str, &WaitingAdd, usize)| {
                    it.0 == line.node && it.1.reason == add.reason
                };
                match first.iter_mut().find(same) {
                    Some((_, _, more)) => *more += 1,
                    None => first.push((&line.node, add, 0)),
                }
            }
        }
        first.truncate(WAITING_TOLD);
        first
    }

    /// Problems that many nodes share are shown once.
    fn grouped(&self, severity: Severity) -> Vec<(Trouble, Vec<&str>)> {
        let mut groups: BTreeMap<(&str, &str, &str), (Trouble, Vec<&str>)> = BTreeMap::new();
        let of_nodes = self.nodes.iter().flat_map(|line| {
            line.troubles.iter().map(|trouble| (Some(line.node.as_str()), trouble))
        });
        let others = self.troubles.iter().map(|trouble| (None, trouble));
        for (node, trouble) in of_nodes.chain(others).filter(|(_, it)| it.severity == severity) {
            let key = (trouble.kind.as_str(), trouble.object.as_str(), trouble.cause.as_str());
            let (_, nodes) = groups.entry(key).or_insert_with(|| (trouble.clone(), Vec::new()));
            nodes.extend(node);
        }
        groups.into_values().collect()
    }
}

impl NodeLine {
    fn cells(&self, agents: bool) -> Vec<String> {
        let none = || "-".to_owned();
        let pool = self.pool.as_ref();
        let of = |what: fn(&view_node::Pool) -> String| pool.map_or_else(none, what);
        let mut cells = vec![
            self.node.clone(),
            if self.ready { "yes" } else { "NO" }.to_owned(),
            of(|pool| format!("{}/{}", pool.enis, pool.max_enis)),
            of(|pool| format!("{}/{}", pool.assigned, many(pool.total))),
            of(|pool| many(pool.free)),
            of(|pool| pool.cooling.to_string()),
            of(|pool| pool.waiting_adds.to_string()),
            pool.map_or_else(none, |_| budget(&self.budgets)),
        ];
        if agents {
            cells.push(self.agent.as_ref().map_or_else(none, AgentLine::cell));
        }
        cells.extend([self.version.clone().unwrap_or_else(none), self.state()]);
        cells
    }

    fn more_cells(&self) -> Vec<String> {
        let none = || "-".to_owned();
        let pool = self.pool.as_ref();
        let of = |what: fn(&view_node::Pool) -> String| pool.map_or_else(none, what);
        vec![
            self.pod.clone().unwrap_or_else(none),
            of(|pool| many(pool.usable)),
            of(|pool| pool.warm_short.to_string()),
            of(|pool| pool.calls.to_string()),
            of(|pool| pool.max_pods.map_or_else(|| "-".to_owned(), |max| max.to_string())),
        ]
    }

    fn state(&self) -> String {
        let worst = self.troubles.iter().find(|it| it.severity == Severity::Trouble);
        match (worst, &self.excluded) {
            (Some(worst), _) => worst.kind.clone(),
            (None, Some(why)) => format!("none: {why}"),
            (None, None) if self.pool.is_none() => "unknown".to_owned(),
            (None, None) => "good".to_owned(),
        }
    }
}

/// Avoids the exact count of a /80 prefix.
fn many(count: u64) -> String {
    if count > COUNTED { "many".to_owned() } else { count.to_string() }
}

/// Formats the EC2 budget with the smallest share left.
fn budget(budgets: &[Budget]) -> String {
    let share = |it: &Budget| it.milli_per_second * 100 / it.ceiling_milli_per_second.max(1);
    let least = budgets.iter().map(share).min().unwrap_or(100);
    format!("{least}%")
}

fn lines_of(trouble: &Trouble, nodes: &[&str]) -> String {
    let word = match trouble.severity {
        Severity::Trouble => "TROUBLE",
        Severity::Notice => "notice ",
    };
    let named = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = nodes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let place = if nodes.is_empty() { String::new() } else { format!("{named}{more}: ") };
    let since = trouble.since.as_ref().filter(|_| nodes.len() < 2);
    let since = since.map(|at| format!(" (since {at})")).unwrap_or_default();
    let Trouble { object, cause, next_step, .. } = trouble;
    let what = if object == cause { cause.clone() } else { format!("{object}: {cause}") };
    let mut text = format!("{word}  {place}{what}{since}\n");
    if !next_step.is_empty() {
        text.push_str(&format!("         next: {next_step}\n"));
    }
    text
}

const NAMED: usize = 5;
const WAITING_TOLD: usize = 20;
const COUNTED: u64 = 1 << 20;
