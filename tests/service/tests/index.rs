//! The index of `service-core` against the naive evaluator: random worlds, changes, and the vectors.

use proptest::prelude::*;
use service_core::{Frontend, Index, Place, Taken, World};
use std::collections::{BTreeMap, BTreeSet};
use tests_service::{
    judge::{WORLDS, cases, judge},
    scenario::{Scenario, events, world},
};

fn compiled(world: &World) -> Index {
    let mut index = Index::of(world.clone());
    index.take_changes();
    index
}

fn apply(index: &mut Index, changes: BTreeMap<Place, Option<Frontend>>, of: &mut Frontends) {
    for (place, frontend) in changes {
        let before = of.get(&place);
        assert_ne!(before, frontend.as_ref(), "{place:?} is reported and has not changed");
        match frontend {
            Some(frontend) => of.insert(place, frontend),
            None => of.remove(&place),
        };
    }
    assert_eq!(of, index.frontends(), "each change is reported");
}

/// The claims of each Service that another one has.
fn all_taken(index: &Index) -> BTreeSet<Taken<'_>> {
    let mut taken = BTreeSet::new();
    for service in index.world().services.keys() {
        for place in index.places(service) {
            let owner = match place {
                Place::OtherPorts(_) => continue,
                Place::NodePort(..) => index.owner(&place),
                Place::Port(address, ..) => {
                    index.owner(&place).or_else(|| index.owner(&Place::OtherPorts(address)))
                }
            };
            let others = owner.filter(|owner| *owner != service);
            taken.extend(others.map(|owner| Taken { service, place, owner }));
        }
    }
    taken
}

type Frontends = BTreeMap<Place, Frontend>;

proptest! {
    #![proptest_config(cases(WORLDS))]

    #[test]
    fn the_index_answers_each_packet_as_the_naive_evaluator(Scenario(world) in world()) {
        let index = compiled(&world);
        judge(&world, |packet| index.route(packet)).map_err(TestCaseError::fail)?;
        for place in index.frontends().keys() {
            prop_assert!(index.owner(place).is_some(), "{place:?}");
        }
    }
}

proptest! {
    #![proptest_config(cases(WORLDS / 4))]

    /// The order of events does not count, and each difference is reported once.
    #[test]
    fn an_index_that_has_changed_is_that_of_its_world(
        Scenario(mut world) in world(),
        events in events(),
    ) {
        let mut index = Index::of(world.clone());
        let mut frontends = BTreeMap::new();
        let changes = index.take_changes();
        apply(&mut index, changes, &mut frontends);
        for event in events {
            event.apply(&mut world);
            event.send(&mut index);
            let changes = index.take_changes();
            apply(&mut index, changes, &mut frontends);
            prop_assert_eq!(index.world(), &world);
            let fresh = compiled(&world);
            prop_assert_eq!(index.frontends(), fresh.frontends(), "{:?}", event);
            let taken: BTreeSet<Taken<'_>> = index.taken().collect();
            prop_assert_eq!(taken, all_taken(&fresh), "{:?}", event);
        }
        judge(&world, |packet| index.route(packet)).map_err(TestCaseError::fail)?;
        prop_assert!(index.take_changes().is_empty());
    }
}
