//! Ranges and interval tables compared with a scan.

use crate::{
    Address, Entry, Reason, RuleId, TrafficKey, Verdict,
    class::{cut, longest},
    peers::{AllPeers, Peer},
    traffic::Board,
};
use policy_core::{Decision, Segment};
use policy_objects::{Block, PortRange, Protocol};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::{collections::BTreeSet, net::IpAddr};

/// Few distinct addresses, so that ranges nest and touch.
fn address() -> impl Strategy<Value = IpAddr> {
    let v4 = (select(vec![0_u8, 10, 11, 255]), select(vec![0_u8, 1, 128, 255]));
    let v6 = (select(vec![0_u16, 0xfd00, 0xfd01]), select(vec![0_u16, 1, 0xffff]));
    prop_oneof![
        v4.prop_map(|(a, b)| IpAddr::from([a, 0, 0, b])),
        v6.prop_map(|(a, b)| IpAddr::from([a, 0, 0, 0, 0, 0, 0, b])),
    ]
}

fn range() -> impl Strategy<Value = ipnet::IpNet> {
    (address(), 0_u8..=128).prop_map(|(address, length)| {
        let length = if address.is_ipv4() { length / 4 } else { length };
        ipnet::IpNet::new(address, length).expect("a length of the family").trunc()
    })
}

fn block() -> impl Strategy<Value = Block> {
    (range(), vec(range(), 0..4)).prop_map(|(cidr, except)| Block { cidr, except })
}

#[derive(Clone, Debug)]
struct Step {
    first: u32,
    length: u32,
    sources: Option<PortRange>,
    walk: u32,
    /// `None` for a Pass.
    rule: Option<u32>,
}

fn step() -> impl Strategy<Value = Step> {
    let sources = option::of((0_u16..4, 0_u16..3).prop_map(|(first, more)| PortRange {
        first: if first == 3 { u16::MAX - 1 } else { first },
        last: if first == 3 { u16::MAX } else { first + more },
    }));
    let walk = select(vec![0_u32, 1, 2]);
    (0_u32..6, 1_u32..4, sources, walk, option::weighted(0.8, 0_u32..5)).prop_map(
        |(first, length, sources, walk, rule)| Step { first, length, sources, walk, rule },
    )
}

/// The verdict by a scan of all steps.
fn scan(steps: &[Step], key: u32, source: u16) -> Verdict {
    let mut passed = 0;
    for step in steps {
        let matches = (step.first..step.first + step.length).contains(&key)
            && step.sources.is_none_or(|range| range.contains(source));
        match step.rule {
            Some(rule) if matches && passed & step.walk == 0 => {
                let reason = Reason::Rule(RuleId(rule));
                return Verdict { decision: Decision::Drop, reason, is_logged: false };
            }
            None if matches => passed |= step.walk,
            Some(_) | None => {}
        }
    }
    Verdict::DEFAULT
}

proptest! {
    #[test]
    fn pieces_of_ranges_match_the_blocks_that_contain_an_address(
        blocks in vec(block(), 0..8),
        addresses in vec(address(), 1..20),
    ) {
        let blocks: BTreeSet<Block> = blocks.into_iter().collect();
        let mut all = AllPeers::new();
        let pieces = cut(&blocks.iter().collect(), &mut all);
        let lengths = pieces.keys().map(|prefix| prefix.length).collect();
        for address in addresses {
            let found = longest(&pieces, &lengths, Address::from(address)).cloned();
            let mut expected: Vec<u32> = blocks
                .iter()
                .filter(|block| block.contains(address))
                .map(|block| all.number(Peer::Block(block.clone())))
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(found.unwrap_or_default(), expected, "{} in {:?}", address, blocks);
        }
    }

    #[test]
    fn an_interval_table_equals_a_scan_of_the_rules(steps in vec(step(), 0..10)) {
        let mut board = Board::default();
        for Step { first, length, sources, walk, rule } in &steps {
            let keys = *first..first + length;
            match rule {
                Some(rule) => {
                    let reason = Reason::Rule(RuleId(*rule));
                    let verdict = Verdict { decision: Decision::Drop, reason, is_logged: false };
                    board.decide(&keys, *sources, *walk, verdict);
                }
                None => board.pass(&keys, *sources, *walk),
            }
        }
        let table = board.into_table();
        for key in 0..10 {
            for source in [0, 1, 2, 3, 4, 5, 6, u16::MAX - 2, u16::MAX - 1, u16::MAX] {
                let verdict = table.verdict(TrafficKey(key), source);
                prop_assert_eq!(verdict, scan(&steps, key, source), "{} from {}", key, source);
            }
        }
        for pair in table.entries().windows(2) {
            prop_assert!(pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1, "{:?}", table);
        }
        let is_one = |entry: &Entry| matches!(entry, Entry::BySource(ports) if ports.len() < 2);
        prop_assert!(!table.entries().iter().any(|(_, entry)| is_one(entry)), "{:?}", table);
    }
}

#[test]
fn keys_of_protocols_do_not_meet() {
    let key = |segment| TrafficKey::of(segment);
    let ports = |protocol| Segment::Ports { protocol, source: 7, destination: 0x0801 };
    let of_protocols = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].map(|it| key(ports(it)));
    let icmp = key(Segment::Icmp { kind: 8, code: 1 });
    let other = key(Segment::Other(47));
    let all: BTreeSet<TrafficKey> =
        of_protocols.iter().chain([&icmp, &other]).map(|it| it.0).collect();
    assert_eq!(all.len(), 5, "{all:?}");
    assert_eq!(of_protocols[0], (TrafficKey(6 << 16 | 0x0801), 7));
    assert_eq!(icmp, (TrafficKey(1 << 16 | 0x0801), 0));
}
