//! Upstream's suites of network policy, run on a whole cluster.
//!
//! This library has the list of skipped tests and reads the output of both suites. It does not access the system.

pub mod ginkgo;
pub mod gotest;
mod skips;

pub use skips::{Kernel, Suite, skips};

use std::collections::BTreeMap;

/// The result of one test of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Skipped,
    /// With the reason that the suite gives.
    Failed(String),
}

/// Compares the results of a suite with the tests that are to be skipped. Returns one line for each difference.
pub fn differences(
    results: &BTreeMap<String, Outcome>,
    skipped: &BTreeMap<String, String>,
) -> Vec<String> {
    let of_results = results.iter().filter_map(|(test, outcome)| match outcome {
        Outcome::Failed(why) => Some(format!("failed: {test}: {why}")),
        Outcome::Skipped if !skipped.contains_key(test) => {
            Some(format!("skipped, and not listed in skips.yaml: {test}"))
        }
        Outcome::Passed if skipped.contains_key(test) => {
            Some(format!("listed in skips.yaml, and passed: {test}"))
        }
        Outcome::Passed | Outcome::Skipped => None,
    });
    let unknown = skipped.keys().filter(|test| !results.contains_key(*test));
    of_results
        .chain(unknown.map(|test| format!("listed in skips.yaml, and not in the suite: {test}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_a_line() {
        let results = BTreeMap::from([
            ("good".to_owned(), Outcome::Passed),
            ("bad".to_owned(), Outcome::Failed("refused".to_owned())),
            ("listed".to_owned(), Outcome::Skipped),
            ("forgotten".to_owned(), Outcome::Skipped),
            ("works".to_owned(), Outcome::Passed),
        ]);
        let skipped = ["listed", "works", "misspelled"];
        let skipped = skipped.map(|name| (name.to_owned(), String::new())).into();
        assert_eq!(
            differences(&results, &skipped),
            [
                "failed: bad: refused",
                "skipped, and not listed in skips.yaml: forgotten",
                "listed in skips.yaml, and passed: works",
                "listed in skips.yaml, and not in the suite: misspelled",
            ]
        );
    }
}
