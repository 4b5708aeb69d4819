//! Single cases.

use super::*;
use crate::{Refused, TableSize, Write};

#[test]
fn a_thousand_changed_endpoints_are_one_table_and_two_words() {
    let mut node = Node::new(Limits { backends: 2048, ..LIMITS });
    let at = |number: u16| {
        let [high, low] = number.to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 80))
    };
    let all: Vec<SocketAddr> = (0..1000).map(at).collect();
    node.reach(&one(&all));
    let writes = node.reach(&one(&all[500..])).writes;
    let of = |is: fn(&Write) -> bool| writes.iter().filter(|write| is(write)).count();
    assert_eq!(of(|write| matches!(write, Write::Table(..))), 1);
    // Both words of the frontend.
    assert_eq!(of(|write| matches!(write, Write::Word(..))), 2);
    assert_eq!(of(|write| matches!(write, Write::Backend(_, row) if !row.is_present)), 500);
    assert_eq!(writes.len(), 503);
}

#[test]
fn a_change_of_one_frontend_writes_no_row_of_another() {
    let mut node = Node::new(LIMITS);
    let state: Frontends = (1..20).map(|last| (port(last), with(&[backend(last)]))).collect();
    node.reach(&state);
    let changes = BTreeMap::from([(port(7), Some(with(&[backend(7), backend(8)])))]);
    // A table and both words. Other frontends have the backends already.
    assert_eq!(node.mirror.change(&changes).writes.len(), 3);
}

#[test]
fn a_backend_that_returns_has_another_life() {
    let mut node = Node::new(LIMITS);
    node.reach(&one(&[backend(1)]));
    let before = node.kernel.backends[0];
    node.reach(&one(&[backend(2)]));
    assert!(!node.kernel.backends[0].is_present && node.kernel.backends[1].is_present);
    node.release();
    node.reach(&one(&[backend(1)]));
    let after = node.kernel.backends[0];
    assert!(after.is_present && after.life != before.life, "{before:?} {after:?}");
}

#[test]
fn rows_that_wait_for_their_release_are_in_use() {
    let mut node = Node::new(LIMITS);
    let used = |node: &Node| {
        let uses = node.mirror.uses().into_iter();
        uses.map(|of| (of.map, (of.used, of.limit))).collect::<BTreeMap<_, _>>()
    };
    let of = |frontends, words, small, backends| {
        BTreeMap::from([
            ("frontends", (frontends, 64)),
            ("source_ranges", (0, 256)),
            ("service_words", (words, 256)),
            ("backends_small", (small, 256)),
            ("backends_medium", (0, 64)),
            ("backends_large", (0, 2)),
            ("backends", (backends, 256)),
        ])
    };
    assert_eq!(used(&node), of(0, 0, 0, 0));
    node.reach(&one(&[backend(1), backend(2)]));
    assert_eq!(used(&node), of(1, 2, 1, 2));
    node.reach(&Frontends::new());
    assert_eq!(used(&node), of(0, 2, 1, 2));
    node.release();
    assert_eq!(used(&node), of(0, 0, 0, 0));
}

#[test]
fn a_plan_removes_backends_to_which_no_table_refers() {
    let mut node = Node::new(LIMITS);
    let both = Frontends::from([
        (port(1), with(&[backend(1), backend(2)])),
        (port(2), with(&[backend(2)])),
    ]);
    assert!(!node.reach(&both).removes_backends());
    // The other frontend still has it.
    let plan = node
        .reach(&Frontends::from([(port(1), with(&[backend(1)])), (port(2), with(&[backend(2)]))]));
    assert!(!plan.removes_backends() && node.mirror.has_backend(backend(2)));
    let plan = node.reach(&one(&[backend(1)]));
    assert!(plan.removes_backends() && !node.mirror.has_backend(backend(2)));
    assert!(node.mirror.has_backend(backend(1)) && !node.mirror.has_backend(backend(3)));
}

#[test]
fn a_retired_table_is_used_again_only_after_its_release() {
    let mut node = Node::new(Limits { small: 2, ..LIMITS });
    node.reach(&one(&[backend(1)]));
    node.reach(&one(&[backend(2)]));
    let plan = node.mirror.replace(&one(&[backend(3)]));
    let refused = plan.refused.get(&port(1)).map(ToString::to_string);
    assert_eq!(
        refused.as_deref(),
        Some(
            "the map backends_small is full: it has 2 rows; remove Services, endpoints or source ranges"
        )
    );
    assert_eq!(plan.writes, Vec::new(), "the earlier backends stay");
    node.release();
    node.reach(&one(&[backend(3)]));
    assert_eq!(slots(&node.mirror).len(), 1);
}

#[test]
fn a_frontend_without_room_does_not_stop_the_others() {
    let mut node = Node::new(Limits { small: 1, ..LIMITS });
    let large: Vec<SocketAddr> = (1..20).map(backend).collect();
    let state = BTreeMap::from([
        (port(1), with(&[backend(1)])),
        (port(2), with(&[backend(2)])),
        (port(3), with(&large)),
    ]);
    let plan = node.mirror.replace(&state);
    let full = Refused::Full { map: TableSize::Small.map(), limit: 1 };
    assert_eq!(plan.refused, BTreeMap::from([(port(2), full)]));
    node.write(&plan);
    let reached = read(&node.kernel).expect("each frontend can be read");
    assert_eq!(reached.keys().copied().collect::<Vec<_>>(), [port(1), port(3)]);
}

#[test]
fn source_ranges_change_by_one_write_and_are_removed_after_a_release() {
    let mut node = Node::new(LIMITS);
    let state = |ranges: &[&str]| {
        let ranges: Vec<IpNet> = ranges.iter().map(|text| range(text)).collect();
        BTreeMap::from([(port(1), restricted(&ranges))])
    };
    node.reach(&state(&["10.0.0.0/8", "10.1.0.0/16"]));
    let before = node.kernel.frontends[&port(1)];
    let writes = node.reach(&state(&["10.1.0.0/16", "192.0.2.0/24"])).writes;
    let after = node.kernel.frontends[&port(1)];
    assert!(before.has_sources && after.has_sources && before.word != after.word);
    let of = |range: &str| SourceRange::from(self::range(range));
    let expected = [
        Write::Source(after.word, of("10.1.0.0/16")),
        Write::Source(after.word, of("192.0.2.0/24")),
    ];
    assert_eq!(writes[..2], expected);
    assert_eq!(writes.last(), Some(&Write::Frontend(port(1), after)));
    assert_eq!(node.kernel.sources[&before.word].len(), 2, "programs may still read them");
    node.release();
    assert_eq!(node.kernel.sources.keys().copied().collect::<Vec<_>>(), [after.word]);
    node.reach(&one(&[backend(1)]));
    node.release();
    assert_eq!(node.kernel.sources, BTreeMap::new());
}

#[test]
fn a_list_without_a_range_of_the_family_serves_no_client() {
    let mut node = Node::new(LIMITS);
    for ranges in [Vec::new(), vec![range("::/0")]] {
        node.reach(&one(&[backend(1)]));
        let plan = node.mirror.replace(&BTreeMap::from([(port(1), restricted(&ranges))]));
        node.write(&plan);
        assert!(node.kernel.frontends[&port(1)].has_sources, "{ranges:?}");
        assert_eq!(node.kernel.sources, BTreeMap::new(), "{ranges:?}");
    }
}

#[test]
fn a_frontend_without_room_for_its_ranges_does_not_serve_the_clients_that_they_exclude() {
    let mut node = Node::new(Limits { sources: 1, ..LIMITS });
    node.reach(&one(&[backend(1)]));
    let ranges = ["10.0.0.0/8", "192.0.2.0/24"].map(range);
    let plan = node.mirror.replace(&BTreeMap::from([(port(1), restricted(&ranges))]));
    let full = Refused::Full { map: "source_ranges", limit: 1 };
    assert_eq!(plan.refused, BTreeMap::from([(port(1), full)]));
    node.write(&plan);
    assert_eq!(read(&node.kernel), Some(BTreeMap::new()), "the earlier row is removed");
    node.release();
    node.reach(&BTreeMap::from([(port(1), restricted(&ranges[..1]))]));
    // More backends than there is room for: the same clients keep the earlier ones.
    let many: Vec<SocketAddr> = (0..=LIMITS.backends)
        .map(|port| (IpAddr::from([10, 0, 0, 9]), u16::try_from(port).expect("a port")).into())
        .collect();
    let frontend = Frontend { sources: Some(ranges[..1].into()), ..with(&many) };
    let plan = node.mirror.replace(&BTreeMap::from([(port(1), frontend)]));
    assert_eq!((plan.refused.len(), plan.writes.len()), (1, 0));
}

#[test]
fn ranges_that_no_frontend_has_are_removed_first() {
    let mut node = Node::new(LIMITS);
    node.reach(&BTreeMap::from([(port(1), restricted(&[range("10.0.0.0/8")]))]));
    let word = node.kernel.frontends[&port(1)].word;
    let foreign = SourceRange::from(range("0.0.0.0/0"));
    for of in [7, word + 2] {
        node.kernel.apply(&Write::Source(of, foreign));
    }
    let state = BTreeMap::from([
        (port(1), restricted(&[range("10.0.0.0/8")])),
        (port(2), restricted(&[range("0.0.0.0/0")])),
    ]);
    node.mirror = Mirror::of(found(&node.kernel));
    let plan = node.reach(&state);
    assert!(plan.writes[..2].iter().all(|write| matches!(write, Write::RemoveSource(..))));
    assert_eq!(node.kernel.sources[&(word + 2)], BTreeSet::from([foreign]), "it has a frontend");
    assert_eq!(node.kernel.sources.len(), 2);
}

#[test]
fn backends_and_affinity_change_by_one_write() {
    let mut node = Node::new(LIMITS);
    node.reach(&one(&[backend(1)]));
    let later = Frontend { affinity: 60, ..with(&[backend(2)]) };
    let writes = node.reach(&BTreeMap::from([(port(1), later)])).writes;
    let changes = writes.iter().filter(|write| matches!(write, Write::Frontend(..)));
    assert_eq!(changes.count(), 1);
    let before = [0, 1];
    let is_before =
        |write: &Write| matches!(write, Write::Word(number, _) if before.contains(number));
    assert!(!writes.iter().any(is_before), "the frontend has new words: {writes:?}");
}
