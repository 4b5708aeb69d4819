//! The results of the connectivity test as a table, with a next step for each failure.

use super::{Column, How, Outcome, Site, Try};
use serde::Serialize;
use std::collections::BTreeMap;
use view_text::{Cell, Table, Text, Tone};

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    pub rows: Vec<Row>,
    pub failures: Vec<Failure>,
}

/// The results of one node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub node: String,
    /// Passed tests and all tests.
    pub cells: BTreeMap<Column, (usize, usize)>,
}

/// A failed test.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub from: String,
    /// The failed test; `None` if no probe could run.
    pub column: Option<Column>,
    pub tried: String,
    pub said: String,
    pub next_step: &'static str,
}

impl Matrix {
    /// Adds a node's results, or the reason why its probe did not run. A missing pod of the node also counts as a
    /// failure.
    pub fn add(&mut self, site: &Site, tried: Result<Vec<(Column, Try, Outcome)>, String>) {
        let mut row = Row { node: site.node.clone(), ..Row::default() };
        let mut fail = |column: Option<Column>, tried: String, said: String| {
            let next_step = column.map_or(NO_PROBE, next_step);
            self.failures.push(Failure { from: site.node.clone(), column, tried, said, next_step });
        };
        match tried {
            Err(why) => fail(None, "its probe".to_owned(), why),
            Ok(tried) => {
                if let Some(why) = &site.why_not {
                    fail(None, "its pods".to_owned(), why.clone());
                }
                for (column, what, outcome) in tried {
                    let (good, all) = row.cells.entry(column).or_default();
                    *good += usize::from(outcome.good);
                    *all += 1;
                    if !outcome.good {
                        fail(Some(column), words(&what), outcome.said);
                    }
                }
            }
        }
        self.rows.push(row);
    }

    /// Returns true if all tests passed and each node ran at least one.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && !self.rows.is_empty()
    }

    /// Formats a table and the failures with their next steps. `columns` is the width of the terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        let mut heads = vec!["FROM"];
        heads.extend(Column::ALL.map(head));
        let mut table = Table::new(&heads);
        for row in &self.rows {
            let cells = Column::ALL.map(|column| match row.cells.get(&column) {
                None => Cell::from("-"),
                Some((good, all)) if good == all => Cell::new(Tone::Good, "ok"),
                Some((good, all)) => Cell::new(Tone::Bad, format!("FAIL {good}/{all}")),
            });
            table.row(std::iter::once(Cell::from(&row.node)).chain(cells));
        }
        let mut text = table.text(columns);
        for failure in self.failures.iter().take(TOLD) {
            let Failure { from, tried, said, next_step, .. } = failure;
            text.push(Tone::Bad, "FAIL");
            text.push_plain(&format!("  {from}: {tried}: {said}\n      next: {next_step}\n"));
        }
        match self.failures.len().saturating_sub(TOLD) {
            0 => {}
            more => text.push_plain(&format!("and {more} more; see -o json\n")),
        }
        text
    }
}

fn head(column: Column) -> &'static str {
    match column {
        Column::SameNode => "SAME NODE",
        Column::OtherNodes => "OTHER NODES",
        Column::Service => "SERVICE",
        Column::NodePort => "NODEPORT",
        Column::Host => "HOST",
        Column::Dns => "DNS",
        Column::Internet => "INTERNET",
    }
}

fn words(what: &Try) -> String {
    let to = &what.to;
    match what.how {
        How::Tcp => format!("TCP to {to}"),
        How::Http => format!("HTTP to {to}"),
        How::Udp => format!("UDP to {to}"),
        How::Dns => format!("the name {to}"),
    }
}

fn next_step(column: Column) -> &'static str {
    match column {
        Column::SameNode => {
            "both pods' routes and rules are on this node; run `ferrule doctor` there and `ferrule status`"
        }
        Column::OtherNodes => {
            "check the nodes' security groups, the VPC's route tables and \
             network ACLs, and policies that hold in every namespace (`ferrule policy lint`)"
        }
        Column::Service => "check that kube-proxy runs on the node, and its log",
        Column::NodePort => {
            "check that kube-proxy runs, that security groups admit node ports, and \
             AWS_VPC_CNI_NODE_PORT_SUPPORT; `ferrule doctor` finds strict rp_filter"
        }
        Column::Host => "check the node's firewall, and policies that deny egress to nodes",
        Column::Dns => {
            "check that the cluster's DNS runs (kubectl -n kube-system get pods -l k8s-app=kube-dns) and that \
             security groups let pods reach it on port 53, UDP and TCP"
        }
        Column::Internet => {
            "check the subnet's route to a NAT or internet gateway, and AWS_VPC_K8S_CNI_EXTERNALSNAT: without \
             SNAT only a NAT gateway translates pods' addresses"
        }
    }
}

const NO_PROBE: &str =
    "run kubectl describe on the pod; `ferrule status` shows the node's problems";
const TOLD: usize = 20;
