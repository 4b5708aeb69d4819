//! Planted faults of the programs: the comparison with the compiled tables detects each of them.

use crate::{
    judge::{Links, Node, PASS, Place, REDIRECT, SHOT, SYN, bytes, is_judged},
    object,
};
use datapath_ebpf::{Hook, SentAs};
use datapath_plan::{Names, PodSets, compile};
use policy_objects::Object;
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use std::{cell::RefCell, collections::BTreeMap, net::IpAddr, path::Path};
use tests_policy::{
    cases,
    compiled::CompiledNode,
    live::NODES,
    naive::{Decision, Half, Naive, Origin, Packet},
    node_client::fresh,
    scenario::{Scenario, Sketch, sketch, world},
};

/// The faults of `datapath/bpf/planted.h`. The variable of each names its object file.
const FAULTS: [&str; 4] = ["KEY", "TICKET", "ADDRESS", "GENERATION"];
/// The seeds within which each fault must be detected.
const SEEDS: u64 = 1000;

/// The action for a packet.
fn expected(halves: &[Option<Half>; 2]) -> i32 {
    let mut decisions = halves.iter().flatten().map(|half| &half.decision);
    // The sender's policies decide first.
    match decisions.find(|decision| **decision != Decision::Allow) {
        None | Some(Decision::Allow) => PASS,
        Some(Decision::Drop) => SHOT,
        Some(Decision::Reject) => REDIRECT,
    }
}

/// The world without every other policy.
fn fewer_policies(scenario: &Scenario) -> Scenario {
    let mut fewer = scenario.clone();
    let mut policies = 0;
    fewer.objects.retain(|object| {
        let is_policy = matches!(
            object,
            Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_)
        );
        policies += usize::from(is_policy);
        !is_policy || policies % 2 == 0
    });
    fewer
}

/// The links whose pods have rules about Services.
fn naming_services(node: &Node<'_>, scenario: &Scenario, name: &str) -> BTreeMap<u32, bool> {
    let snapshot = &fresh(scenario, name).snapshot;
    let tables = compile(snapshot, &Names::of_all(snapshot, &scenario.names));
    let pods = snapshot.pods.values().filter_map(|pod| {
        let link = node.pods.get(&(pod.namespace.clone(), pod.name.clone()))?;
        let PodSets { egress, .. } = tables.pods.get(&pod.uid)?;
        Some((*link, egress.names_services()))
    });
    pods.collect()
}

/// Judges packets as first ones, with a place that was taken, at the address after NAT, and before and after a change.
fn sequences_agree(
    node: &mut Node<'_>,
    name: &str,
    scenario: &Scenario,
    sketches: &[Sketch],
) -> Result<(), TestCaseError> {
    let later = fewer_policies(scenario);
    let (client, later_client) = (fresh(scenario, name), fresh(&later, name));
    let tables = CompiledNode::new(name, &client.snapshot, &scenario.names);
    let later_tables = CompiledNode::new(name, &later_client.snapshot, &later.names);
    let naive = Naive { objects: &scenario.objects, names: &scenario.names };
    let packets = sketches.iter().filter_map(|sketch| sketch.packet(scenario));
    let packets: Vec<Packet> = packets.map(|packet| naive.with_host_origin(&packet)).collect();
    let is_own = |packet: &&Packet| packet.origin == Origin::Node(name.to_owned());
    let own = packets.iter().filter(is_own).map(|packet| packet.source.into());
    node.kernel.own.addresses = own.collect();
    node.write(scenario, name);
    let naming = naming_services(node, scenario, name);
    for mut packet in packets {
        if packet.service.is_none() && node.services.contains_key(&packet.destination.into()) {
            packet.service = Some(packet.destination);
        }
        let Some(place) = node.place(&packet, name).filter(|_| is_judged(&packet)) else {
            continue;
        };
        let packet_bytes = bytes(&packet, SYN);
        let answer = expected(&tables.answer(&packet));
        let Place { hook, link, ingress, service } = place;
        let send = |node: &mut Node<'_>, sent_as: SentAs| {
            let of = &packet_bytes;
            node.kernel.programs.test_as(hook, of, link, ingress, &sent_as).unwrap()
        };
        let asked = match (packet.service, packet.destination) {
            (Some(IpAddr::V4(asked)), IpAddr::V4(_)) => Some(asked),
            _ => None,
        };
        node.kernel.programs.clear_flows().unwrap();
        let action = send(node, SentAs { service, asked, later: 0 });
        prop_assert_eq!(action, answer, "{:?} at {:?}", packet, hook);
        let is_sent = matches!(hook, Hook::TestToPod | Hook::TestToWire);
        let other = node.links.pods.iter().find(|other| **other != ingress);
        if let (true, true, Some(other)) = (is_sent, ingress != link, other) {
            // The Service that was asked for is lost, and the link by which the packet entered is known.
            let without = Packet { service: None, ..packet.clone() };
            let answer = match naming.get(&ingress) {
                Some(true) => SHOT,
                _ => expected(&tables.answer(&without)),
            };
            node.kernel.programs.clear_flows().unwrap();
            let action = send(node, SentAs { service, asked: None, later: *other });
            prop_assert_eq!(action, answer, "{:?} at {:?}, place taken", packet, hook);
        }
        if packet.service.is_none() {
            node.kernel.programs.clear_flows().unwrap();
            send(node, SentAs::default());
            node.write(&later, name);
            let answer = expected(&later_tables.answer(&packet));
            let action = send(node, SentAs::default());
            prop_assert_eq!(action, answer, "{:?} at {:?} after a change", packet, hook);
            node.write(scenario, name);
        }
    }
    Ok(())
}

fn strategy() -> impl Strategy<Value = (Scenario, Vec<Sketch>)> {
    (world(), vec(sketch(), 1..10))
}

#[test]
fn sequences_of_packets_are_judged_as_the_tables_are() {
    let Some(object) = object("sequences_of_packets_are_judged_as_the_tables_are") else { return };
    let links = Links::new();
    let node = RefCell::new(Node::new(&object, &links));
    let run = TestRunner::new(cases(100)).run(&strategy(), |(scenario, sketches)| {
        NODES.iter().try_for_each(|name| {
            sequences_agree(&mut node.borrow_mut(), name, &scenario, &sketches)
        })
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}

/// The first seed with which the comparison fails.
fn detected(object: &Path, links: &Links) -> Option<u64> {
    let mut node = Node::new(object, links);
    (0..SEEDS).find(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let (scenario, sketches) = strategy().new_tree(&mut runner).unwrap().current();
        let agree = |name: &&str| sequences_agree(&mut node, name, &scenario, &sketches).is_ok();
        !NODES.iter().all(agree)
    })
}

#[test]
fn each_planted_fault_is_detected() {
    let Some(object) = object("each_planted_fault_is_detected") else { return };
    let links = Links::new();
    for fault in FAULTS {
        let file = object.with_file_name(format!("planted-{fault}.bpf.o"));
        let seed = detected(&file, &links);
        let seed = seed.unwrap_or_else(|| panic!("{fault} is not detected by {SEEDS} seeds"));
        println!("planted fault {fault}: detected by seed {seed}");
    }
}
