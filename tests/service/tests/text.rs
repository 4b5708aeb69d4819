//! The text of a world is complete.

use proptest::prelude::*;
use tests_service::{
    judge::cases,
    scenario::{Scenario, packets, random, world},
    text::{read, show_packet, show_world},
};

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_world_is_read_as_it_is_shown(Scenario(world) in world()) {
        let packets = packets(&world);
        let lines = packets.iter().map(|packet| show_packet(packet) + " = any\n");
        let text = format!("== title\n{}{}", show_world(&world), lines.collect::<String>());
        let vectors = read(&text).map_err(TestCaseError::fail)?;
        prop_assert_eq!(vectors.len(), 1);
        prop_assert_eq!(&vectors[0].world, &world);
        let read: Vec<_> = vectors[0].expected.iter().map(|(packet, _)| *packet).collect();
        prop_assert_eq!(read, packets);
    }
}

#[test]
fn an_unknown_word_is_refused_with_its_line() {
    let text = "== title\nnode n1 zone=a\nservice x/s NodePort external_local";
    let error = read(text).expect_err("a word with an underscore");
    assert!(error.starts_with("line 3: ") && error.contains("external_local"), "{error}");
    for text in ["node n1", "== title\nport http TCP 80", "== title\nservice x/s Node"] {
        read(text).expect_err(text);
    }
}

#[test]
fn a_seed_has_one_world() {
    assert_eq!(random(7), random(7));
    assert_ne!(random(7), random(8));
}
