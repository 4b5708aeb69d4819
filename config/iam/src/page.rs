//! The page that explains the policies to operators.

use crate::{Grant, Mode, grants};

/// Returns `docs/guide/iam.md`.
pub(crate) fn page() -> String {
    let rows: String = grants().iter().map(row).collect();
    include_str!("page.md").replace("<!-- calls -->\n", &format!("{HEAD}{rows}"))
}

const HEAD: &str = "| action | IPv4 | IPv6 | IPv6, ENIs | read-only | purpose | effect if it is missing |\n|---|---|---|---|---|---|---|\n";

fn row(grant: &Grant) -> String {
    let in_mode = |mode| if grant.modes.contains(&mode) { "yes" } else { "" };
    format!(
        "| `ec2:{}` | {} | {} | {} | {} | {} | {} |\n",
        grant.action,
        in_mode(Mode::Ipv4),
        in_mode(Mode::Ipv6),
        in_mode(Mode::Ipv6Enis),
        in_mode(Mode::ReadOnly),
        grant.purpose,
        grant.without,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_row_for_each_call() {
        let page = page();
        for grant in grants() {
            assert!(page.contains(&format!("| `ec2:{}` |", grant.action)), "{}", grant.action);
        }
        assert!(!page.contains("<!--"), "a table was not filled in");
    }
}
