//! Tests against a real kernel in namespaces of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, process::Command};
use tests_support::Program;

/// Returns the program under test.
pub fn ferrule() -> &'static Path {
    static FERRULE: Program = Program::new("FERRULE_CLI", "cli", "ferrule");
    FERRULE.path()
}

pub fn ip(words: &str) {
    run("ip", words);
}

#[track_caller]
pub fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {printed}");
}
