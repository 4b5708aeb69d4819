//! The whole core in a model of its environment. Cloud and kernel carry out its effects with a delay, and the process
//! may die between any two effects.
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
