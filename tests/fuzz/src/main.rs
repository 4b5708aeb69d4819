//! The coverage-guided fuzzer of one target, with libFuzzer.
//!
//! `cargo xtask fuzz` builds it with the required instrumentation and runs it.

#![no_main]

use std::sync::OnceLock;
use tests_fuzz::{Target, target};

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("FERRULE_FUZZ_TARGET").unwrap_or_default();
        let found = target(&name).expect("FERRULE_FUZZ_TARGET names a target: use cargo xtask fuzz");
        CHOSEN.get_or_init(|| found);
    },
    |data: &[u8]| {
        if let Some(target) = CHOSEN.get() {
            (target.run)(data);
        }
    }
);
