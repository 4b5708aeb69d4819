//! The targets, by the source of the input.

pub mod checkpoint;
pub mod conntrack;
pub mod dns;
pub mod environment;
pub mod listings;
pub mod netconf;
pub mod netlink;
pub mod policy;
pub mod prev_result;
pub mod settings;
pub mod sockets;
pub mod words;

use crate::CANARY;
use cni::fault::{Code, Fault};

/// A refusal has one of these codes, has a text, and repeats no value.
fn judge(fault: &Fault, codes: &[Code]) {
    assert!(codes.contains(&fault.code), "code {:?} of {fault:?}", fault.code);
    assert!(!fault.message.is_empty() && !fault.details.is_empty(), "{fault:?} has no text");
    let text = format!("{} {}", fault.message, fault.details);
    assert!(!text.contains(CANARY), "{text:?} repeats a value");
}
