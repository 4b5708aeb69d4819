//! What holds of `verdict` in any world.

use policy_core::{Decision, Packet, Verdict, World, verdict};
use proptest::{collection::vec, prelude::*, sample::Index};
use tests_policy::{
    beside,
    lived::Lived,
    made::{Made, Sketch, doubted, events, sketch, world},
    tries,
};

fn packets(made: &Made, sketches: &[Sketch]) -> Vec<Packet> {
    let packets = sketches.iter().filter_map(|sketch| sketch.packet(made));
    packets.map(|packet| beside::packet(&packet)).collect()
}

fn verdicts(world: &World, packets: &[Packet]) -> Vec<Verdict> {
    packets.iter().map(|packet| verdict(world, packet)).collect()
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn the_order_in_which_objects_come_means_nothing(
        (made, other) in world().prop_flat_map(|made| {
            let other = Just(made.objects.clone()).prop_shuffle();
            (Just(made), other)
        }),
        sketches in vec(sketch(), 1..12),
    ) {
        let packets = packets(&made, &sketches);
        let mut names = made.names.clone();
        names.reverse();
        let other = Made { objects: other, names };
        let in_order = verdicts(&beside::world(&made), &packets);
        prop_assert_eq!(in_order, verdicts(&beside::world(&other), &packets));
    }

    #[test]
    fn a_world_that_events_made_is_one_made_afresh(
        made in world(),
        events in events(),
        sketches in vec(sketch(), 1..12),
    ) {
        let mut lived = Lived::new(made);
        for event in events {
            let told = event.told(&lived.made);
            event.befall(&mut lived);
            let packets = packets(&lived.made, &sketches);
            let fresh = verdicts(&beside::world(&lived.made), &packets);
            prop_assert_eq!(verdicts(&lived.world, &packets), fresh, "after {}", told);
        }
    }

    #[test]
    fn what_is_not_understood_lets_no_packet_more_pass(
        made in world(),
        (part, wider) in (any::<Index>(), any::<bool>()),
        sketches in vec(sketch(), 1..24),
    ) {
        let Some(less) = doubted(&made, part, wider) else { return Ok(()) };
        let (understood, not) = (beside::world(&made), beside::world(&less));
        for packet in packets(&made, &sketches) {
            let before = verdict(&understood, &packet);
            let after = verdict(&not, &packet);
            prop_assert!(
                after.decision != Decision::Allow || before.decision == Decision::Allow,
                "{packet}\nin {less:?}\nis allowed: {after:#?}\nbut was not: {before:#?}"
            );
        }
    }
}
