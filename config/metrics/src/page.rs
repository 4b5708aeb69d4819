//! The reference for people.

use crate::{Kind, Metric, Program};

/// `docs/guide/metrics.md`.
pub fn page() -> String {
    let mut page = include_str!("page.md").to_owned();
    for program in Program::ALL {
        let rows: String = program.metrics().iter().map(row).collect();
        let place = format!("<!-- {} -->\n", program.name());
        page = page.replace(&place, &format!("{HEAD}{rows}"));
    }
    page
}

const HEAD: &str = "| metric | type | labels | unit | meaning |\n|---|---|---|---|---|\n";

fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let kind = match metric.kind {
        Kind::Histogram(buckets) => {
            let ends = buckets.first().zip(buckets.last());
            let range = ends.map(|(first, last)| format!(" {first}–{last}"));
            format!("histogram{}", range.unwrap_or_default())
        }
        Kind::Counter | Kind::Gauge | Kind::Summary => metric.kind.name().to_owned(),
    };
    format!(
        "| `{}` | {kind} | {} | {} | {} |\n",
        metric.name,
        labels.join(", "),
        metric.unit,
        metric.help
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_metric() {
        let page = page();
        for metric in Program::ALL.iter().flat_map(|program| program.metrics()) {
            assert!(page.contains(&format!("| `{}` |", metric.name)), "{}", metric.name);
        }
        assert!(!page.contains("<!--"), "a table was not filled in");
    }
}
