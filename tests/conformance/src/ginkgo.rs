//! The output of Ginkgo, which runs Kubernetes' tests.

use crate::Outcome;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Returns the results of the tests with these names, from Ginkgo's report in JSON.
///
/// # Errors
/// If the text is no such report.
pub fn results(
    report: &str,
    is_of: impl Fn(&str) -> bool,
) -> serde_json::Result<BTreeMap<String, Outcome>> {
    let suites: Vec<Report> = serde_json::from_str(report)?;
    let specs = suites.into_iter().flat_map(|suite| suite.spec_reports.unwrap_or_default());
    let named = specs.filter(|spec| spec.leaf_node_type == "It").map(|spec| {
        let mut words = spec.container_hierarchy_texts.unwrap_or_default();
        words.push(spec.leaf_node_text);
        let outcome = match spec.state.as_str() {
            "passed" => Outcome::Passed,
            "skipped" | "pending" => Outcome::Skipped,
            state => {
                let why = spec.failure.map(|failure| failure.message).unwrap_or_default();
                Outcome::Failed(format!("{state}: {why}"))
            }
        };
        (words.join(" "), outcome)
    });
    Ok(named.filter(|(name, _)| is_of(name)).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: String,
}

/// Follows the verbose output of a run.
#[derive(Debug, Default)]
pub struct Progress {
    /// The test whose output follows.
    current: String,
}

impl Progress {
    /// Reads a line. Returns a description of the test that it ends.
    pub fn read(&mut self, line: &str) -> Option<String> {
        if line.starts_with("[sig-") {
            line.clone_into(&mut self.current);
        }
        let end = line.strip_prefix("• ")?;
        let name = self.current.split(" [sig-").next().unwrap_or_default();
        Some(format!("{end} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_the_named_tests() {
        let report = r#"[{"SpecReports": [
            {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
            {"ContainerHierarchyTexts": ["[sig-network] Netpol", "x"], "LeafNodeType": "It", "LeafNodeText": "a", "State": "passed"},
            {"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "b", "State": "skipped"},
            {"ContainerHierarchyTexts": ["[sig-network] Netpol"], "LeafNodeType": "It", "LeafNodeText": "c", "State": "timedout",
             "Failure": {"Message": "late"}},
            {"ContainerHierarchyTexts": ["[sig-apps]"], "LeafNodeType": "It", "LeafNodeText": "d", "State": "skipped"}
        ]}]"#;
        let results =
            results(report, |name| name.starts_with("[sig-network] Netpol")).expect("a report");
        let failed = Outcome::Failed("timedout: late".to_owned());
        let wanted = [("x a", Outcome::Passed), ("b", Outcome::Skipped), ("c", failed)];
        let wanted =
            wanted.map(|(name, outcome)| (format!("[sig-network] Netpol {name}"), outcome));
        assert_eq!(results, wanted.into());
    }

    #[test]
    fn each_ended_test_is_a_line() {
        let mut progress = Progress::default();
        let lines = [
            "[sig-network] Netpol should work [Feature:NetworkPolicy] [sig-network, Feature:NetworkPolicy]",
            "  STEP: Creating a namespace",
            "• [12.3 seconds]",
        ];
        let ended: Vec<_> = lines.iter().filter_map(|line| progress.read(line)).collect();
        assert_eq!(
            ended,
            ["[12.3 seconds] [sig-network] Netpol should work [Feature:NetworkPolicy]"]
        );
    }
}
