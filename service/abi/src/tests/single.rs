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
    let before = node.kernel.backends[&0];
    node.reach(&one(&[backend(2)]));
    assert!(!node.kernel.backends[&0].is_present && node.kernel.backends[&1].is_present);
    node.mirror.release();
    node.reach(&one(&[backend(1)]));
    let after = node.kernel.backends[&0];
    assert!(after.is_present && after.life != before.life, "{before:?} {after:?}");
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
        Some("the map backends_small is full: it has 2 rows; remove Services or endpoints")
    );
    assert_eq!(plan.writes, Vec::new(), "the earlier backends stay");
    node.mirror.release();
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
fn a_frontend_with_source_ranges_serves_no_client() {
    let mut node = Node::new(LIMITS);
    node.reach(&one(&[backend(1)]));
    let frontend = Frontend { sources: Some(Arc::from([])), ..with(&[backend(1)]) };
    let plan = node.mirror.change(&BTreeMap::from([(port(1), Some(frontend))]));
    assert_eq!(plan.refused, BTreeMap::from([(port(1), Refused::SourceRanges)]));
    node.write(&plan);
    assert_eq!(read(&node.kernel), Some(BTreeMap::new()), "the earlier row is removed");
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
