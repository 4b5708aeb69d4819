//! Names that are safe in paths, host names and CNI arguments.

use super::LabError;

/// Checks a name of a node, a pod or a namespace.
pub(super) fn check(what: &'static str, text: &str, max: usize) -> Result<(), LabError> {
    let fits = (1..=max).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
    if fits { Ok(()) } else { Err(LabError::BadName { what, text: text.to_owned(), max }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_contain_a_path() {
        assert!(check("node", "node1", 32).is_ok());
        for bad in ["", "..", "a/b", "A", "-a", "a;b=c", "a b"] {
            assert!(check("node", bad, 32).is_err(), "{bad}");
        }
    }
}
