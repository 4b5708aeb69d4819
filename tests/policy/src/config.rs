//! Number of cases per property.

use proptest::prelude::ProptestConfig;

/// Configures a property with this number of cases, or with `PROPTEST_CASES` if that is set. Seeds are not
/// stored: their meaning changes with each change of the generators. A case that fails becomes a test of its
/// own.
pub fn cases(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    let is_set = std::env::var_os("PROPTEST_CASES").is_some();
    let cases = if is_set { default.cases } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..default }
}
