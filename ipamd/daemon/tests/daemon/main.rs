//! The whole daemon over its real socket, with a scripted cloud and a kernel in memory.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

mod cloud;
mod cluster;
mod crash;
mod install;
mod node;
mod requests;
mod shown;
mod takeover;
mod verbs;
