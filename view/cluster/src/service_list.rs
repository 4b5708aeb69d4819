//! All Services, each with its state.

use crate::service_report::{ServiceData, ServiceReport, add_unread};
use serde::Serialize;
use view_node::Severity;
use view_text::{Cell, Table, Text};

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceList {
    /// Sorted by name.
    pub services: Vec<ServiceReport>,
    /// Objects and states that could not be read.
    pub unread: Vec<String>,
}

impl ServiceList {
    /// Reports on the Services of a namespace, or on all.
    pub fn of(data: &ServiceData, namespace: Option<&str>) -> Self {
        let names = data.names().filter(|name| namespace.is_none_or(|only| only == name.namespace));
        let services = names.filter_map(|name| ServiceReport::of(data, name));
        // The list has these lines once, and not in each report.
        let services = services.map(|of| ServiceReport { unread: Vec::new(), ..of });
        Self { services: services.collect(), unread: data.unread.clone() }
    }

    /// Returns true if no Service has a problem that needs a fix.
    pub fn is_good(&self) -> bool {
        self.services.iter().all(ServiceReport::is_good)
    }

    /// Formats a table with the worst rows first. `columns` is the width of the terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        let mut text = match self.services.is_empty() {
            true => Text::from("no Services\n"),
            false => self.table().text(columns),
        };
        add_unread(&mut text, &self.unread);
        text
    }

    fn table(&self) -> Table {
        let mut rows: Vec<&ServiceReport> = self.services.iter().collect();
        rows.sort_by_key(|service| urgency(service));
        let mut table = Table::new(&["SERVICE", "TYPE", "FRONTENDS", "READY", "STATE"]);
        for service in rows {
            let count = service.endpoints;
            let (tone, state) = service.state();
            table.row([
                Cell::from(&service.service),
                service.kind_name().into(),
                frontends(service).into(),
                format!("{}/{}", count.ready, count.total).into(),
                Cell::new(tone, state),
            ]);
        }
        table
    }
}

/// The first frontend, and the number of the others. The other ports of cluster IPs do not count.
fn frontends(service: &ServiceReport) -> String {
    let mut all = service.frontends.iter().filter(|frontend| frontend.is_port());
    let Some(first) = all.next() else { return "-".to_owned() };
    match all.count() {
        0 => first.at.clone(),
        more => format!("{} +{more}", first.at),
    }
}

/// Problems come first, and Services that no node serves last.
fn urgency(service: &ServiceReport) -> u8 {
    match service.troubles.first().map(|worst| worst.severity) {
        Some(Severity::Trouble) => 0,
        Some(Severity::Notice) => 1,
        None if service.not_served.is_none() => 2,
        None => 3,
    }
}
