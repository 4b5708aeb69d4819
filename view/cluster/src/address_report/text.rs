//! The use of addresses as text.

use super::{AddressReport, BlockUse, EniUse, SubnetUse};
use crate::{
    status_report::{Width, add_lines, many},
    subnets::about,
};
use view_node::{Severity, UsedAddress};
use view_text::{Cell, Table, Text, Tone, counted};

impl AddressReport {
    /// Formats a table of the subnets, and with [`Width::Wide`] a tree down to the pods.
    pub fn text(&self, width: Width, columns: Option<u16>) -> Text {
        let mut table = Table::new(&HEADS);
        self.subnets.iter().for_each(|subnet| table.row(subnet.cells()));
        let mut text = table.text(columns);
        if width == Width::Wide {
            for subnet in self.subnets.iter().filter(|subnet| !subnet.enis.is_empty()) {
                text.push_plain("\n");
                text.push_plain(&subnet.tree());
            }
        }
        text.append(self.not_read());
        text
    }

    /// Formats the findings, the worst first, or the fact that there are none.
    pub fn findings_text(&self) -> Text {
        let mut text = Text::default();
        self.findings.iter().for_each(|finding| add_lines(&mut text, finding, &[]));
        text.append(self.not_read());
        let problems = self.findings.iter().filter(|it| it.severity == Severity::Trouble).count();
        let assigned: u64 = self.subnets.iter().map(|it| it.assigned).sum();
        let what = [
            counted(assigned, "address in use", "addresses in use"),
            counted(self.subnets.len(), "subnet", "subnets"),
            counted(self.nodes, "node", "nodes"),
        ];
        text.push_plain(&format!("{}: ", what.join(", ")));
        match problems {
            0 if !self.unasked.is_empty() => {
                text.push(Tone::Notice, "incomplete, no problem in the data that was read");
            }
            0 => text.push(Tone::Good, "no problem"),
            _ => text.push(Tone::Bad, &counted(problems, "problem", "problems")),
        }
        text.push_plain("\n");
        text
    }

    fn not_read(&self) -> Text {
        let mut text = Text::default();
        for unasked in &self.unasked {
            text.push(Tone::Notice, "not read:");
            text.push_plain(&format!(" {unasked}\n"));
        }
        text
    }
}

const HEADS: [&str; 12] = [
    "SUBNET",
    "ZONE",
    "CIDR",
    "AVAILABLE",
    "COUNTED",
    "PREFIXES",
    "FULL IN",
    "NODES",
    "ENIS",
    "ASSIGNED",
    "COOLING",
    "FREE",
];

impl SubnetUse {
    fn cells(&self) -> Vec<Cell> {
        let none = || "-".to_owned();
        let available = self.count.map_or_else(none, |it| format!("{}/{}", it.available, it.total));
        let full_in = match self.forecast {
            Some(forecast) => Cell::new(Tone::Notice, about(forecast.full_in_seconds)),
            None => Cell::from(none()),
        };
        vec![
            self.id.clone().into(),
            self.zone.clone().unwrap_or_else(none).into(),
            self.cidr.clone().unwrap_or_else(none).into(),
            available.into(),
            self.count.map_or_else(none, |it| format!("{} ago", about(it.seconds_ago))).into(),
            self.prefixes_cell(),
            full_in,
            self.nodes.to_string().into(),
            self.enis.len().to_string().into(),
            self.assigned.to_string().into(),
            self.cooling.to_string().into(),
            many(self.free).into(),
        ]
    }

    fn prefixes_cell(&self) -> Cell {
        match self.free_prefixes_at_most {
            _ if self.fragmented => Cell::new(Tone::Bad, "fragmented"),
            Some(most) => Cell::from(format!("<= {most}")),
            None => Cell::from("-"),
        }
    }

    fn tree(&self) -> String {
        let mut text = format!("{}\n", self.id);
        for eni in &self.enis {
            text.push_str(&eni.line());
            eni.uses.iter().for_each(|block| text.push_str(&block.lines()));
        }
        text
    }
}

impl EniUse {
    fn line(&self) -> String {
        let Self { node, eni, .. } = self;
        let states =
            [(eni.excluded, "excluded"), (eni.leaving, "leaving"), (eni.missing, "MISSING")];
        let states: Vec<&str> =
            states.iter().filter(|(is, _)| *is).map(|(_, state)| *state).collect();
        let states =
            if states.is_empty() { String::new() } else { format!(", {}", states.join(", ")) };
        let primary = eni.primary_address.as_deref().unwrap_or("-");
        format!(
            "  {} on {node}, card {}, device {}, primary {primary}: {} assigned, {} cooling, {} free{states}\n",
            eni.id,
            eni.card,
            eni.device,
            eni.assigned,
            eni.cooling,
            many(eni.free)
        )
    }
}

impl BlockUse {
    /// A single address is one line with its use.
    fn lines(&self) -> String {
        match (self.size, self.used.as_slice()) {
            (1, [used]) => format!("    {}  {}\n", used.address, used_by(used)),
            (1, _) => format!("    {}  free\n", self.cidr.trim_end_matches("/32")),
            (size, used) => {
                let free = many(size.saturating_sub(used.len() as u64));
                let lines =
                    used.iter().map(|it| format!("      {}  {}\n", it.address, used_by(it)));
                format!("    {}  {free} free\n{}", self.cidr, lines.collect::<String>())
            }
        }
    }
}

fn used_by(used: &UsedAddress) -> String {
    match (&used.pod, used.stuck_seconds) {
        (Some(pod), _) if pod.confirmed => format!("{}/{}", pod.namespace, pod.name),
        (Some(pod), _) => format!("{}/{} (ADD in progress)", pod.namespace, pod.name),
        (None, Some(_)) => "cooling, still in the kernel".to_owned(),
        (None, None) => format!("cooling for {}", about(used.seconds)),
    }
}
