//! Answers, their limits and their order.

use crate::{
    Answer, Checksum, Frame, Limits, MessageError, Names, Row, Segment, StreamKey, Streams, Wanted,
    read, wanted::WantedRule,
};
use config_model::{Span, Time};
use policy_core::NameMatch;
use policy_objects::{DomainName, FqdnPattern};
use proptest::{collection::vec, prelude::*};
use std::{collections::BTreeSet, net::IpAddr};

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;

/// A length as two bytes in network order.
fn be16(length: usize) -> [u8; 2] {
    u16::try_from(length).expect("a length").to_be_bytes()
}

fn name(of: &str) -> Vec<u8> {
    let labels = of.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&be16(label.len())[1..], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn record(owner: &[u8], kind: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let length = be16(data.len());
    let kind = kind.to_be_bytes();
    [owner, &kind, &[0, 1], &ttl.to_be_bytes(), &length, data].concat()
}

/// A message that answers one question of type A.
fn message(question: &str, records: &[Vec<u8>]) -> Vec<u8> {
    let count = be16(records.len());
    let header = [&[7, 7, 0x81, 0x80, 0, 1], &count[..], &[0, 0, 0, 0]].concat();
    [header, name(question), vec![0, 1, 0, 1], records.concat()].concat()
}

fn addresses<const COUNT: usize>(of: [&str; COUNT]) -> BTreeSet<IpAddr> {
    of.map(|address| address.parse().expect("an address")).into()
}

#[test]
fn a_chain_of_aliases_leads_to_the_addresses_of_both_families() {
    // 0xc00c is a pointer to the question's name.
    let records = [
        record(&name("edge.cdn.test"), A, 90, &[192, 0, 2, 1]),
        record(&[0xc0, 12], CNAME, 60, &name("Www.cdn.test")),
        record(&name("www.CDN.test"), CNAME, 300, &name("edge.cdn.test")),
        record(
            &name("edge.cdn.test"),
            AAAA,
            40,
            &[0x20, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        ),
        record(&name("other.test"), A, 1, &[192, 0, 2, 99]),
    ];
    let answer = read(&message("Shop.Test", &records)).expect("an answer");
    assert_eq!(answer.name, "shop.test");
    assert_eq!(answer.addresses, addresses(["192.0.2.1", "2001:db8::9"]));
    assert_eq!(answer.lifetime, 40);
}

#[test]
fn only_answers_to_one_question_count() {
    let good = message("a.test", &[record(&[0xc0, 12], A, 9, &[192, 0, 2, 1])]);
    let with = |at: usize, byte: u8| {
        let mut changed = good.clone();
        changed[at] = byte;
        read(&changed)
    };
    assert_eq!(read(&good).expect("an answer").addresses, addresses(["192.0.2.1"]));
    assert_eq!(with(2, 0x01), Err(MessageError::NotAnAnswer), "a query");
    assert_eq!(with(2, 0xa1), Err(MessageError::NotAnAnswer), "an update");
    assert!(with(5, 2).is_err(), "two questions");
    assert_eq!(with(5, 0), Err(MessageError::NotAnAnswer), "no question");
    assert!(with(3, 0x83).expect("an answer").addresses.is_empty(), "no such name");
    for end in 0..good.len() {
        assert!(read(&good[..end]).is_err(), "{end} bytes");
    }
}

#[test]
fn loops_and_floods_are_refused() {
    let alias = |from: &str, to: &str| record(&name(from), CNAME, 9, &name(to));
    let of_two = message("a.test", &[alias("a.test", "b.test"), alias("b.test", "a.test")]);
    assert!(read(&of_two).expect("an answer").addresses.is_empty());
    let chain: Vec<_> =
        (0..20).map(|at| alias(&format!("{at}.test"), &format!("{}.test", at + 1))).collect();
    assert_eq!(read(&message("0.test", &chain)), Err(MessageError::TooLong));
    let flood = vec![record(&[0xc0, 12], A, 9, &[192, 0, 2, 1]); 600];
    assert_eq!(read(&message("a.test", &flood)), Err(MessageError::TooManyRecords));
    // Pointers to themselves, forwards, and to the header.
    for pointer in [[0xc0, 24], [0xc0, 60], [0xff, 0xff]] {
        let bad = message("a.test", &[record(&pointer, A, 9, &[192, 0, 2, 1])]);
        assert_eq!(read(&bad), Err(MessageError::Malformed), "{pointer:?}");
    }
}

/// Rules of policy p: `*.test` for pods x and y. Of policy q: `a.test` for pod y.
fn wanted() -> Wanted {
    let rule = |policy: &str, pods: &[&str], name| WantedRule {
        policy: policy.to_owned(),
        pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
        names: BTreeSet::from([name]),
    };
    let exact = NameMatch::Domain(DomainName::Exact("a.test".to_owned()));
    let pattern = NameMatch::Pattern(FqdnPattern("*.test".to_owned()));
    Wanted(vec![rule("p", &["x", "y"], pattern), rule("q", &["y"], exact)])
}

fn names(limits: Limits) -> Names {
    let mut names = Names::new(limits, []);
    names.set_wanted(wanted());
    names
}

fn answer(name: &str, addresses: &[IpAddr], lifetime: u32) -> Answer {
    Answer { name: name.to_owned(), addresses: addresses.iter().copied().collect(), lifetime }
}

fn udp(payload: &[u8]) -> Frame {
    let length = be16(8 + payload.len());
    let total = be16(28 + payload.len());
    let ip =
        [&[0x45, 0], &total[..], &[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]].concat();
    let bytes =
        [&[0; 12], &[8, 0][..], &ip, &[0, 53, 0x30, 0x39], &length, &[0, 0], payload].concat();
    Frame::new(1, bytes, 34, true).expect("a frame")
}

fn pairs(names: &Names, policy: &str) -> BTreeSet<IpAddr> {
    let (_, resolved) = names.resolved();
    let rules = names.wanted().0.iter().filter(|rule| rule.policy == policy);
    let all = rules.flat_map(|rule| &rule.names);
    all.flat_map(|name| resolved.addresses(policy, name).collect::<Vec<_>>()).collect()
}

#[test]
fn an_answer_counts_for_the_policies_of_its_pod_only() {
    let mut names = names(Limits::NODE);
    let [one, two, three] = [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 3]].map(IpAddr::from);
    names.learn("x", &answer("a.test", &[one], 60), None, Time(0), Time(0));
    names.learn("y", &answer("a.test", &[two], 60), None, Time(0), Time(0));
    names.learn("y", &answer("a.other", &[three], 60), None, Time(0), Time(0));
    names.learn("z", &answer("a.test", &[three], 60), None, Time(0), Time(0));
    assert_eq!(pairs(&names, "p"), [one, two].into());
    assert_eq!(pairs(&names, "q"), [two].into());
}

#[test]
fn an_answer_waits_until_its_addresses_are_in_force() {
    let mut names = names(Limits::NODE);
    let address = IpAddr::from([192, 0, 2, 1]);
    let of = answer("a.test", &[address], 60);
    let first = names.learn("x", &of, Some(udp(b"1")), Time(0), Time(0));
    assert!(first.frame.is_none() && first.is_new);
    // The second answer has no new address, and the address is not in force yet.
    let second = names.learn("x", &of, Some(udp(b"2")), Time(5), Time(5));
    assert!(second.frame.is_none() && !second.is_new);
    let (version, _) = names.resolved();
    assert_eq!(names.in_force(version - 1), []);
    assert_eq!(names.in_force(version), [udp(b"1"), udp(b"2")]);
    let third = names.learn("x", &of, Some(udp(b"3")), Time(9), Time(9));
    assert!(third.frame == Some(udp(b"3")) && !third.is_new);
    // An address of one pod is no address of the other.
    let other = names.learn("y", &of, Some(udp(b"4")), Time(9), Time(9));
    assert!(other.frame.is_none() && other.is_new);
    assert_eq!(names.wake_at(), Some(Time(1009)));
    assert_eq!(names.late(Time(1008)), []);
    assert_eq!(names.late(Time(1009)), [udp(b"4")]);
    assert_eq!((names.wake_at(), names.counters().late), (None, 1));
}

#[test]
fn an_address_stays_for_its_lifetime_and_while_connections_use_it() {
    let mut names = names(Limits::NODE);
    let [one, two] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
    names.learn("x", &answer("a.test", &[one], 60), None, Time(0), Time(0));
    names.learn("x", &answer("a.test", &[two], 0), None, Time(0), Time(0));
    names.expire(Time(0) + Span::seconds(29), |_| false);
    assert_eq!(pairs(&names, "p"), [one, two].into(), "the shortest time is 30 s");
    names.expire(Time(0) + Span::seconds(31), |address| address == two);
    assert_eq!(pairs(&names, "p"), [one, two].into(), "a connection uses it");
    let (version, _) = names.resolved();
    names.in_force(version);
    names.expire(Time(0) + Span::seconds(31), |_| false);
    assert_eq!(pairs(&names, "p"), [one].into());
    assert!(names.is_changed());
    names.learn("x", &answer("a.test", &[one], 60), None, Time(50_000), Time(50_000));
    names.expire(Time(0) + Span::seconds(61), |_| false);
    assert_eq!(pairs(&names, "p"), [one].into(), "a later answer prolongs it");
}

#[test]
fn a_pod_at_its_limit_loses_its_own_oldest_addresses() {
    let limits = Limits { addresses_of_pod: 2, addresses: 3, held_of_pod: 1, held: 9 };
    let mut names = names(limits);
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    for last in 1..=4 {
        let of = answer("a.test", &[address(last)], 60 + u32::from(last));
        names.learn("x", &of, None, Time(0), Time(0));
    }
    assert_eq!(pairs(&names, "p"), [address(3), address(4)].into());
    for last in 5..=6 {
        names.learn("y", &answer("a.test", &[address(last)], 60), None, Time(0), Time(0));
    }
    assert_eq!(pairs(&names, "q"), [address(5)].into(), "the node has room for one more");
    let counters = names.counters();
    assert_eq!((counters.added, counters.displaced, counters.refused), (5, 2, 1));
    let held = |names: &mut Names, pod, last: u8| {
        let of = answer("a.test", &[address(last)], 90);
        names.learn(pod, &of, Some(udp(&[last])), Time(0), Time(0)).frame
    };
    assert_eq!(held(&mut names, "x", 7), None);
    assert_eq!(held(&mut names, "x", 8), Some(udp(&[8])), "one answer of a pod waits");
    assert_eq!(held(&mut names, "x", 3), Some(udp(&[3])));
    assert_eq!(names.counters().overload, 2);
}

#[test]
fn the_changes_lead_to_the_rows_and_another_process_continues_with_them() {
    let mut names = names(Limits { addresses_of_pod: 2, ..Limits::NODE });
    for (pod, last) in [("x", 1), ("x", 2), ("x", 3), ("y", 4)] {
        let of = answer("a.test", &[IpAddr::from([192, 0, 2, last])], 60 + u32::from(last));
        names.learn(pod, &of, None, Time(0), Time(0));
    }
    let mut stored = std::collections::BTreeMap::new();
    for (row, expires) in names.take_changes() {
        match expires {
            Some(expires) => stored.insert(row, expires),
            None => stored.remove(&row),
        };
    }
    assert_eq!(stored, names.rows().collect());
    let mut next = Names::new(Limits::NODE, stored);
    next.set_wanted(wanted());
    assert_eq!(next.resolved().1, names.resolved().1);
    // A pod that is gone, or a rule that is gone.
    let Wanted(mut rules) = wanted();
    rules.truncate(1);
    rules[0].pods.remove("x");
    next.set_wanted(Wanted(rules));
    let gone: Vec<Row> = next.take_changes().into_iter().map(|(row, _)| row).collect();
    assert_eq!(gone.iter().map(|row| row.pod.as_str()).collect::<Vec<_>>(), ["x", "x"]);
    assert_eq!(pairs(&next, "p"), addresses(["192.0.2.4"]));
}

#[test]
fn a_partial_checksum_is_completed_and_a_wrong_one_is_not() {
    let with = |sum: u16| {
        let mut bytes = udp(b"odd").bytes().to_vec();
        bytes[40..42].copy_from_slice(&sum.to_be_bytes());
        Frame::new(1, bytes, 34, true).expect("a frame")
    };
    // 10.0.0.1, 10.0.0.2, protocol 17, length 11.
    let partial = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 11;
    let mut frame = with(partial);
    assert_eq!(frame.complete(), Checksum::Partial);
    assert_eq!(frame.complete(), Checksum::Valid);
    assert_eq!(frame.segment(), Segment::Udp(b"odd"));
    assert_eq!(with(0).complete(), Checksum::Valid, "IPv4 allows none");
    let mut wrong = with(0x1234);
    assert_eq!((wrong.complete(), &wrong), (Checksum::Wrong, &with(0x1234)));
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let records = vec![
        record(&[0xc0, 12], CNAME, 60, &name("www.cdn.test")),
        record(&name("www.cdn.test"), A, 90, &[192, 0, 2, 1]),
        record(&[0xc0, 12], AAAA, 40, &[1; 16]),
    ];
    let bytes = message("shop.test", &records);
    let changes = vec((0..bytes.len(), any::<u8>()), 0..6);
    (Just(bytes), changes, any::<prop::sample::Index>()).prop_map(|(mut bytes, changes, end)| {
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len()) + 1);
        bytes
    })
}

proptest! {
    #[test]
    fn malformed_messages_are_refused_or_read(bytes in prop_oneof![mutated(), vec(any::<u8>(), 0..300)]) {
        if let Ok(answer) = read(&bytes) {
            prop_assert!(answer.name == answer.name.to_ascii_lowercase());
            prop_assert!(answer.addresses.len() <= 512);
        }
    }

    #[test]
    fn malformed_frames_are_refused_or_read(
        bytes in vec(any::<u8>(), 0..120),
        kind in prop_oneof![Just([8, 0]), Just([0x86, 0xdd])],
        segment in 0_usize..90,
        is_udp in any::<bool>(),
        length in 0_u8..100,
    ) {
        let mut bytes = bytes;
        if bytes.len() > 20 {
            bytes[12..14].copy_from_slice(&kind);
            bytes[16..20].copy_from_slice(&[0, length, 0, length]);
        }
        if let Ok(mut frame) = Frame::new(1, bytes, segment, is_udp) {
            let length = frame.bytes().len();
            let before = frame.clone();
            let checksum = frame.complete();
            prop_assert_eq!(checksum == Checksum::Partial, before != frame);
            prop_assert_eq!(frame.bytes().len(), length);
        }
    }

    #[test]
    fn segments_in_any_order_are_the_messages(
        messages in vec(vec(any::<u8>(), 0..40), 1..4),
        cuts in vec(1_usize..30, 1..10),
        start in any::<u32>(),
        order in vec(any::<u16>(), 100),
    ) {
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|of| [&be16(of.len()), of.as_slice()].concat())
            .collect();
        let mut segments = Vec::new();
        let mut at = 0;
        for cut in cuts.iter().cycle() {
            let end = bytes.len().min(at + cut);
            segments.push((u32::try_from(at).expect("a position"), &bytes[at..end]));
            // Some bytes are sent again.
            at = if end == bytes.len() { break } else { end - end.min(cut / 4) };
            at = at.max(segments.last().expect("a segment").0 as usize + 1);
        }
        let mut keyed: Vec<_> = segments.into_iter().zip(order).collect();
        keyed.sort_by_key(|(_, order)| *order);
        let key = StreamKey { link: 1, server: IpAddr::from([10, 0, 0, 1]), port: 999 };
        let mut streams = Streams::default();
        let mut found = streams.add(key, start, true, false, &[], Time(0));
        for ((at, payload), _) in keyed {
            let sequence = start.wrapping_add(1).wrapping_add(at);
            found.extend(streams.add(key, sequence, false, false, payload, Time(0)));
        }
        prop_assert_eq!(found, messages);
    }
}

#[test]
fn connections_are_few() {
    let mut streams = Streams::default();
    let key = |link, port| StreamKey { link, server: IpAddr::from([10, 0, 0, 1]), port };
    let message = [0, 1, 7];
    for port in 0..40 {
        streams.add(key(1, port), 0, true, false, &[], Time(port.into()));
    }
    assert!(streams.add(key(1, 0), 1, false, false, &message, Time(50)).is_empty());
    assert_eq!(streams.add(key(1, 39), 1, false, false, &message, Time(50)), [vec![7]]);
    let too_early = vec![0; 65_000];
    streams.add(key(1, 38), 5, false, false, &too_early, Time(50));
    streams.add(key(1, 38), 6, false, false, &too_early, Time(50));
    assert!(streams.add(key(1, 38), 1, false, false, &message, Time(50)).is_empty());
}
