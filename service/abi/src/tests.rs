//! The laws of the mirror.

mod laws;
mod rows;
mod single;

use crate::{Held, Limits, Mirror, Plan, SourceKey, SourceRange, TableSlot, Word};
use ipnet::IpNet;
use proptest::prelude::*;
use service_core::{Choice, Frontend, Place};
use service_objects::{Family, Protocol};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

const LIMITS: Limits = Limits {
    frontends: 64,
    sources: 256,
    words: 256,
    small: 256,
    medium: 64,
    large: 2,
    backends: 256,
};
/// Many states do not fit.
const FEW: Limits =
    Limits { frontends: 6, sources: 6, words: 10, small: 4, medium: 2, large: 1, backends: 24 };

type Frontends = BTreeMap<Place, Frontend>;
type Changes = BTreeMap<Place, Option<Frontend>>;

fn backend(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 8080))
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        4 => proptest::collection::btree_set(1_u8..22, 1..20)
            .prop_map(|of| Choice::Backends(of.into_iter().map(backend).collect())),
        1 => Just(Choice::NoEndpoints),
        1 => Just(Choice::NoLocalEndpoints),
        1 => Just(Choice::NoSuchPort),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    let address = prop_oneof![
        (1_u8..4).prop_map(|last| IpAddr::from([172, 20, 0, last])),
        (1_u16..3).prop_map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])),
    ];
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)];
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    prop_oneof![
        (address.clone(), 80_u16..82, protocol.clone()).prop_map(|(a, b, c)| Place::Port(a, b, c)),
        (family, 30_000_u16..30_002, protocol).prop_map(|(a, b, c)| Place::NodePort(a, b, c)),
        address.prop_map(Place::OtherPorts),
    ]
}

/// Ranges of both families, of which some are parts of others.
const RANGES: [&str; 6] =
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "::/0", "fd00::/8", "::ffff:10.0.0.0/104"];

fn range(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn frontend() -> impl Strategy<Value = Frontend> {
    let sources = proptest::sample::subsequence(&RANGES, 0..=4)
        .prop_map(|of| of.into_iter().map(range).collect::<Arc<[IpNet]>>());
    let sources = proptest::option::weighted(0.4, sources);
    (choice(), choice(), any::<bool>(), 0_u32..2, sources).prop_map(
        |(inside, outside, has_both, affinity, sources)| {
            let outside = if has_both { outside } else { inside.clone() };
            Frontend { inside, outside, affinity, sources }
        },
    )
}

fn frontends() -> impl Strategy<Value = Frontends> {
    proptest::collection::btree_map(place(), frontend(), 0..10)
}

fn is_v4(place: Place) -> bool {
    match place {
        Place::Port(address, ..) | Place::OtherPorts(address) => address.is_ipv4(),
        Place::NodePort(family, ..) => family == Family::V4,
    }
}

/// A frontend without ranges of the other family, as the maps have it.
fn in_family(place: Place, frontend: &Frontend) -> Frontend {
    let is_of_family = |range: &&IpNet| range.addr().is_ipv4() == is_v4(place);
    let sources = frontend.sources.as_ref().map(|ranges| {
        let ranges: BTreeSet<IpNet> = ranges.iter().filter(is_of_family).copied().collect();
        ranges.into_iter().collect()
    });
    Frontend { sources, ..frontend.clone() }
}

fn all_in_family(frontends: &Frontends) -> Frontends {
    frontends.iter().map(|(place, of)| (*place, in_family(*place, of))).collect()
}

/// The source ranges of a frontend with a word.
fn sources(held: &Held, place: Place, word: u32) -> Arc<[IpNet]> {
    let range = |range: &SourceRange| {
        let SourceKey { length, bytes } = SourceKey::new(word, *range);
        let octets: [u8; 16] = bytes[4..].try_into().expect("an address");
        let (address, mapped) = match IpAddr::from(octets) {
            address if is_v4(place) => (address.to_canonical(), 96),
            address => (address, 0),
        };
        let length = u8::try_from(length - 32 - mapped).expect("a length");
        IpNet::new(address, length).expect("a range")
    };
    let ranges: BTreeSet<IpNet> =
        held.sources.get(&word).into_iter().flatten().map(range).collect();
    ranges.into_iter().collect()
}

/// A choice as a program reads it. `None` if a row that the program needs is missing or belongs to another state.
fn resolve(held: &Held, word: &Word) -> Option<Choice> {
    Some(match word {
        Word::NoEndpoints => Choice::NoEndpoints,
        Word::NoLocalEndpoints => Choice::NoLocalEndpoints,
        Word::NoSuchPort => Choice::NoSuchPort,
        Word::Table { slot, count } => {
            let table = held.tables.get(slot)?;
            assert!(table.is_sorted(), "a program searches the table: {table:?}");
            let of = |number: &u32| held.backends.get(*number).filter(|row| row.is_present)?.at;
            let backends = table.iter().take(usize::from(*count)).map(of);
            Choice::Backends(sorted(backends.collect::<Option<_>>()?))
        }
    })
}

fn sorted(mut backends: Vec<SocketAddr>) -> Arc<[SocketAddr]> {
    backends.sort();
    backends.into()
}

/// The state as programs read it.
fn read(held: &Held) -> Option<Frontends> {
    let choice = |number: u32| resolve(held, held.words.get(&number)?);
    let frontends = held.frontends.iter().map(|(place, row)| {
        let (inside, outside) = (choice(row.word)?, choice(row.word + 1)?);
        let sources = row.has_sources.then(|| sources(held, *place, row.word));
        Some((*place, Frontend { inside, outside, affinity: row.affinity, sources }))
    });
    frontends.collect()
}

/// The rows that a process finds: those that packets can reach, all source ranges and all backends.
fn found(kernel: &Held) -> Held {
    let mut held = Held { limits: kernel.limits, ..Held::default() };
    held.frontends.clone_from(&kernel.frontends);
    held.backends.clone_from(&kernel.backends);
    held.sources.clone_from(&kernel.sources);
    for row in kernel.frontends.values() {
        for number in [row.word, row.word + 1] {
            let Some(word) = kernel.words.get(&number) else { continue };
            held.words.insert(number, *word);
            if let Word::Table { slot, .. } = word {
                held.tables.extend(kernel.tables.get(slot).map(|of| (*slot, Arc::clone(of))));
            }
        }
    }
    held
}

/// A mirror and the maps to which its writes go.
struct Node {
    mirror: Mirror,
    kernel: Held,
}

impl Node {
    fn new(limits: Limits) -> Self {
        let kernel = Held { limits, ..Held::default() };
        Self { mirror: Mirror::of(kernel.clone()), kernel }
    }

    fn write(&mut self, plan: &Plan) {
        plan.writes.iter().for_each(|write| self.kernel.apply(write));
    }

    fn release(&mut self) {
        self.mirror.release().iter().for_each(|write| self.kernel.apply(write));
    }

    /// Reaches a state that has room.
    fn reach(&mut self, frontends: &Frontends) -> Plan {
        let plan = self.mirror.replace(frontends);
        assert_eq!(plan.refused, BTreeMap::new());
        self.write(&plan);
        assert_eq!(read(&self.kernel), Some(all_in_family(frontends)));
        plan
    }
}

/// A frontend for all clients.
fn with(backends: &[SocketAddr]) -> Frontend {
    let choice = Choice::Backends(backends.into());
    Frontend { inside: choice.clone(), outside: choice, affinity: 0, sources: None }
}

/// A frontend for the clients in these ranges.
fn restricted(ranges: &[IpNet]) -> Frontend {
    Frontend { sources: Some(ranges.into()), ..with(&[backend(1)]) }
}

fn port(last: u8) -> Place {
    Place::Port(IpAddr::from([172, 20, 0, last]), 80, Protocol::Tcp)
}

fn one(backends: &[SocketAddr]) -> Frontends {
    BTreeMap::from([(port(1), with(backends))])
}

/// The tables of a mirror, by slot.
fn slots(mirror: &Mirror) -> Vec<TableSlot> {
    mirror.held().tables.keys().copied().collect()
}
