//! The messages as they travel, generated from `proto/ipamd.proto`.
//!
//! For tests that speak a version this crate does not; everything else uses the crate's own types.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    clippy::allow_attributes_without_reason,
    reason = "generated code: which of these lints it trips changes with the generator"
)]

tonic::include_proto!("ferrule.ipamd.v1");
