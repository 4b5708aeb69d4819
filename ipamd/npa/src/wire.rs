//! The generated messages of `proto/npa.proto`, also for the agents of tests.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::wildcard_enum_match_arm,
    clippy::allow_attributes_without_reason,
    reason = "generated code: which of these lints it trips changes with the generator"
)]

tonic::include_proto!("rpc");
