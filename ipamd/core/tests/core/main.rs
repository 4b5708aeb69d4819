//! The whole core against an honest world: a cloud and a kernel that do what they are told, late,
//! and a process that may die between any two effects.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod cards;
mod chores;
mod cluster;
mod faults;
mod fragments;
mod golden;
mod ipv6;
mod laws;
mod leaks;
mod limits;
mod node_cidrs;
mod old_reader;
mod places;
mod plans;
mod pods;
mod prefixes;
mod restart;
mod trunk;
mod witnesses;
mod world;
