//! The eBPF programs in the kernel: verdicts, and attached programs with real traffic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a lane reads the skips of its tests")]

mod hostile;
mod judge;
mod traffic;

use std::path::PathBuf;

/// The object file of the programs. `None` if it is not given: the test is skipped.
fn object(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os("FERRULE_BPF").map(PathBuf::from);
    if path.is_none() {
        println!("SKIP {test}: FERRULE_BPF names no object file; use cargo xtask test netns");
    }
    path
}
