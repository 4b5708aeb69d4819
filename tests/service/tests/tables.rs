//! The tables of the eBPF programs against the naive evaluator. A packet is looked up in the rows as `datapath/bpf/service.h`
//! does: by the bytes of keys and rows.

use proptest::prelude::*;
use service_abi::{
    BackendRow, FrontendKey, FrontendRow, Held, Limits, Mirror, Plan, SourceKey, Word, Write,
};
use service_core::{
    Backend, Client, DropReason, Frontend, Index, NodeView, Packet, Place, RejectReason, Route,
    World,
};
use service_objects::Family;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
};
use tests_service::{
    judge::{WORLDS, cases, judge},
    scenario::{Scenario, events, world},
    text::{read, show_packet, show_route},
};

const LIMITS: Limits = Limits {
    frontends: 1024,
    sources: 1024,
    words: 4096,
    small: 1024,
    medium: 64,
    large: 2,
    backends: 1024,
};

/// A mirror, and the maps to which its writes go.
struct Node {
    index: Index,
    mirror: Mirror,
    maps: Held,
}

impl Node {
    fn of(world: World) -> Self {
        let maps = Held { limits: LIMITS, ..Held::default() };
        let mut node = Self { index: Index::of(world), mirror: Mirror::of(maps.clone()), maps };
        node.follow();
        node
    }

    /// Brings the maps to the index.
    fn follow(&mut self) {
        let changes: BTreeMap<Place, Option<Frontend>> = self.index.take_changes();
        let Plan { writes, refused } = self.mirror.change(&changes);
        assert_eq!(refused, BTreeMap::new());
        self.write(&writes);
    }

    fn write(&mut self, writes: &[Write]) {
        writes.iter().for_each(|write| self.maps.apply(write));
    }

    fn tables(&self) -> Tables<'_> {
        let Held { frontends, sources, .. } = &self.maps;
        let rows = frontends.iter().map(|(place, row)| (FrontendKey::from(*place), row.to_bytes()));
        let sources = sources
            .iter()
            .flat_map(|(word, ranges)| ranges.iter().map(|range| SourceKey::new(*word, *range)));
        Tables {
            node: &self.index.world().node,
            maps: &self.maps,
            frontends: rows.collect(),
            sources: sources.collect(),
        }
    }
}

/// The maps by their keys.
struct Tables<'a> {
    node: &'a NodeView,
    maps: &'a Held,
    frontends: BTreeMap<FrontendKey, [u8; 8]>,
    sources: Vec<SourceKey>,
}

impl Tables<'_> {
    fn route(&self, packet: &Packet) -> Route {
        let Packet { client, source, destination: to, port, protocol } = *packet;
        let row = |place: Place| self.frontends.get(&place.into()).map(FrontendRow::from_bytes);
        let is_at_node =
            self.node.addresses.contains(&to) || (client == Client::Node && to.is_loopback());
        let row = match row(Place::Port(to, port, protocol)) {
            Some(row) => row,
            None if row(Place::OtherPorts(to)).is_some() => {
                return Route::Reject(RejectReason::NoSuchPort);
            }
            None => match row(Place::NodePort(Family::of(to), port, protocol)) {
                Some(row) if is_at_node => row,
                Some(_) | None => return Route::NotService,
            },
        };
        if row.has_sources && !self.has_source(row.word, source) {
            return Route::Drop(DropReason::SourceRange);
        }
        let number = row.word + u32::from(client == Client::Outside);
        let word = Word::from_number(self.maps.words[&number].to_number());
        match word.expect("a known word") {
            Word::NoEndpoints => Route::Reject(RejectReason::NoEndpoints),
            Word::NoSuchPort => Route::Reject(RejectReason::NoSuchPort),
            Word::NoLocalEndpoints => Route::Drop(DropReason::NoLocalEndpoints),
            Word::Table { slot, count } => {
                let numbers = &self.maps.tables[&slot][..usize::from(count)];
                Route::To(numbers.iter().map(|number| self.backend(*number)).collect())
            }
        }
    }

    /// True if the trie has a prefix of the word and the address.
    fn has_source(&self, word: u32, source: IpAddr) -> bool {
        let source: Ipv6Addr = match source {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let bytes: Vec<u8> = word.to_ne_bytes().into_iter().chain(source.octets()).collect();
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        self.sources.iter().any(|key| {
            let length = usize::try_from(key.length).expect("a length");
            (0..length).all(|at| bit(&key.bytes, at) == bit(&bytes, at))
        })
    }

    fn backend(&self, number: u32) -> Backend {
        let row = BackendRow::from_bytes(&self.maps.backends[number].to_bytes());
        assert!(row.is_present);
        let at = row.at.expect("a backend");
        Backend { address: at.ip(), port: at.port() }
    }
}

proptest! {
    #![proptest_config(cases(WORLDS / 4))]

    #[test]
    fn the_tables_answer_each_packet_as_the_naive_evaluator(
        Scenario(world) in world(),
        events in events(),
    ) {
        let mut node = Node::of(world.clone());
        let tables = node.tables();
        judge(&world, |packet| tables.route(packet)).map_err(TestCaseError::fail)?;
        let mut world = world;
        for (number, event) in events.into_iter().enumerate() {
            event.apply(&mut world);
            event.send(&mut node.index);
            node.follow();
            if number % 2 == 0 {
                let removals = node.mirror.release();
                node.write(&removals);
            }
        }
        let tables = node.tables();
        judge(&world, |packet| tables.route(packet)).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_tables_answer_each_vector() {
    for text in [
        include_str!("../vectors/topology.txt"),
        include_str!("../vectors/policies.txt"),
        include_str!("../vectors/frontends.txt"),
        include_str!("../vectors/slices.txt"),
    ] {
        for vector in read(text).expect("vectors") {
            let node = Node::of(vector.world);
            for (packet, expected) in vector.expected {
                let route = show_route(&node.tables().route(&packet));
                assert_eq!(route, expected, "{}: {}", vector.title, show_packet(&packet));
            }
        }
    }
}
