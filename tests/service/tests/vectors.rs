//! Worlds in `vectors/`, with the expected routes.

use service_core::Index;
use std::collections::BTreeSet;
use tests_service::{
    naive,
    text::{Vector, read, show_packet, show_route},
};

const FILES: &[(&str, &str)] = &[
    ("topology.txt", include_str!("../vectors/topology.txt")),
    ("policies.txt", include_str!("../vectors/policies.txt")),
    ("frontends.txt", include_str!("../vectors/frontends.txt")),
    ("slices.txt", include_str!("../vectors/slices.txt")),
];

fn vectors() -> Vec<Vector> {
    let read = |(file, text): &(&str, &str)| match read(text) {
        Ok(vectors) => vectors,
        Err(error) => panic!("{file}: {error}"),
    };
    FILES.iter().flat_map(read).collect()
}

#[test]
fn each_vector_has_packets_and_a_title_of_its_own() {
    let mut titles = BTreeSet::new();
    for vector in vectors() {
        assert!(!vector.expected.is_empty(), "{} has no packet", vector.title);
        assert!(titles.insert(vector.title.clone()), "{} is there twice", vector.title);
    }
}

#[test]
fn the_naive_evaluator_answers_each_vector() {
    for Vector { title, world, expected } in vectors() {
        for (packet, expected) in expected {
            let route = show_route(&naive::route(&world, &packet));
            assert_eq!(route, expected, "{title}: {}", show_packet(&packet));
        }
    }
}

#[test]
fn the_index_answers_each_vector() {
    for Vector { title, world, expected } in vectors() {
        let mut index = Index::of(world);
        index.take_changes();
        for (packet, expected) in expected {
            let route = show_route(&index.route(&packet));
            assert_eq!(route, expected, "{title}: {}", show_packet(&packet));
        }
    }
}
