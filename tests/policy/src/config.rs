//! How long properties are tried.

use proptest::prelude::ProptestConfig;

/// So many cases, unless `PROPTEST_CASES` says how many. What fails goes into a test of its own, not into a
/// file of seeds, which mean something else as soon as worlds are made up differently.
pub fn tries(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if asked { default.cases } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..default }
}
