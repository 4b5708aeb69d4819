//! The verdicts of the eBPF programs compared with those of the compiled tables, packet by packet.
//!
//! The kernel runs the programs without an attachment. Random worlds supply the policies and the packets.

use crate::{Kernel, object};
use datapath_abi::{Cause, Event, Pod, Verdict};
use datapath_ebpf::{Events, Hook};
use datapath_plan::{Names, compile};
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
};
use policy_core::PolicyKey;
use policy_objects::Protocol;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use std::{collections::BTreeMap, net::IpAddr, path::Path, process::Command};
use tests_policy::{
    cases,
    compiled::CompiledNode,
    live::NODES,
    naive::{By, Decision, Half, Naive, Origin, Packet, RuleId, Segment, State},
    node_client::fresh,
    scenario::{Scenario, Sketch, sketch, world},
};

/// The actions of `linux/pkt_cls.h`.
pub(crate) const PASS: i32 = -1;
pub(crate) const SHOT: i32 = 2;
/// The answer to a rejected packet is sent.
pub(crate) const REDIRECT: i32 = 7;

/// TCP flags.
pub(crate) const SYN: u8 = 2;
const ACK: u8 = 16;

/// Host links of pods.
const LINKS: usize = 10;

/// A namespace with the host links of pods and a link to other nodes.
pub(crate) struct Links {
    pub(crate) pods: Vec<u32>,
    wire: u32,
}

impl Links {
    /// Moves the calling thread into a new namespace.
    pub(crate) fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let link = |name: &str| {
            let args = ["link", "add", name, "type", "veth", "peer", "name"];
            let peer = format!("{name}-peer");
            let status = Command::new("ip").args(args).arg(peer).status().unwrap();
            assert!(status.success(), "cannot add {name}");
            if_nametoindex(name).unwrap()
        };
        let pods = (0..LINKS).map(|number| link(&format!("pod{number}"))).collect();
        Self { pods, wire: link("wire") }
    }
}

/// The programs with the tables of one node.
pub(crate) struct Node<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) links: &'a Links,
    /// The classes of the Services' addresses.
    pub(crate) services: BTreeMap<datapath_plan::Address, u64>,
    /// The host link of each pod, by namespace and name.
    pub(crate) pods: BTreeMap<(String, String), u32>,
    /// The pod's link of each address.
    addresses: BTreeMap<IpAddr, u32>,
    /// The rules by the digests of their names.
    rules: BTreeMap<u64, RuleId>,
    events: Events,
}

/// The place at which the kernel would judge a packet.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) hook: Hook,
    pub(crate) link: u32,
    pub(crate) ingress: u32,
    pub(crate) service: u64,
}

impl<'a> Node<'a> {
    pub(crate) fn new(object: &Path, links: &'a Links) -> Self {
        let mut kernel = Kernel::load(object, None);
        kernel.programs.want_events(true, u32::MAX).unwrap();
        let events = kernel.programs.take_events();
        let (services, pods, addresses, rules) = Default::default();
        Self { kernel, links, services, pods, addresses, rules, events }
    }

    pub(crate) fn write(&mut self, scenario: &Scenario, node: &str) {
        let snapshot = &fresh(scenario, node).snapshot;
        let tables = compile(snapshot, &Names::of_all(snapshot, &scenario.names));
        assert!(snapshot.pods.len() <= LINKS, "{} pods", snapshot.pods.len());
        self.pods.clear();
        self.addresses.clear();
        let mut endpoints = BTreeMap::new();
        for (pod, link) in snapshot.pods.values().zip(&self.links.pods) {
            endpoints.insert(*link, Pod { uid: pod.uid.clone(), ..Pod::default() });
            self.pods.insert((pod.namespace.clone(), pod.name.clone()), *link);
            for address in &pod.addresses {
                self.addresses.entry(*address).or_insert(*link);
            }
        }
        self.kernel.write(&tables, endpoints);
        let rules = tables.rules.iter().map(|name| {
            let PolicyKey { kind, namespace, name: of } =
                snapshot.policies[&name.policy].key.clone();
            (name.digest(), RuleId { kind, namespace, name: of, index: name.index })
        });
        self.rules = rules.collect();
        self.services = tables.services;
    }

    /// The place of a packet; `None` if no hook of this node sees it.
    pub(crate) fn place(&self, packet: &Packet, name: &str) -> Option<Place> {
        let to = self.addresses.get(&packet.destination).copied();
        let from = match &packet.origin {
            Origin::Pod(namespace, name) => {
                self.pods.get(&(namespace.clone(), name.clone())).copied()
            }
            Origin::Node(node) if node == name => Some(0),
            Origin::Node(_) | Origin::Forwarded => None,
        };
        let vip = packet.service.map(Into::into);
        // No class has the number 1, and 0 stands for the Service of the packet's own destination.
        let service = vip.map_or(0, |vip| self.services.get(&vip).copied().unwrap_or(1));
        let is_pod = from.is_some_and(|link| link != 0);
        match (from, to) {
            (_, Some(link)) if from != to || packet.service.is_some() => {
                let ingress = from.unwrap_or(self.links.wire);
                let hook = if is_pod { Hook::TestToPod } else { Hook::ToPod };
                Some(Place { hook, link, ingress, service })
            }
            (Some(ingress), None) if is_pod => {
                Some(Place { hook: Hook::TestToWire, link: self.links.wire, ingress, service })
            }
            _ => None,
        }
    }

    /// The events since the last call.
    fn take_events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.next()).collect()
    }

    /// True if the kernel's verdict has the cause of the expected one.
    fn has_cause(&self, verdict: Verdict, expected: Option<&Half>) -> bool {
        match (verdict.cause, expected.map(|half| &half.by)) {
            (Cause::Default, None | Some(By::Default | By::Exemption)) => true,
            (Cause::Isolation, Some(By::Isolation)) => true,
            (Cause::Rule(number), Some(By::Rules(rules))) => {
                let digest = self.kernel.held.rules.get(&number);
                digest
                    .and_then(|digest| self.rules.get(digest))
                    .is_some_and(|id| rules.contains(id))
            }
            _ => false,
        }
    }

    fn action(&mut self, place: Place, bytes: &[u8]) -> i32 {
        let Place { hook, link, ingress, service } = place;
        self.kernel.programs.test(hook, bytes, link, ingress, service).unwrap()
    }
}

/// The packet with an Ethernet header and these TCP flags. Checksums are 0: the programs do not read them.
pub(crate) fn bytes(packet: &Packet, flags: u8) -> Vec<u8> {
    let is_v6 = packet.source.is_ipv6();
    let (protocol, payload) = match packet.segment {
        Segment::Ports(protocol, source, destination) => {
            let number = match protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
                Protocol::Sctp => 132,
            };
            let mut payload = [source.to_be_bytes(), destination.to_be_bytes()].concat();
            payload.resize(20, 0);
            payload[13] = flags;
            (number, payload)
        }
        Segment::Icmp(kind, code) => {
            let mut payload = vec![kind, code, 0, 0, 0, 7, 0, 1];
            payload.resize(64, 0);
            (if is_v6 { 58 } else { 1 }, payload)
        }
        Segment::Other(number) => (number, vec![0; 20]),
    };
    let length = u16::try_from(payload.len()).unwrap();
    // Where 0x4 could be the version of an IP header, programs at a link to other nodes do not read it directly.
    let is_odd = match packet.source {
        IpAddr::V4(source) => source.to_bits() % 2 == 1,
        IpAddr::V6(source) => source.to_bits() % 2 == 1,
    };
    let mut bytes = vec![if is_odd { 0x42 } else { 2 }, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((length + 20).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend(length.to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            panic!("{packet:?} has two families")
        }
    }
    bytes.extend(payload);
    bytes
}

/// The answer to a packet. `None` for a protocol without connections here.
fn reply(packet: &Packet) -> Option<Packet> {
    let segment = match packet.segment {
        Segment::Ports(protocol, from, to) => Segment::Ports(protocol, to, from),
        Segment::Icmp(8, 0) if packet.source.is_ipv4() => Segment::Icmp(0, 0),
        Segment::Icmp(..) | Segment::Other(_) => return None,
    };
    let (source, destination) = (packet.destination, packet.source);
    Some(Packet { source, destination, segment, ..packet.clone() })
}

/// True if policies judge the packet at this place: a first packet that is no ICMP error or neighbor discovery.
pub(crate) fn is_judged(packet: &Packet) -> bool {
    let is_new = matches!(packet.state, State::New | State::Established);
    let is_error = matches!(packet.segment, Segment::Icmp(3, _));
    is_new && !is_error && !packet.destination.is_loopback()
}

fn agrees(
    node: &mut Node<'_>,
    name: &str,
    scenario: &Scenario,
    sketches: &[Sketch],
) -> Result<usize, TestCaseError> {
    let client = fresh(scenario, name);
    let tables = CompiledNode::new(name, &client.snapshot, &scenario.names);
    let naive = Naive { objects: &scenario.objects, names: &scenario.names };
    let packets = sketches.iter().filter_map(|sketch| sketch.packet(scenario));
    let packets: Vec<Packet> = packets.map(|packet| naive.with_host_origin(&packet)).collect();
    let is_own = |packet: &&Packet| packet.origin == Origin::Node(name.to_owned());
    let own = packets.iter().filter(is_own).map(|packet| packet.source.into());
    node.kernel.own.addresses = own.collect();
    node.write(scenario, name);
    let mut drops = 0;
    for mut packet in packets {
        // A pod's packet that reaches a Service's address has asked for that Service.
        if packet.service.is_none() && node.services.contains_key(&packet.destination.into()) {
            packet.service = Some(packet.destination);
        }
        let Some(place) = node.place(&packet, name).filter(|_| is_judged(&packet)) else {
            continue;
        };
        let halves = tables.answer(&packet);
        let mut denials = halves.iter().flatten().map(|half| &half.decision);
        // The sender's policies decide first.
        let denial = denials.find(|decision| **decision != Decision::Allow);
        let is_allowed = denial.is_none();
        node.kernel.programs.clear_flows().unwrap();
        node.take_events();
        let action = node.action(place, &bytes(&packet, SYN));
        let expected = match denial {
            None | Some(Decision::Allow) => PASS,
            Some(Decision::Drop) => SHOT,
            Some(Decision::Reject) => REDIRECT,
        };
        prop_assert_eq!(action, expected, "{:?} at {:?}: {:?}", packet, place.hook, halves);
        drops += usize::from(!is_allowed);
        let events = node.take_events();
        // A connection of a process of the node, and a packet that belongs to none, have no event if they are allowed.
        prop_assert!(events.len() == 1 || is_allowed && events.is_empty(), "{:?}", events);
        for event in events {
            let [out, into] = &halves;
            let is_out_denied = event.egress.decision != policy_core::Decision::Allow;
            prop_assert!(node.has_cause(event.egress, out.as_ref()), "{:?}: {:?}", event, halves);
            let is_into = is_out_denied || node.has_cause(event.ingress, into.as_ref());
            prop_assert!(is_into, "{:?}: {:?}", event, halves);
        }
        // A second packet follows its flow, and so does the answer, whatever the policies of its direction are.
        prop_assert_eq!(node.action(place, &bytes(&packet, SYN)), expected, "again {:?}", packet);
        if let (true, Hook::TestToPod, Some(reply)) = (is_allowed, place.hook, reply(&packet))
            // The two directions of a connection between equal ends are one.
            && packet.source != packet.destination
        {
            let back = Place { link: place.ingress, ingress: place.link, service: 0, ..place };
            prop_assert_eq!(
                node.action(back, &bytes(&reply, SYN | ACK)),
                PASS,
                "the answer to {:?}",
                packet
            );
            // A new generation judges the connection again, in its original direction.
            node.write(scenario, name);
            let answer = node.action(back, &bytes(&reply, SYN | ACK));
            prop_assert_eq!(answer, PASS, "the answer to {:?} after a change", packet);
        }
    }
    Ok(drops)
}

#[test]
fn programs_decide_as_the_compiled_tables() {
    let Some(object) = object("programs_decide_as_the_compiled_tables") else { return };
    let links = Links::new();
    let node = std::cell::RefCell::new(Node::new(&object, &links));
    let drops = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(cases(200));
    let run = runner.run(&(world(), vec(sketch(), 1..40)), |(scenario, sketches)| {
        for name in NODES {
            let dropped = agrees(&mut node.borrow_mut(), name, &scenario, &sketches)?;
            drops.set(drops.get() + dropped);
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    assert!(drops.get() > 0, "no packet was dropped: the worlds judge nothing");
}
