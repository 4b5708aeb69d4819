//! The report about one Service as text.

use super::{
    Answer, ClientView, EndpointView, FrontendView, InForce, PortView, ServiceReport, texts,
};
use service_core::{MOST_BACKENDS, OutReason, Use};
use service_objects::{Family, Ingress, IngressMode};
use view_node::{Severity, Trouble};
use view_text::{Cell, Table, Text, Tone};

/// Limit of endpoints that the text lists for a frontend.
const LISTED: usize = 100;

impl ServiceReport {
    /// Formats the report. `columns` is the width of the terminal.
    pub fn text(&self, columns: Option<u16>) -> Text {
        let mut text = Text::default();
        text.push_plain(&format!("{}: {}, ", self.service, self.kind_name()));
        let (tone, word) = self.state();
        text.push(tone, &word);
        text.push_plain("\n");
        self.add_troubles(&mut text);
        self.add_fields(&mut text);
        if let Some(in_force) = &self.in_force {
            add_in_force(&mut text, in_force, self.node.as_deref().unwrap_or("the node"));
        }
        add_unread(&mut text, &self.unread);
        for group in self.groups() {
            text.push_plain("\n");
            self.add_group(&mut text, &group, columns);
        }
        text
    }

    /// The word for a list, with its tone.
    pub(crate) fn state(&self) -> (Tone, String) {
        match (&self.not_served, self.troubles.first()) {
            (_, Some(worst)) if worst.severity == Severity::Trouble => {
                (Tone::Bad, worst.cause.clone())
            }
            (Some(why), _) => (Tone::Plain, why.clone()),
            (None, Some(worst)) => (Tone::Notice, worst.cause.clone()),
            (None, None) => (Tone::Good, "good".to_owned()),
        }
    }

    fn add_troubles(&self, text: &mut Text) {
        for Trouble { severity, cause, next_step, .. } in &self.troubles {
            let (tone, word) = match severity {
                Severity::Trouble => (Tone::Bad, "TROUBLE"),
                Severity::Notice => (Tone::Notice, "notice "),
            };
            text.push(tone, word);
            text.push_plain(&format!("  {cause}\n         next: {next_step}\n"));
        }
    }

    fn add_fields(&self, text: &mut Text) {
        let mut line = |word: &str, value: String| {
            if !value.is_empty() {
                text.push_plain(&format!("  {word:10} {value}\n"));
            }
        };
        line("cluster IP", texts(&self.cluster_ips).join(", "));
        line("external", texts(&self.external_ips).join(", "));
        let ingress: Vec<String> = self.ingress.iter().map(ingress).collect();
        line("balancer", ingress.join(", "));
        let ports: Vec<String> = self.ports.iter().map(port).collect();
        line("ports", ports.join(", "));
        line(
            "policies",
            format!("internal {:?}, external {:?}", self.internal_policy, self.external_policy),
        );
        let health = self.health_check_node_port;
        line("health", health.map(|port| format!("node port {port}")).unwrap_or_default());
        let affinity = self.affinity_seconds.map(|of| format!("a client keeps its backend {of} s"));
        line("affinity", affinity.unwrap_or_default());
        line("sources", self.source_ranges.as_deref().map(sources).unwrap_or_default());
        let count = self.endpoints;
        line("endpoints", format!("{} of {} ready", count.ready, count.total));
        let zone = self.zone.as_ref().map(|zone| format!(" in zone {zone}")).unwrap_or_default();
        match &self.node {
            Some(node) => line("seen from", format!("{node}{zone}")),
            None => line(
                "seen from",
                "no node: hints are not applied; choose a node with --node".into(),
            ),
        }
    }

    /// The frontends with equal answers and reasons.
    fn groups(&self) -> Vec<Vec<&FrontendView>> {
        let mut groups: Vec<Vec<&FrontendView>> = Vec::new();
        for frontend in &self.frontends {
            let is_equal = |group: &&mut Vec<&FrontendView>| {
                group.first().is_some_and(|first| {
                    frontend.taken_by.is_none()
                        && FrontendView { at: first.at.clone(), ..frontend.clone() } == **first
                })
            };
            match groups.iter_mut().find(is_equal) {
                Some(group) => group.push(frontend),
                None => groups.push(vec![frontend]),
            }
        }
        groups
    }

    fn add_group(&self, text: &mut Text, group: &[&FrontendView], columns: Option<u16>) {
        let Some(first) = group.first() else { return };
        let at: Vec<&str> = group.iter().map(|frontend| frontend.at.as_str()).collect();
        let name = first.port.as_deref().filter(|name| !name.is_empty());
        let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
        text.push_plain(&format!("{}{name}\n", at.join(", ")));
        if let Some(owner) = &first.taken_by {
            text.push(Tone::Bad, "  not of this Service:");
            text.push_plain(&format!(" it belongs to {owner}\n"));
        }
        if let Some(ranges) = &first.sources {
            text.push_plain(&format!(
                "  clients in {} only; others are dropped\n",
                sources(ranges)
            ));
        }
        match (&first.inside, &first.outside) {
            (Some(inside), Some(outside)) if inside == outside => {
                self.add_client(text, "all clients", inside);
            }
            (inside, outside) => {
                for (word, client) in [("clients on the node", inside), ("outside", outside)] {
                    if let Some(client) = client {
                        self.add_client(text, word, client);
                    }
                }
            }
        }
        self.add_endpoints(text, &first.endpoints, columns);
    }

    fn add_client(&self, text: &mut Text, word: &str, client: &ClientView) {
        let (tone, answer) = match client.answer {
            Answer::Backends => (Tone::Plain, counted(client.backends.len(), "backend")),
            Answer::NoEndpoints => (Tone::Bad, "rejected: no endpoint is usable".to_owned()),
            Answer::NoLocalEndpoints => {
                let node = self.node.as_deref().unwrap_or("the node");
                (Tone::Notice, format!("dropped: {node} has no endpoint"))
            }
            Answer::NoSuchPort => (Tone::Plain, "rejected".to_owned()),
            Answer::EachNode => (Tone::Plain, "the endpoints of the node".to_owned()),
        };
        let policy = client.policy.map(|policy| format!("policy {policy:?}: ")).unwrap_or_default();
        text.push_plain(&format!("  {word}: {policy}"));
        text.push(tone, &answer);
        text.push_plain("\n");
    }

    fn add_endpoints(&self, text: &mut Text, all: &[EndpointView], columns: Option<u16>) {
        let is_listed = |of: &&EndpointView| !of.uses.contains(&Use::Out(OutReason::OtherFamily));
        let mut listed: Vec<&EndpointView> = all.iter().filter(is_listed).collect();
        let of_other_family = all.len() - listed.len();
        // Endpoints that no client uses come first, because the list is cut.
        listed.sort_by_key(|of| of.uses.contains(&Use::In));
        let is_one = listed.iter().all(|of| of.inside == of.outside);
        let heads = match is_one {
            true => &["ENDPOINT", "NODE", "ZONE", "STATE", "USE"][..],
            false => &["ENDPOINT", "NODE", "ZONE", "STATE", "ON THE NODE", "OUTSIDE"],
        };
        let mut table = Table::new(heads);
        for of in listed.iter().take(LISTED) {
            let at = match (of.port, of.address.is_ipv4()) {
                (Some(port), true) => format!("{}:{port}", of.address),
                (Some(port), false) => format!("[{}]:{port}", of.address),
                (None, _) => of.address.to_string(),
            };
            let or_none = |name: &Option<String>| Cell::from(name.as_deref().unwrap_or("-"));
            let mut cells =
                vec![Cell::from(at), or_none(&of.node), or_none(&of.zone), Cell::from(state(of))];
            let uses = if is_one { &of.uses[..1] } else { &of.uses[..] };
            cells.extend(uses.iter().map(|it| self.cell(all, of, *it)));
            table.row(cells);
        }
        if !listed.is_empty() {
            text.append(table.text(columns));
        }
        if listed.len() > LISTED {
            let more = listed.len() - LISTED;
            text.push_plain(&format!("{}: see -o json\n", counted(more, "more endpoint")));
        }
        if of_other_family > 0 {
            let address = all.iter().find(|of| !is_listed(of)).map(|of| Family::of(of.address));
            let family = address.map(|of| of.to_string()).unwrap_or_default();
            text.push_plain(&format!(
                "  out: {} of the other family ({family})\n",
                counted(of_other_family, "endpoint")
            ));
        }
    }

    fn cell(&self, all: &[EndpointView], of: &EndpointView, it: Use) -> Cell {
        let Use::Out(reason) = it else { return Cell::new(Tone::Good, "in") };
        let why = match reason {
            OutReason::OtherNode if self.node.is_none() => match out_on_own_node(all, of) {
                Some(why) => why.to_owned(),
                None => return Cell::from("in for its own node only"),
            },
            OutReason::OtherProxy => "the slice is for another proxy".to_owned(),
            OutReason::Headless => "the slice is of a headless Service".to_owned(),
            OutReason::OtherFamily => "other family".to_owned(),
            OutReason::NoSuchPort => format!("no such port in slice {}", of.slice),
            OutReason::OtherPort => "SCTP ports are not translated".to_owned(),
            OutReason::NotReady => "not ready".to_owned(),
            OutReason::Terminating => "terminating".to_owned(),
            OutReason::Draining => DRAINING.to_owned(),
            OutReason::OtherNode => "other node, policy Local".to_owned(),
            OutReason::NodeHint => format!("hint for {}", of.node_hints.join(", ")),
            OutReason::ZoneHint => format!("hint for zone {}", of.zone_hints.join(", ")),
            OutReason::BeyondLimit => format!("beyond the {MOST_BACKENDS} places of a table"),
        };
        Cell::new(Tone::Notice, format!("out: {why}"))
    }
}

pub(crate) fn add_unread(text: &mut Text, unread: &[String]) {
    for unread in unread {
        text.push(Tone::Notice, "not read:");
        text.push_plain(&format!(" {unread}\n"));
    }
}

fn add_in_force(text: &mut Text, in_force: &InForce, node: &str) {
    let (tone, word, why) = match in_force {
        InForce::Yes(why) => (Tone::Good, format!("in force on {node}"), why.as_ref()),
        InForce::No(why) => (Tone::Bad, format!("NOT IN FORCE on {node}"), Some(why)),
        InForce::NotServed(why) => (Tone::Plain, format!("not served on {node}"), Some(why)),
        InForce::Unknown(why) => (Tone::Notice, format!("in force on {node}: unknown"), Some(why)),
    };
    text.push_plain("  ");
    text.push(tone, &word);
    text.push_plain(&why.map(|why| format!(": {why}\n")).unwrap_or_else(|| "\n".to_owned()));
}

fn ingress(of: &Ingress) -> String {
    match of.mode {
        IngressMode::Vip => of.address.to_string(),
        IngressMode::Proxy => format!("{} (not served by nodes: ipMode Proxy)", of.address),
    }
}

fn port(of: &PortView) -> String {
    let name = if of.name.is_empty() { String::new() } else { format!("{} ", of.name) };
    let node_port = of.node_port.map(|port| format!(" (node port {port})")).unwrap_or_default();
    format!("{name}{}/{}{node_port}", of.port, of.protocol)
}

fn sources(ranges: &[String]) -> String {
    match ranges {
        [] => "no valid range".to_owned(),
        ranges => ranges.join(", "),
    }
}

/// The reason for which the policy Local excludes an endpoint on its own node too.
fn out_on_own_node(all: &[EndpointView], of: &EndpointView) -> Option<&'static str> {
    let is_ready = |other: &EndpointView| {
        other.node == of.node
            && other.ready
            && other.port.is_some()
            && !other.uses.contains(&Use::Out(OutReason::OtherPort))
    };
    match of.node {
        None => Some("its slice names no node, policy Local"),
        Some(_) => (!of.ready && all.iter().any(is_ready)).then_some(DRAINING),
    }
}

const DRAINING: &str = "terminating, and others are ready";

fn state(of: &EndpointView) -> &'static str {
    match (of.ready, of.serving, of.terminating) {
        (true, _, _) => "ready",
        (false, true, true) => "serving, terminating",
        (false, false, true) => "terminating",
        (false, _, false) => "not ready",
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
