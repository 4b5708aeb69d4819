//! The whole core against an honest world: a cloud and a kernel that do what they are told, late,
//! and a process that may die between any two effects.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod cards;
mod cluster;
mod faults;
mod golden;
mod ipv6;
mod laws;
mod old_reader;
mod pods;
mod prefixes;
mod restart;
mod witnesses;
mod world;
