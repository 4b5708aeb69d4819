//! `Filter.N` of the Describe calls.

use crate::{Ec2Error, Filter};
use std::collections::BTreeMap;

/// Values of a described object for filters.
pub(crate) trait Filtered {
    /// The names that EC2 knows for this kind of object, apart from `tag:…` and `tag-key`.
    const NAMES: &'static [&'static str];

    /// The values behind a name of [`Self::NAMES`].
    fn values(&self, name: &str) -> Vec<String>;

    fn tags(&self) -> &BTreeMap<String, String>;
}

/// Refuses filters that EC2 does not know for this kind of object.
pub(crate) fn check<T: Filtered>(filters: &[Filter]) -> Result<(), Ec2Error> {
    let known =
        |name: &str| name.starts_with("tag:") || name == "tag-key" || T::NAMES.contains(&name);
    for filter in filters {
        if !known(&filter.name) {
            let message = format!("The filter '{}' is invalid", filter.name);
            return Err(Ec2Error::invalid_value(message));
        }
        if filter.values.is_empty() {
            return Err(Ec2Error::invalid_value("The filter 'null' is invalid"));
        }
    }
    Ok(())
}

/// True if an object passes all filters.
pub(crate) fn passes<T: Filtered>(object: &T, filters: &[Filter]) -> bool {
    filters.iter().all(|filter| {
        let values = if let Some(key) = filter.name.strip_prefix("tag:") {
            object.tags().get(key).cloned().into_iter().collect()
        } else if filter.name == "tag-key" {
            object.tags().keys().cloned().collect()
        } else {
            object.values(&filter.name)
        };
        values.iter().any(|value| filter.values.iter().any(|pattern| wildcard(pattern, value)))
    })
}

/// True if a pattern matches itself alone.
fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '\\'])
}

/// The values of a filter of this name; `None` if there is no such filter or a value is a pattern. A caller with an
/// index of them does not have to read everything.
pub(crate) fn plain_values<'a>(filters: &'a [Filter], name: &str) -> Option<&'a [String]> {
    let filter = filters.iter().find(|filter| filter.name == name)?;
    filter.values.iter().all(|value| is_plain(value)).then_some(&filter.values)
}

/// True if a text matches a pattern with `*`, `?` and `\` before a literal.
pub(crate) fn wildcard(pattern: &str, text: &str) -> bool {
    if is_plain(pattern) {
        return pattern == text;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // Where the last `*` stood and what it has swallowed so far: enough to try again from there.
    let (mut p, mut t, mut star) = (0, 0, None);
    loop {
        let literal = match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
                continue;
            }
            Some('\\') if p + 1 < pattern.len() => pattern.get(p + 1).map(|c| (*c, 2)),
            Some(c) => Some((*c, 1)),
            None => None,
        };
        let wild = pattern.get(p) == Some(&'?');
        match (literal, text.get(t)) {
            (Some((wanted, width)), Some(found)) if wild || wanted == *found => {
                p += width;
                t += 1;
            }
            (None, None) => return true,
            (_, found) => match (star, found) {
                (Some((at, swallowed)), _) if swallowed < text.len() => {
                    star = Some((at, swallowed + 1));
                    (p, t) = (at + 1, swallowed + 1);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_as_ec2s_do() {
        for (pattern, text, matches) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("aws-K8S-*", "aws-K8S-i-0123", true),
            ("aws-K8S-*", "aws-k8s-i-0123", false),
            ("*b*", "abc", true),
            ("*b", "abc", false),
            ("*bc", "abcbc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            (r"a\*c", "a*c", true),
            (r"a\*c", "abc", false),
            (r"a\?", "a?", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXcYb", false),
        ] {
            assert_eq!(wildcard(pattern, text), matches, "{pattern} {text}");
        }
    }
}
