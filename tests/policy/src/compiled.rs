//! A judge that looks packets up in the compiled tables of a node, as a kernel does at its hooks.

use crate::{
    naive::{By, Decision, Half, Origin, Packet, RuleId, Segment},
    on_node::Ends,
};
use control_wire::{NodeSnapshot, model::Pod};
use datapath_plan::{Names, Reason, Side, Tables, Verdict, compile};
use policy_core::Direction;
use std::{collections::BTreeSet, net::IpAddr};

/// A node with its compiled tables.
pub struct CompiledNode<'a> {
    name: &'a str,
    snapshot: &'a NodeSnapshot,
    tables: Tables,
}

impl<'a> CompiledNode<'a> {
    /// Compiles a node's snapshot and the DNS results that it observed.
    pub fn new(name: &'a str, snapshot: &'a NodeSnapshot, names: &[(IpAddr, String)]) -> Self {
        Self { name, snapshot, tables: compile(snapshot, &Names::of_all(snapshot, names)) }
    }

    /// Egress of the sender and ingress of the receiver; `None` where the pod is not on this node or the whole packet is
    /// exempt.
    pub fn answer(&self, packet: &Packet) -> [Option<Half>; 2] {
        let Some(Ends { sender, receiver, hairpin }) = Ends::of(self.snapshot, packet) else {
            return [None, None];
        };
        let half = |pod: &Pod, direction| {
            let is_from_here = matches!(&packet.origin, Origin::Node(node) if node == self.name);
            if direction == Direction::Ingress && is_from_here {
                return Half { decision: Decision::Allow, by: By::Exemption };
            }
            self.half(pod, direction, hairpin, packet)
        };
        let out = sender.map(|pod| half(pod, Direction::Egress));
        let into = receiver.map(|pod| half(pod, Direction::Ingress));
        [out, into]
    }

    fn half(&self, pod: &Pod, direction: Direction, is_hairpin: bool, packet: &Packet) -> Half {
        let other = match direction {
            Direction::Ingress => packet.source,
            Direction::Egress => packet.destination,
        };
        let segment = match packet.segment {
            Segment::Ports(protocol, source, destination) => {
                policy_core::Segment::Ports { protocol, source, destination }
            }
            Segment::Icmp(kind, code) => policy_core::Segment::Icmp { kind, code },
            Segment::Other(number) => policy_core::Segment::Other(number),
        };
        let service = packet.service;
        let side = Side { pod: &pod.uid, direction, other, service, is_hairpin, segment };
        let verdict = self.tables.judge(&side).expect("the tables have every pod of the node");
        Half { decision: decision(verdict), by: self.by(verdict) }
    }

    fn by(&self, verdict: Verdict) -> By {
        match verdict.reason {
            Reason::Default => By::Default,
            Reason::Isolation => By::Isolation,
            Reason::Rule(id) => {
                let name = &self.tables.rules[id.0 as usize];
                let policy = self.snapshot.policies.get(&name.policy).expect("the rule's policy");
                let policy_core::PolicyKey { kind, namespace, name: of } = policy.key.clone();
                By::Rules(BTreeSet::from([RuleId { kind, namespace, name: of, index: name.index }]))
            }
        }
    }
}

fn decision(verdict: Verdict) -> Decision {
    match verdict.decision {
        policy_core::Decision::Allow => Decision::Allow,
        policy_core::Decision::Drop => Decision::Drop,
        policy_core::Decision::Reject => Decision::Reject,
    }
}

/// True if the answers are equal. Of several NetworkPolicies that allow a packet, the tables name one.
pub fn is_same(compiled: Option<&Half>, expected: Option<&Half>) -> bool {
    match (compiled, expected) {
        (None, None) => true,
        (Some(compiled), Some(expected)) => {
            compiled.decision == expected.decision
                && match (&compiled.by, &expected.by) {
                    (By::Rules(one), By::Rules(any)) => one.is_subset(any),
                    (one, other) => one == other,
                }
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}
