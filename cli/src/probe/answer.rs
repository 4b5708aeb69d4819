//! The answer of a probe.

use std::io;

/// The probe's default answer.
pub(super) const GREETING: &str = "ferrule probe";

/// A target that answered.
#[derive(Default)]
pub(super) struct Reached {
    pub(super) micros: Option<u64>,
    pub(super) mtu: Option<u32>,
}

/// Checks that the answer is a probe's.
pub(super) fn greeted(answer: &[u8]) -> io::Result<()> {
    let text = String::from_utf8_lossy(answer);
    match text.contains(GREETING) {
        true => Ok(()),
        false => Err(io::Error::other("a server that is not a probe answers")),
    }
}
