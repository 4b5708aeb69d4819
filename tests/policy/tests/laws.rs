//! Properties of `verdict` in any world.

use policy_core::{Decision, Packet, Verdict, World, verdict};
use proptest::{collection::vec, prelude::*, sample::Index};
use tests_policy::{
    cases, compare,
    live::LiveWorld,
    scenario::{Scenario, Sketch, events, sketch, with_unknown_part, world},
};

fn packets(scenario: &Scenario, sketches: &[Sketch]) -> Vec<Packet> {
    let packets = sketches.iter().filter_map(|sketch| sketch.packet(scenario));
    packets.map(|packet| compare::packet(&packet)).collect()
}

fn verdicts(world: &World, packets: &[Packet]) -> Vec<Verdict> {
    packets.iter().map(|packet| verdict(world, packet)).collect()
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn the_order_of_objects_does_not_change_verdicts(
        (scenario, other) in world().prop_flat_map(|scenario| {
            let other = Just(scenario.objects.clone()).prop_shuffle();
            (Just(scenario), other)
        }),
        sketches in vec(sketch(), 1..12),
    ) {
        let packets = packets(&scenario, &sketches);
        let mut names = scenario.names.clone();
        names.reverse();
        let other = Scenario { objects: other, names };
        let in_order = verdicts(&compare::world(&scenario), &packets);
        prop_assert_eq!(in_order, verdicts(&compare::world(&other), &packets));
    }

    #[test]
    fn a_world_after_events_equals_a_new_world(
        scenario in world(),
        events in events(),
        sketches in vec(sketch(), 1..12),
    ) {
        let mut live = LiveWorld::new(scenario);
        for event in events {
            let event_text = event.describe(&live.scenario);
            event.apply(&mut live);
            let packets = packets(&live.scenario, &sketches);
            let fresh = verdicts(&compare::world(&live.scenario), &packets);
            prop_assert_eq!(verdicts(&live.world, &packets), fresh, "after {}", event_text);
        }
    }

    #[test]
    fn a_part_that_is_not_understood_allows_no_additional_packet(
        scenario in world(),
        (part, wider) in (any::<Index>(), any::<bool>()),
        sketches in vec(sketch(), 1..24),
    ) {
        let Some(less) = with_unknown_part(&scenario, part, wider) else { return Ok(()) };
        let (understood, not) = (compare::world(&scenario), compare::world(&less));
        for packet in packets(&scenario, &sketches) {
            let before = verdict(&understood, &packet);
            let after = verdict(&not, &packet);
            prop_assert!(
                after.decision != Decision::Allow || before.decision == Decision::Allow,
                "{packet}\nin {less:?}\nis allowed: {after:#?}\nbut was not: {before:#?}"
            );
        }
    }
}
