//! The report about one pod as text.

use super::{Interface, PodReport};
use std::fmt;
use view_node::Paths;

impl fmt::Display for PodReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node.as_deref().unwrap_or("no node yet");
        writeln!(f, "{}: {} on {node}", self.pod, self.phase)?;
        let addresses = match self.addresses.as_slice() {
            [] => "none yet".to_owned(),
            all => all.join(", "),
        };
        line(f, "address", &addresses)?;
        if self.host_network {
            line(f, "network", "its node's network, not Ferrule's")?;
        }
        if let Some(why) = &self.excluded {
            line(f, "network", &format!("not Ferrule's: {why}"))?;
        }
        for interface in &self.interfaces {
            of_interface(f, interface)?;
        }
        match (&self.policies, &self.policies_unknown) {
            (Some(policies), _) if policies.is_empty() => {
                line(f, "policies", "none: all traffic is allowed")?
            }
            (Some(policies), _) => {
                for policy in policies {
                    line(f, "policy", policy)?;
                }
            }
            (None, Some(why)) => line(f, "policies", &format!("unknown: {why}"))?,
            (None, None) => {}
        }
        if let Some(Paths { stack, pods, nodes }) = &self.paths {
            let fast = format!("fast path: {pods} within the node, {nodes} with other nodes");
            line(f, "paths", &format!("{stack} connections by the stack; {fast}"))?;
        }
        if let Some(why) = &self.paths_unknown {
            line(f, "paths", &format!("unknown: {why}"))?;
        }
        if let Some(why) = &self.events_unknown {
            line(f, "events", &format!("unknown: {why}"))?;
        }
        let before = self.before.iter().map(|finding| ("before", finding));
        for (word, finding) in before.chain(self.findings.iter().map(|it| ("WHY", it))) {
            line(f, word, &format!("{}: {}", finding.by, finding.said))?;
            for (word, text) in [("cause", &finding.cause), ("next", &finding.next_step)] {
                if let Some(text) = text {
                    line(f, "", &format!("{word}: {text}"))?;
                }
            }
        }
        Ok(())
    }
}

fn of_interface(f: &mut fmt::Formatter<'_>, interface: &Interface) -> fmt::Result {
    let held = &interface.held;
    let card = held.card.filter(|card| *card > 0);
    let card = card.map(|card| format!(", card {card}")).unwrap_or_default();
    let place = held.device.map_or_else(|| "a branch".to_owned(), |it| format!("device {it}"));
    line(f, "held", held.address.as_deref().unwrap_or("-"))?;
    line(f, "ENI", &format!("{} ({place}{card})", held.eni))?;
    if let Some(table) = held.table {
        let main = if table == super::MAIN { " (main)" } else { "" };
        line(f, "table", &format!("{table}{main}"))?;
    }
    let veth = match (&held.host_interface, held.confirmed) {
        (Some(name), _) => name.as_str(),
        (None, true) => "-",
        (None, false) => "none yet: the ADD is not complete",
    };
    line(f, "host veth", veth)?;
    for rule in &interface.rules {
        line(f, "rule", rule)?;
    }
    line(f, "since", &held.since)
}

fn line(f: &mut fmt::Formatter<'_>, word: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {word:9} {text}")
}
