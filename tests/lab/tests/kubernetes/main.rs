//! Nodes as members of a cluster: a real API server, and the production daemon with the rights of its manifest.

mod adds;
mod bad_input;

mod branches;
mod burst;
mod coming;
mod connections;
mod cordon;
mod crowd;
mod custom;
mod enforced;
mod first_packet;
mod flows;
mod hostile;
mod in_pod;
mod leftovers;
mod matrix;
mod membership;
mod policed;
mod proxy;
mod shortcut;
mod theirs;
mod world;
