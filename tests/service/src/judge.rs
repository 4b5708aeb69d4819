//! Compares the answers of an implementation with the naive ones.

use crate::{
    naive,
    scenario::packets,
    text::{show_packet, show_route, show_world},
};
use proptest::prelude::ProptestConfig;
use service_core::{Packet, Route, World};

/// The number of worlds of a comparison.
pub const WORLDS: u32 = 1_000;

/// Configures a property with this number of cases, or with `PROPTEST_CASES` if that is set, for a longer search. A
/// case that fails becomes a vector; its seed is not stored.
pub fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => default,
        None => ProptestConfig { cases, ..default },
    }
}

/// Compares every packet of interest of a world.
///
/// # Errors
/// The first packet with another answer, and the world, both as a vector.
pub fn judge(world: &World, answer: impl Fn(&Packet) -> Route) -> Result<(), String> {
    for packet in packets(world) {
        let (expected, actual) = (naive::route(world, &packet), answer(&packet));
        if actual != expected {
            let (world, packet) = (show_world(world), show_packet(&packet));
            let (expected, actual) = (show_route(&expected), show_route(&actual));
            return Err(format!("{world}{packet} = {expected}\n  but the answer is: {actual}"));
        }
    }
    Ok(())
}
