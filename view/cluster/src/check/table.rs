//! The results of the connectivity test as a table.

use super::{Column, Failure, Matrix, Row};
use view_text::{Cell, Table, Text, Tone};

impl Matrix {
    /// Formats the choice of nodes, a table, and the failures with their next steps. `columns` is the width of the
    /// terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        let mut text = Text::default();
        let (tested, all) = (self.nodes.tested, self.nodes.all);
        if tested < all {
            text.push_plain(&format!(
                "tested {tested} of {all} nodes; choose others with --node or --sample\n\n"
            ));
        }
        let is_tested =
            |column: &Column| self.rows.iter().any(|row| row.cells.contains_key(column));
        let (shown, left_out): (Vec<_>, Vec<_>) = Column::ALL.into_iter().partition(is_tested);
        let mut heads = vec!["FROM"];
        heads.extend(shown.iter().map(|column| head(*column)));
        heads.push("RTT (ms)");
        let mut table = Table::new(&heads);
        for row in &self.rows {
            let cells = shown.iter().map(|column| cell(row, *column));
            table.row(std::iter::once(Cell::from(&row.node)).chain(cells).chain([times(row)]));
        }
        text.append(table.text(columns));
        let why = |column: Column| match self.refused.get(&column) {
            Some(cause) => Some(format!("{} ({cause})", head(column))),
            None => not_tested(column).map(str::to_owned),
        };
        let left_out: Vec<String> = left_out.into_iter().filter_map(why).collect();
        if !left_out.is_empty() {
            text.push_plain(&format!("not tested: {}\n", left_out.join(", ")));
        }
        self.add_failures(&mut text);
        text
    }

    fn add_failures(&self, text: &mut Text) {
        for failure in self.failures.iter().take(TOLD) {
            let Failure { from, tried, said, next_step, .. } = failure;
            text.push(Tone::Bad, "FAIL");
            text.push_plain(&format!("  {from}: {tried}: {said}\n      next: {next_step}\n"));
        }
        match self.failures.len().saturating_sub(TOLD) {
            0 => {}
            more => text.push_plain(&format!("and {more} more; see -o json\n")),
        }
    }
}

fn cell(row: &Row, column: Column) -> Cell {
    match (row.cells.get(&column), row.mtu) {
        (None, _) => Cell::from("-"),
        (Some((good, all)), Some(mtu)) if good == all && column == Column::Mtu => {
            Cell::new(Tone::Good, format!("ok {mtu}"))
        }
        (Some((good, all)), _) if good == all => Cell::new(Tone::Good, "ok"),
        (Some((good, all)), _) => Cell::new(Tone::Bad, format!("FAIL {good}/{all}")),
    }
}

/// Formats the times to the pod on the same node and to pods of other nodes.
fn times(row: &Row) -> Cell {
    let of = |column| row.round_trip_micros.get(&column);
    let ms = |micros: &u64| format!("{}.{:02}", micros / 1000, micros % 1000 / 10);
    let shown = [of(Column::SameNode), of(Column::OtherNodes)];
    if shown.iter().all(Option::is_none) {
        return Cell::from("-");
    }
    Cell::from(shown.map(|micros| micros.map_or_else(|| "-".to_owned(), ms)).join(" / "))
}

fn head(column: Column) -> &'static str {
    match column {
        Column::SameNode => "SAME NODE",
        Column::OtherNodes => "OTHER NODES",
        Column::Mtu => "MTU",
        Column::Ipv6 => "IPV6",
        Column::Service => "SERVICE",
        Column::NodePort => "NODEPORT",
        Column::ExternalIp => "EXTERNALIP",
        Column::LoadBalancer => "LOADBALANCER",
        Column::HostPort => "HOSTPORT",
        Column::HostNetwork => "HOSTNETWORK",
        Column::Host => "HOST",
        Column::Dns => "DNS",
        Column::Internet => "INTERNET",
    }
}

/// Returns the column and the condition of its tests; `None` if the reason is in the rows.
fn not_tested(column: Column) -> Option<&'static str> {
    match column {
        Column::Ipv6 => Some("IPV6 (pods have no second address)"),
        Column::HostPort => Some("HOSTPORT (--host-port)"),
        Column::HostNetwork => Some("HOSTNETWORK (--host-network)"),
        Column::Internet => Some("INTERNET (--internet)"),
        Column::OtherNodes => Some("OTHER NODES (no other node)"),
        Column::SameNode
        | Column::Mtu
        | Column::Service
        | Column::NodePort
        | Column::ExternalIp
        | Column::LoadBalancer
        | Column::Host
        | Column::Dns => None,
    }
}

const TOLD: usize = 20;
