//! The results of the connectivity test.

use super::{Column, Outcome, Site, Try, steps};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    pub nodes: Chosen,
    pub rows: Vec<Row>,
    pub failures: Vec<Failure>,
    /// The causes for which the API server refused the objects of a column's tests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<Column, String>,
}

/// The numbers of nodes with probes and of nodes that can have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    pub tested: usize,
    pub all: usize,
}

/// The results of one node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub node: String,
    /// Passed tests and all tests.
    pub cells: BTreeMap<Column, (usize, usize)>,
    /// The size of the largest packets that reached all targets; `None` if no target was reached.
    pub mtu: Option<u32>,
    /// Medians of the round-trip times to pods, by column.
    pub round_trip_micros: BTreeMap<Column, u64>,
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
            let next_step = column.map_or(steps::NO_PROBE, steps::next_step);
            self.failures.push(Failure { from: site.node.clone(), column, tried, said, next_step });
        };
        match tried {
            Err(why) => fail(None, "its probe".to_owned(), why),
            Ok(tried) => {
                if let Some(why) = &site.why_not {
                    fail(None, "its pods".to_owned(), why.clone());
                }
                row.measure(&tried);
                for (column, what, outcome) in tried {
                    let (good, all) = row.cells.entry(column).or_default();
                    *good += usize::from(outcome.good);
                    *all += 1;
                    if !outcome.good {
                        fail(Some(column), steps::words(&what), outcome.said);
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
}

impl Row {
    fn measure(&mut self, tried: &[(Column, Try, Outcome)]) {
        let sizes = tried.iter().filter(|(column, ..)| *column == Column::Mtu);
        self.mtu = sizes.filter_map(|(_, _, outcome)| outcome.mtu).min();
        for column in Column::ALL {
            let of = tried.iter().filter(|(it, ..)| *it == column);
            let mut times: Vec<u64> = of.filter_map(|(_, _, it)| it.micros).collect();
            times.sort_unstable();
            if let Some(median) = times.get(times.len() / 2) {
                self.round_trip_micros.insert(column, *median);
            }
        }
    }
}
