//! The work that `cargo xtask bench policy` measures is correct, at a hundredth of its sizes. No test depends
//! on time.

use policy_core::index::{Role, Snapshot};
use std::collections::BTreeSet;
use tests_bench::policy::{LoadMode, ObjectForm, Scale, Size, events, load, pages};

fn written_in(form: ObjectForm, size: Size) -> Vec<u8> {
    let mut written = Vec::new();
    pages(size, form, Scale::Small, &mut written).expect("pages in memory");
    written
}

fn written(size: Size) -> Vec<u8> {
    written_in(ObjectForm::Lean, size)
}

fn loaded(size: Size) -> Snapshot {
    load(&mut &*written(size), LoadMode::Groups).expect("pages are read").index.snapshot()
}

/// Pairs of group size and number of groups of that size, for one role.
fn groups(snapshot: &Snapshot, role: Role) -> Vec<(usize, usize)> {
    let of_role = snapshot.groups.iter().filter(|((of, _), _)| *of == role);
    let mut counts = std::collections::BTreeMap::new();
    of_role.for_each(|(_, group)| *counts.entry(group.members.len()).or_default() += 1);
    counts.into_iter().collect()
}

#[test]
fn small_namespaces_have_a_group_of_all_four_pods_and_two_of_two() {
    let snapshot = loaded(Size::SmallNamespaces);
    assert_eq!(groups(&snapshot, Role::Applied), [(2, 500), (4, 250)]);
    assert_eq!(groups(&snapshot, Role::Address), [(2, 500)]);
    assert_eq!(snapshot.policies.len(), 750);
}

#[test]
fn large_namespaces_have_a_group_of_a_thousand_pods_and_a_hundred_of_ten() {
    let snapshot = loaded(Size::LargeNamespaces);
    assert_eq!(groups(&snapshot, Role::Applied), [(10, 200), (1000, 2)]);
    assert_eq!(groups(&snapshot, Role::Address), [(10, 200)]);
    assert_eq!(snapshot.policies.len(), 202);
}

#[test]
fn policies_that_all_select_all_share_one_group() {
    let snapshot = loaded(Size::SelectAll);
    assert_eq!(groups(&snapshot, Role::Applied), [(100, 1)]);
    assert_eq!(groups(&snapshot, Role::Address), [(100, 1)]);
    let spans: BTreeSet<_> = snapshot.policies.values().map(|policy| &policy.span).collect();
    assert_eq!((snapshot.policies.len(), spans.len()), (100, 1));
    assert!(spans.iter().all(|span| span.len() > 50), "pods are on many nodes");
}

#[test]
fn a_policy_of_one_pod_is_needed_by_one_node_and_has_one_peer() {
    let snapshot = loaded(Size::OnePodEach);
    assert_eq!(groups(&snapshot, Role::Applied), [(1, 100)]);
    assert_eq!(groups(&snapshot, Role::Address), [(1, 100)]);
    for policy in snapshot.policies.values() {
        let applied = &snapshot.groups[&(Role::Applied, policy.uses.applied[0])];
        let address = &snapshot.groups[&(Role::Address, policy.uses.address[0])];
        let nodes = |members: &policy_core::index::GroupState| {
            members.members.values().map(|member| member.node.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!(policy.span, nodes(applied));
        assert_eq!(address.span, policy.span);
        assert_ne!(applied.members, address.members);
    }
}

#[test]
fn full_objects_are_more_bytes_and_the_same_groups() {
    for size in Size::ALL {
        let full = written_in(ObjectForm::Full, size);
        assert!(full.len() > 4 * written(size).len());
        let full = load(&mut &*full, LoadMode::Groups).expect("pages are read");
        let lean = loaded(size);
        let sizes =
            |snapshot: &Snapshot| [Role::Applied, Role::Address].map(|r| groups(snapshot, r));
        assert_eq!(sizes(&full.index.snapshot()), sizes(&lean));
    }
}

#[test]
fn both_parsers_read_every_object_and_keep_none() {
    for size in Size::ALL {
        for form in [ObjectForm::Lean, ObjectForm::Full] {
            let pages = written_in(form, size);
            let load = |what| load(&mut &*pages, what).expect("pages are read");
            let groups = load(LoadMode::Groups);
            for read in [load(LoadMode::Plain), load(LoadMode::OwnReader)] {
                assert_eq!((read.objects, read.bytes), (groups.objects, groups.bytes));
                assert!(read.index.is_empty() && read.objects > 200);
            }
        }
    }
}

#[test]
fn events_change_members_and_are_undone() {
    for size in Size::ALL {
        let bytes = written(size);
        let mut index = load(&mut &*bytes, LoadMode::Groups).expect("pages are read").index;
        let before = index.snapshot();
        let timed = events(&mut index, &mut &*bytes, 10).expect("pages are read again");
        assert!(timed.iter().all(|timed| !timed.samples.is_empty()));
        let members = |name| timed.iter().find(|timed| timed.name == name).map(|t| t.members);
        assert_eq!(members("pod_added"), members("pod_gone"));
        assert!(members("pod_added") > Some(0) && members("namespace_relabelled") > Some(0));
        let after = index.snapshot();
        let kept = |id| after.policies.contains_key(id);
        assert!(before.policies.keys().all(kept));
        assert_eq!(
            after.policies.len(),
            before.policies.len() + 1,
            "only the policy of team red remains"
        );
        for (key, group) in &before.groups {
            assert_eq!(after.groups[key].members, group.members);
        }
    }
}
