//! `--save`: the last figures of each benchmark are kept in the repository, so that a figure that slips is visible.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{fmt::Write as _, fs, path::Path};

/// The figures of one benchmark, as it prints them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) bench: String,
    pub(super) machine: String,
    pub(super) figures: Vec<Figure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    name: String,
    value: f64,
    unit: String,
    reference: Option<f64>,
    ratio: Option<f64>,
    target: Option<f64>,
    met: bool,
}

impl Figure {
    /// The number that the target limits: the ratio, or the value of a figure without a reference.
    fn measure(&self) -> f64 {
        self.ratio.unwrap_or(self.value)
    }
}

/// The difference of a figure from the last save.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Change {
    pub(super) name: String,
    before: f64,
    now: f64,
    /// The target was met before, and is not met now.
    pub(super) slipped: bool,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, before, now, slipped } = self;
        write!(f, "{name}: {before} -> {now}")?;
        if *before != 0.0 {
            write!(f, " ({:+.0} %)", (now / before - 1.0) * 100.0)?;
        }
        if *slipped { f.write_str("; the target is no longer met") } else { Ok(()) }
    }
}

/// Stores the figures below `docs` of the repository, and writes table and plot; the changes since the last save.
///
/// # Errors
/// When the page lacks the benchmark's marks, or a file cannot be read or written.
pub(super) fn save(report: &Value, docs: &Path, date: &str) -> Result<Vec<Change>> {
    let report: Report = serde_json::from_value(report.clone()).context("read the figures")?;
    let folder = docs.join("benchmarks");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let file = folder.join(format!("{}.json", report.bench));
    let last = match fs::read(&file) {
        Ok(bytes) => Some(
            serde_json::from_slice(&bytes).with_context(|| format!("read {}", file.display()))?,
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
    };
    let page = docs.join("benchmarks.md");
    let text = fs::read_to_string(&page).with_context(|| format!("read {}", page.display()))?;
    let text = with_section(&text, &report.bench, &section(&report, date))?;
    let json = serde_json::to_string_pretty(&report).context("encode the figures")?;
    for (path, text) in [
        (folder.join(format!("{}.svg", report.bench)), plot(&report)),
        (page, text),
        // Last: whatever is cut off before is written again with the same changes.
        (file, json + "\n"),
    ] {
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(last.map(|last| changes(&last, &report)).unwrap_or_default())
}

fn changes(before: &Report, now: &Report) -> Vec<Change> {
    let pairs = now.figures.iter().filter_map(|figure| {
        let last = before.figures.iter().find(|last| last.name == figure.name)?;
        (last.measure() != figure.measure()).then(|| Change {
            name: figure.name.clone(),
            before: last.measure(),
            now: figure.measure(),
            slipped: last.met && !figure.met,
        })
    });
    pairs.collect()
}

/// Replaces the text between the marks of a benchmark.
fn with_section(page: &str, bench: &str, section: &str) -> Result<String> {
    let start = format!("<!-- bench {bench} -->\n");
    let (before, rest) = page.split_once(&start).with_context(|| {
        format!(
            "docs/benchmarks.md lacks the line `<!-- bench {bench} -->`; add it and `<!-- end -->`"
        )
    })?;
    let (_, after) = rest.split_once("<!-- end -->").with_context(|| {
        format!("docs/benchmarks.md lacks `<!-- end -->` after `<!-- bench {bench} -->`")
    })?;
    ensure!(!rest.split_once("<!-- end -->").is_some_and(|(old, _)| old.contains("<!-- bench ")));
    Ok(format!("{before}{start}{section}<!-- end -->{after}"))
}

fn section(report: &Report, date: &str) -> String {
    let Report { bench, machine, figures } = report;
    let mut text = format!("Measured on {date}, on {machine}.\n\n");
    if figures.iter().any(|figure| figure.target.is_some_and(|target| target > 0.0)) {
        let _ = writeln!(text, "![Figures beside their targets](benchmarks/{bench}.svg)\n");
    }
    text.push_str(
        "| Figure | Value | Reference | Ratio | Target | Met |\n|---|---|---|---|---|---|\n",
    );
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for figure in figures {
        let Figure { name, value, unit, reference, ratio, target, met } = figure;
        let met = match (target, met) {
            (None, _) => "",
            (Some(_), true) => "yes",
            (Some(_), false) => "**no**",
        };
        let reference = reference.map(|of| format!("{of} {unit}")).unwrap_or_default();
        let target = target.map(|target| format!("≤ {target}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "| `{name}` | {value} {unit} | {reference} | {} | {target} | {met} |",
            number(*ratio)
        );
    }
    text
}

/// A bar for each figure with a target: its length is the part of the target that is used.
fn plot(report: &Report) -> String {
    const ROW: usize = 22;
    const LEFT: usize = 330;
    const TARGET: usize = 300;
    let rows: Vec<_> = report
        .figures
        .iter()
        .filter_map(|figure| {
            let target = figure.target.filter(|target| *target > 0.0)?;
            Some((figure, figure.measure() / target))
        })
        .collect();
    let (width, height) = (LEFT + TARGET * 2, ROW * (rows.len() + 2));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (at, (figure, part)) in rows.iter().enumerate() {
        let y = ROW * (at + 1);
        // Twice the target is the edge of the plot.
        let bar = (part.min(2.0) * 300.0).round();
        let color = if figure.met { "#3b8f5a" } else { "#b5443a" };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{bar}\" height=\"14\" fill=\"{color}\"/>",
            LEFT - 8,
            y + 12,
            figure.name
        );
    }
    let line = LEFT + TARGET;
    let _ = writeln!(
        svg,
        "<line x1=\"{line}\" y1=\"10\" x2=\"{line}\" y2=\"{}\" stroke=\"black\"/>\
         <text x=\"{line}\" y=\"{}\" text-anchor=\"middle\">target</text>\n</svg>",
        height - ROW,
        height - 8
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE: &str = "# Benchmarks\n\n<!-- bench add -->\nold\n<!-- end -->\n\nThe end.\n";

    fn report(ratio: f64, met: bool) -> Value {
        json!({"bench": "add", "machine": "2 cores", "figures": [
            {"name": "add_p50", "value": ratio * 2.0, "unit": "ms", "reference": 2.0, "ratio": ratio, "target": 2.0, "met": met},
            {"name": "size", "value": 3.0, "unit": "MB", "reference": null, "ratio": null, "target": null, "met": true},
        ]})
    }

    #[test]
    fn a_figure_that_slips_is_named_at_the_next_save() {
        let docs = tempfile::tempdir().expect("a folder");
        let page = docs.path().join("benchmarks.md");
        fs::write(&page, PAGE).expect("a page");
        let first = save(&report(1.5, true), docs.path(), "2026-01-01").expect("a save");
        assert_eq!(first, []);
        let second = save(&report(3.0, false), docs.path(), "2026-01-02").expect("a save");
        let text: Vec<_> = second.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["add_p50: 1.5 -> 3 (+100 %); the target is no longer met"]);
        assert_eq!(save(&report(3.0, false), docs.path(), "2026-01-03").expect("a save"), []);
        let text = fs::read_to_string(&page).expect("the page");
        assert!(text.contains("Measured on 2026-01-03") && text.ends_with("\n\nThe end.\n"));
        assert!(text.contains("| `add_p50` | 6 ms | 2 ms | 3 | ≤ 2 | **no** |"), "{text}");
        assert!(!text.contains("old"));
        let svg = fs::read_to_string(docs.path().join("benchmarks/add.svg")).expect("the plot");
        assert!(svg.contains(">add_p50<") && !svg.contains(">size<"));
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        let docs = tempfile::tempdir().expect("a folder");
        let page = docs.path().join("benchmarks.md");
        fs::write(&page, "# Benchmarks\n").expect("a page");
        let error = save(&report(1.5, true), docs.path(), "2026-01-01").expect_err("no marks");
        assert!(error.to_string().contains("<!-- bench add -->"), "{error}");
        assert_eq!(fs::read_to_string(&page).expect("the page"), "# Benchmarks\n");
        assert!(!docs.path().join("benchmarks/add.json").exists());
    }

    #[test]
    fn the_page_of_this_repository_has_the_marks_of_every_benchmark() {
        let page = crate::generate::root().join("docs/benchmarks.md");
        let page = fs::read_to_string(page).expect("docs/benchmarks.md");
        for bench in super::super::names() {
            assert!(with_section(&page, &bench, "").is_ok(), "{bench}");
        }
    }
}
