//! The CRI messages, generated from `proto/cri.proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    clippy::allow_attributes_without_reason,
    reason = "generated code: which of these lints it trips changes with the generator"
)]

tonic::include_proto!("runtime.v1");
