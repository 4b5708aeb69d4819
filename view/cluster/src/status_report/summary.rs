//! The counts of a whole cluster.

use super::{NodeLine, StatusReport};
use serde::Serialize;
use view_node::Severity;
use view_text::{Text, Tone, counted};

/// The counts of all nodes of the query, also of those that a filter hides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub nodes: usize,
    pub good: usize,
    pub with_trouble: usize,
    /// Nodes that should have no daemon.
    pub excluded: usize,
    /// Nodes without trouble whose pool is not known.
    pub unknown: usize,
    /// Problems that belong to no node.
    pub cluster_troubles: usize,
    /// Addresses in use by pods.
    pub assigned: u64,
    /// All addresses for pods.
    pub total: u64,
    /// ADDs that wait for an address.
    pub waiting_adds: u64,
}

impl Summary {
    pub(super) fn of(report: &StatusReport) -> Self {
        let mut summary = Self { nodes: report.nodes.len(), ..Self::default() };
        for line in &report.nodes {
            let counter = match (line.has_trouble(), &line.excluded, &line.pool) {
                (true, _, _) => &mut summary.with_trouble,
                (false, Some(_), _) => &mut summary.excluded,
                (false, None, None) => &mut summary.unknown,
                (false, None, Some(_)) => &mut summary.good,
            };
            *counter += 1;
            if let Some(pool) = &line.pool {
                summary.assigned += u64::from(pool.assigned);
                summary.total = summary.total.saturating_add(pool.total);
                summary.waiting_adds += u64::from(pool.waiting_adds);
            }
        }
        let of_cluster = report.troubles.iter();
        summary.cluster_troubles =
            of_cluster.filter(|trouble| trouble.severity == Severity::Trouble).count();
        summary
    }

    /// Formats the counts as one line.
    pub fn text(&self) -> Text {
        let nodes = if self.nodes == 1 { "node" } else { "nodes" };
        let mut text = Text::from(format!("{} {nodes}: ", with_commas(self.nodes as u64)).as_str());
        let parts = [
            (self.good, "good", Tone::Good),
            (self.with_trouble, "with trouble", Tone::Bad),
            (self.excluded, "without Ferrule", Tone::Plain),
            (self.unknown, "unknown", Tone::Notice),
        ];
        let shown = parts.into_iter().filter(|(count, word, _)| *count > 0 || *word == "good");
        for (index, (count, word, tone)) in shown.enumerate() {
            text.push_plain(if index > 0 { ", " } else { "" });
            let tone = if count > 0 { tone } else { Tone::Plain };
            text.push(tone, &format!("{} {word}", with_commas(count as u64)));
        }
        if self.cluster_troubles > 0 {
            text.push_plain("; ");
            let problems = counted(self.cluster_troubles, "problem", "problems");
            text.push(Tone::Bad, &format!("{problems} of the cluster"));
        }
        text.push_plain(&self.addresses());
        text.push_plain("\n");
        text
    }

    fn addresses(&self) -> String {
        let mut text = match self.total {
            0 => String::new(),
            // The exact count of a /80 prefix helps no reader.
            total if total > super::text::COUNTED => {
                let noun = if self.assigned == 1 { "address" } else { "addresses" };
                format!("; {} {noun} in use", with_commas(self.assigned))
            }
            total => {
                format!(
                    "; {} of {} addresses in use",
                    with_commas(self.assigned),
                    with_commas(total)
                )
            }
        };
        match self.waiting_adds {
            0 => {}
            1 => text.push_str("; 1 ADD waits for an address"),
            waiting => {
                text.push_str(&format!("; {} ADDs wait for an address", with_commas(waiting)))
            }
        }
        text
    }
}

impl NodeLine {
    pub(super) fn has_trouble(&self) -> bool {
        self.troubles.iter().any(|trouble| trouble.severity == Severity::Trouble)
    }

    /// Orders lines with the worst first: troubles, waiting ADDs, nodes that are not ready, notices.
    pub(super) fn urgency(&self) -> (bool, bool, bool, bool) {
        let waits = self.pool.as_ref().is_some_and(|pool| pool.waiting_adds > 0);
        (!self.has_trouble(), !waits, self.ready, self.troubles.is_empty())
    }
}

/// Formats a number with separators of thousands.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line_with_the_counts_that_matter() {
        let summary = Summary {
            nodes: 1012,
            good: 1009,
            with_trouble: 1,
            excluded: 2,
            assigned: 48_000,
            total: 1_200_000,
            ..Summary::default()
        };
        let many =
            "1,012 nodes: 1,009 good, 1 with trouble, 2 without Ferrule; 48,000 addresses in use\n";
        assert_eq!(summary.text().to_string(), many);
        let summary = Summary { nodes: 1, unknown: 1, cluster_troubles: 2, ..Summary::default() };
        assert_eq!(
            summary.text().to_string(),
            "1 node: 0 good, 1 unknown; 2 problems of the cluster\n"
        );
        let summary = Summary {
            nodes: 2,
            good: 2,
            assigned: 480,
            total: 2000,
            waiting_adds: 1,
            ..Summary::default()
        };
        assert_eq!(
            summary.text().to_string(),
            "2 nodes: 2 good; 480 of 2,000 addresses in use; 1 ADD waits for an address\n"
        );
    }
}
