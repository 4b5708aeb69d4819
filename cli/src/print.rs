//! The text form of doctor's report.

use cli_doctor::{Report, Severity};
use std::fmt::Write as _;
use view_text::counted;

/// Formats the report with good checks first, so that the faults are next to the prompt.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    for check in &report.good {
        line(&mut text, "good", &check.to_string(), check.good());
    }
    for unseen in &report.unseen {
        line(&mut text, "unseen", &unseen.check.to_string(), &unseen.why);
    }
    let mut findings: Vec<_> = report.findings.iter().collect();
    findings.sort_by_key(|finding| finding.severity);
    for finding in findings {
        let word = match finding.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Fault => "FAULT",
        };
        line(&mut text, word, &finding.check.to_string(), &finding.wrong);
        line(&mut text, "", "", &format!("why:  {}", finding.why));
        line(&mut text, "", "", &format!("fix:  {}", finding.fix));
    }
    let count = |wanted| report.findings.iter().filter(|f| f.severity == wanted).count();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} good, {}, {}, {}, {} not checked",
        report.good.len(),
        counted(count(Severity::Fault), "fault", "faults"),
        counted(count(Severity::Warning), "warning", "warnings"),
        counted(count(Severity::Notice), "notice", "notices"),
        report.unseen.len()
    );
    text
}

fn line(text: &mut String, word: &str, check: &str, what: &str) {
    let _ = writeln!(text, "{word:8} {check:17} {what}");
}
