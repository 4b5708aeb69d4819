//! Programs whose clock is wrong, by `libfaketime` of Debian's package `libfaketime`.

use std::{ffi::OsString, path::PathBuf};

/// Returns the variables of a program whose clock is two years ahead. Its monotonic clocks run as usual. If the library is
/// not installed, prints that the test is skipped and returns `None`.
#[expect(clippy::print_stdout, reason = "a skipped test must be visible")]
pub fn two_years_ahead(test: &str) -> Option<[(&'static str, OsString); 3]> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let library = PathBuf::from("/usr/lib").join(multiarch).join("faketime/libfaketimeMT.so.1");
    if !library.is_file() {
        println!("SKIP {test}: no {}; install Debian's package libfaketime", library.display());
        return None;
    }
    Some([
        ("LD_PRELOAD", library.into()),
        ("FAKETIME", "+730d".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ])
}
