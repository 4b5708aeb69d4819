//! The verbose output of a Go test program.

use crate::Outcome;

/// Returns the test and its result if this line ends a test directly below `top`.
pub fn ended(line: &str, top: &str) -> Option<(String, Outcome)> {
    let (verdict, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
    let (name, _) = rest.split_once(" (")?;
    let name = name.strip_prefix(top)?.strip_prefix('/')?;
    if name.contains('/') {
        return None;
    }
    let outcome = match verdict {
        "PASS" => Outcome::Passed,
        "SKIP" => Outcome::Skipped,
        _ => Outcome::Failed("see the log above".to_owned()),
    };
    Some((name.to_owned(), outcome))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_directly_below_the_top_are_results() {
        let of = |line| ended(line, "TestConformance");
        let passed = ("CNPAdminTierGress".to_owned(), Outcome::Passed);
        assert_eq!(of("    --- PASS: TestConformance/CNPAdminTierGress (3.01s)"), Some(passed));
        let skipped = of("    --- SKIP: TestConformance/A (0.00s)").map(|(_, outcome)| outcome);
        assert_eq!(skipped, Some(Outcome::Skipped));
        assert!(matches!(
            of("    --- FAIL: TestConformance/A (0.00s)"),
            Some((_, Outcome::Failed(_)))
        ));
        assert_eq!(of("        --- PASS: TestConformance/A/Should_work (0.00s)"), None);
        assert_eq!(of("--- PASS: TestConformance (0.00s)"), None);
        assert_eq!(of("    helper.go:98: --- a line"), None);
    }
}
