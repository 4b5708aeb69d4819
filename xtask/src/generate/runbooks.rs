//! The runbooks of the alerts for the chart: without a published page, an alert has the text of its section.

use std::collections::BTreeMap;

/// Returns the sections of the page as JSON, by the name of the alert.
pub(super) fn json(page: &str) -> String {
    let sections = serde_json::json!(sections(page));
    format!("{sections:#}\n")
}

fn sections(page: &str) -> BTreeMap<&str, String> {
    let mut parts = page.split("\n### ");
    parts.next();
    parts
        .filter_map(|part| {
            let (name, text) = part.split_once('\n')?;
            let text = text.split_once("\n## ").map_or(text, |(text, _)| text);
            Some((name.trim(), without_links(text.trim())))
        })
        .collect()
}

/// Replaces each link by its text: its target is a path of the page.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((label_start, (_, behind))) = before.rfind('[').zip(after.split_once(')')) else {
            break;
        };
        let (ahead, label) = before.split_at(label_start);
        plain.push_str(ahead);
        plain.push_str(label.trim_start_matches('['));
        rest = behind;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_ends_at_the_next_heading_and_has_no_links() {
        let page = "# Alerts\n\nIntro.\n\n### One\n\n- See [Two](#two), [metrics.md](metrics.md).\n\n## Part\n\n\
                    ### Two\n\n`a[0]` is [not a link].\n";
        let found = sections(page);
        assert_eq!(found["One"], "- See Two, metrics.md.");
        assert_eq!(found["Two"], "`a[0]` is [not a link].");
        assert_eq!(found.len(), 2);
    }
}
