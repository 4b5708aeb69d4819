//! The verdict about a packet in the maps, with the steps of its lookup.

use crate::events::{RuleNames, rule};
use datapath_abi::{Endpoint, Held, Question, Row};
use datapath_node::{Looked, Probe};
use datapath_plan::{Address, TrafficKey};
use policy_core::{Decision, Direction};

/// Looks up the policies of both ends that are pods of this node.
pub(crate) fn look_up(held: &Held, names: &RuleNames, probe: &Probe) -> Vec<Looked> {
    let [source, destination] = [probe.source, probe.destination].map(Address::from);
    let (key, source_port) = TrafficKey::of(probe.segment);
    let has = |address| {
        move |endpoint: &&Endpoint| endpoint.v4 == Some(address) || endpoint.v6 == Some(address)
    };
    let from = held.endpoints.values().find(has(source));
    let to = held.endpoints.values().find(has(destination));
    let is_hairpin = from.is_some() && from.map(|of| &of.uid) == to.map(|of| &of.uid);
    let sides = [(Direction::Egress, from, destination), (Direction::Ingress, to, source)];
    let of = |(direction, endpoint, other): (Direction, Option<&Endpoint>, Address)| {
        let endpoint = endpoint?;
        let row = held.row_of(endpoint).unwrap_or(Row::CLOSED);
        let place = usize::from(direction == Direction::Egress) + if is_hairpin { 2 } else { 0 };
        let set = row.0.get(place).copied().unwrap_or(u64::MAX);
        let mut steps =
            vec![("generation", held.generation.to_string()), ("slot", endpoint.slot.to_string())];
        let (pod, service) = (endpoint.uid.clone(), probe.service.map(Address::from));
        if direction == Direction::Ingress && held.own_addresses.contains(&source) {
            steps.push(("exempt", "a process of the node is the sender".to_owned()));
            let decision = Some(Decision::Allow);
            return Some(Looked { pod, direction, steps, decision, rule: None });
        }
        let found = held.look_up(&Question { set, other, service, key, source_port });
        steps.push(("set", number(found.set)));
        if set != 0 && set != u64::MAX {
            steps.push(("class", number(found.class)));
            if set & 1 == 1 {
                steps.push(("service", number(found.service)));
            }
        }
        let table = |(number, is_large): (u32, bool)| {
            format!("{} {number}", if is_large { "large" } else { "small" })
        };
        steps.extend(found.table.map(|place| ("table", table(place))));
        steps.extend(found.start.map(|start| ("interval", key_text(TrafficKey(start)))));
        steps.extend(found.by_source.map(|place| ("table by source port", table(place))));
        let rule = found.verdict.and_then(|verdict| rule(verdict, held, names));
        let decision = found.verdict.map(|verdict| verdict.decision);
        Some(Looked { pod, direction, steps, decision, rule })
    };
    sides.into_iter().filter_map(of).collect()
}

fn number(of: u64) -> String {
    match of {
        0 => "0".to_owned(),
        u64::MAX => "closed".to_owned(),
        other => format!("{other:016x}"),
    }
}

/// The first key of an interval: protocol and port, or protocol, type and code.
fn key_text(key: TrafficKey) -> String {
    let TrafficKey(key) = key;
    match key >> 16 {
        0 => "other protocols".to_owned(),
        1 => format!("icmp {}/{}", key >> 8 & 0xff, key & 0xff),
        6 => format!("tcp {}", key & 0xffff),
        17 => format!("udp {}", key & 0xffff),
        132 => format!("sctp {}", key & 0xffff),
        other => format!("protocol {other} {}", key & 0xffff),
    }
}
