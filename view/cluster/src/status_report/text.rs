//! The overview as text: a summary, the problems with the worst first, and a table.

use super::{AgentLine, NodeLine, StatusReport};
use std::{cmp::Reverse, collections::BTreeMap};
use view_node::{Budget, Severity, Trouble, WaitingAdd};
use view_text::{Cell, Table, Text, Tone};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Narrow,
    Wide,
}

impl StatusReport {
    /// Formats the summary, the problems and a table, each with the worst first. `columns` is the width of the terminal.
    pub fn text(&self, width: Width, columns: Option<u16>) -> Text {
        let mut text = self.summary.text();
        let problems = self.problems();
        if problems != Text::default() {
            text.push_plain("\n");
            text.append(problems);
        }
        if !self.nodes.is_empty() {
            text.push_plain("\n");
            text.append(self.table(width).text(columns));
        }
        text
    }

    /// Formats the problems without the table, the worst first.
    pub fn problems(&self) -> Text {
        let mut text = Text::default();
        self.add_troubles(&mut text, Severity::Trouble);
        for (node, add, more) in self.waiting() {
            let pod = format!("{}/{}", add.namespace, add.name);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text.push(Tone::Notice, "waiting");
            text.push_plain(&format!(
                "  {node}: {pod} for {} s{more}: {}\n         next: {}\n",
                add.seconds, add.reason, add.next_step
            ));
        }
        for unasked in &self.unasked {
            text.push(Tone::Notice, "not read:");
            text.push_plain(&format!(" {unasked}\n"));
        }
        self.add_troubles(&mut text, Severity::Notice);
        text
    }

    fn add_troubles(&self, text: &mut Text, severity: Severity) {
        for (trouble, nodes) in self.grouped(severity) {
            add_lines(text, &trouble, &nodes);
        }
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
        let mut lines: Vec<&NodeLine> = self.nodes.iter().collect();
        lines.sort_by_key(|line| line.urgency());
        for line in lines {
            let mut cells = line.cells(agents);
            if wide {
                cells.extend(line.more_cells().into_iter().map(Cell::from));
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

    /// Problems that many nodes share are shown once. Problems of the cluster are first, then the most frequent ones.
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
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|(_, nodes)| (!nodes.is_empty(), Reverse(nodes.len())));
        groups
    }
}

impl NodeLine {
    fn cells(&self, agents: bool) -> Vec<Cell> {
        let none = || "-".to_owned();
        let pool = self.pool.as_ref();
        let of = |what: fn(&view_node::Pool) -> String| pool.map_or_else(none, what);
        let ready = if self.ready { Cell::from("yes") } else { Cell::new(Tone::Bad, "NO") };
        let waits = pool.is_some_and(|pool| pool.waiting_adds > 0);
        let waiting = if waits { Tone::Notice } else { Tone::Plain };
        let mut cells = vec![
            Cell::from(&self.node),
            ready,
            of(|pool| format!("{}/{}", pool.enis, pool.max_enis)).into(),
            of(|pool| format!("{}/{}", pool.assigned, many(pool.total))).into(),
            of(|pool| many(pool.free)).into(),
            of(|pool| pool.cooling.to_string()).into(),
            Cell::new(waiting, of(|pool| pool.waiting_adds.to_string())),
            pool.map_or_else(none, |_| budget(&self.budgets)).into(),
        ];
        if agents {
            cells.push(self.agent.as_ref().map_or_else(none, AgentLine::cell).into());
        }
        cells.extend([self.version.clone().unwrap_or_else(none).into(), self.state()]);
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

    fn state(&self) -> Cell {
        let worst = self.troubles.iter().find(|it| it.severity == Severity::Trouble);
        match (worst, &self.excluded) {
            (Some(worst), _) => Cell::new(Tone::Bad, &worst.kind),
            (None, Some(why)) => Cell::from(format!("none: {why}")),
            (None, None) if self.pool.is_none() => Cell::new(Tone::Notice, "unknown"),
            (None, None) => Cell::new(Tone::Good, "good"),
        }
    }
}

/// Avoids the exact count of a /80 prefix.
pub(crate) fn many(count: u64) -> String {
    if count > COUNTED { "many".to_owned() } else { count.to_string() }
}

/// Formats the EC2 budget with the smallest share left.
fn budget(budgets: &[Budget]) -> String {
    let share = |it: &Budget| it.milli_per_second * 100 / it.ceiling_milli_per_second.max(1);
    let least = budgets.iter().map(share).min().unwrap_or(100);
    format!("{least}%")
}

pub(crate) fn add_lines(text: &mut Text, trouble: &Trouble, nodes: &[&str]) {
    match trouble.severity {
        Severity::Trouble => text.push(Tone::Bad, "TROUBLE"),
        Severity::Notice => text.push(Tone::Notice, "notice "),
    }
    let named = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = nodes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let place = if nodes.is_empty() { String::new() } else { format!("{named}{more}: ") };
    let since = trouble.since.as_ref().filter(|_| nodes.len() < 2);
    let since = since.map(|at| format!(" (since {at})")).unwrap_or_default();
    let Trouble { object, cause, next_step, .. } = trouble;
    let what = if object == cause { cause.clone() } else { format!("{object}: {cause}") };
    text.push_plain(&format!("  {place}{what}{since}\n"));
    if !next_step.is_empty() {
        text.push_plain(&format!("         next: {next_step}\n"));
    }
}

const NAMED: usize = 5;
const WAITING_TOLD: usize = 20;
/// Larger counts are not shown.
pub(super) const COUNTED: u64 = 1 << 20;
