//! The generated messages of `proto/agent.proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::wildcard_enum_match_arm,
    clippy::allow_attributes_without_reason,
    reason = "generated code: which of these lints it trips changes with the generator"
)]

tonic::include_proto!("ferrule.agent.v1");
