//! A table of the figures for people.

use crate::figures::{Bench, Figure};
use std::fmt::Write as _;

/// One section per trace, with amazon-vpc-cni's values next to ours.
pub fn table(bench: &Bench) -> String {
    let mut text = String::new();
    let mut section = String::new();
    for figure in bench.figures() {
        let (of, what) = parts(&figure.name);
        if of != section {
            section = of;
            let head = ["ours", "reference", "ratio", "target", "met"];
            let [ours, reference, ratio, target, met] = head;
            let _ = writeln!(
                text,
                "\n{section:44} {ours:>12} {reference:>12} {ratio:>8} {target:>8}  {met}"
            );
        }
        let _ = writeln!(text, "{}", row(&what, figure));
    }
    text
}

/// Splits the name of a figure into `mode trace` and the measured quantity.
fn parts(name: &str) -> (String, String) {
    let mut parts = name.splitn(3, '_');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(mode @ ("addresses" | "prefixes")), Some(trace), Some(what)) => {
            (format!("{trace}, {mode}"), what.to_owned())
        }
        _ => ("in memory".to_owned(), name.to_owned()),
    }
}

fn row(what: &str, figure: &Figure) -> String {
    let number = |number: Option<f64>| match number {
        Some(number) => number.to_string(),
        None => "–".to_owned(),
    };
    let met = match (figure.target, figure.met) {
        (None, _) => "",
        (Some(_), true) => "yes",
        (Some(_), false) => "NO",
    };
    let value = number(figure.value.is_finite().then_some(figure.value));
    format!(
        "  {:42} {value:>12} {:>12} {:>8} {:>8}  {met}",
        format!("{what} ({})", figure.unit),
        number(figure.reference.filter(|reference| reference.is_finite())),
        number(figure.ratio),
        number(figure.target),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_in_the_section_of_their_trace() {
        let mut bench = Bench::new("pool");
        bench.push(Figure::with_reference("addresses_burst_calls", 2.0, "calls", 4.0).at_most(1.0));
        bench.push(Figure::bounded("allocation_p99_1000_pods", 30.0, "µs", 20.0));
        let text = table(&bench);
        assert!(text.contains("burst, addresses"), "{text}");
        let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_default();
        assert!(line("calls (calls)").ends_with("0.5        1  yes"), "{text}");
        assert!(line("allocation_p99").ends_with("NO"), "{text}");
    }
}
