//! YAML, with errors in terms of the document.

use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter};

/// An error with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Starts at 1 within the document; `None` if the error has no line.
    pub(super) line: Option<usize>,
    /// The cause and the next step.
    pub(super) text: String,
}

pub(super) fn value(document: &str) -> Result<Value, Fault> {
    // Lists of a whole cluster are large, and the user runs the command with own files.
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    serde_saphyr::from_str_with_options(document, options).map_err(|error| {
        let line = error.location().and_then(|place| usize::try_from(place.line()).ok());
        Fault { line: line.filter(|line| *line > 0), text: text(error.without_snippet()) }
    })
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "most errors of the library are not for documents"
)]
fn text(error: &Error) -> String {
    match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key `{key}`; delete one")
        }
        Error::DuplicateMappingKey { key: None, .. } => "duplicate key; delete one".to_owned(),
        Error::UnknownAnchor { .. } => {
            "alias (`*name`) without an earlier anchor (`&name`); write the value out".to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias contains itself; write the value out".to_owned()
        }
        Error::MultipleDocuments { .. } => {
            "text after the end of the document; put `---` between two documents".to_owned()
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            "`<<` needs a mapping or a list of mappings; write the values out".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => {
            format!("`{value}` is not a JSON number; change it or put it in quotes")
        }
        Error::BinaryNotUtf8 { .. } | Error::InvalidBinaryBase64 { .. } => {
            "`!!binary` with bytes that are not text; write a text".to_owned()
        }
        Error::UnsupportedTag { tag, .. } => {
            format!("unknown tag `{tag}`; remove it")
        }
        Error::Eof { .. } => {
            "unexpected end of the file; check that the file is complete".to_owned()
        }
        Error::Unexpected { expected, .. } if expected.contains("string") => {
            "a key is not text; write a text before the `:`".to_owned()
        }
        Error::ExternalMessage { msg, .. } => grammar(msg),
        other => grammar(&UserMessageFormatter.format_message(other)),
    }
}

/// Translates the parser's errors about grammar.
fn grammar(words: &str) -> String {
    let known = GRAMMAR.iter().find(|(mark, _)| words.contains(mark));
    known.map_or_else(|| unlisted(words), |(_, text)| (*text).to_owned())
}

fn unlisted(words: &str) -> String {
    format!("{words}; compare with the lines before it")
}

const GRAMMAR: [(&str, &str); 10] = [
    ("replayed", "nested aliases make the document too large; write the values out"),
    ("unclosed bracket", "a `[` or `{` is not closed; close it"),
    ("tab", "a tab in the indentation; indent with spaces"),
    ("mapping values are not allowed", "an extra `:`; put a value that has one in quotes"),
    (
        "flow",
        "a `{` or `[` is not closed, or a comma is missing; close it before the end of this line",
    ),
    ("quote", "a quote is not closed; close it"),
    ("while parsing a block", "the indentation differs from the lines above; align them"),
    ("recursion limit", "lists or objects are nested too deeply; flatten them"),
    ("version", "unknown YAML version; delete the line"),
    ("simple key", "a `:` is missing after a key; write `key: value`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_line_and_the_fix_and_no_library() {
        let deep = "[".repeat(3_000);
        for (document, line, words) in [
            ("kind: A\nkind: B\n", 2, "duplicate key `kind`; delete one"),
            ("a: *b\n", 1, "without an earlier anchor"),
            ("a: &x [*x]\n", 1, "an alias contains itself"),
            ("a: 1\n...\nb: 2\n", 3, "put `---` between"),
            ("<<: 3\na: 1\n", 1, "`<<` needs a mapping"),
            ("a: 1\nb: .nan\n", 2, "`.nan` is not a JSON number"),
            ("a: !!binary \"/w==\"\n", 1, "not text; write a text"),
            ("? [a, b]\n: c\n", 1, "a key is not text"),
            ("a:\n\tb: 1\n", 2, "indent with spaces"),
            ("a: b: c\n", 1, "put a value that has one in quotes"),
            ("a: {b: c\nd: {}\n", 2, "is not closed"),
            ("a: [b\n", 1, "is not closed"),
            ("a: \"b\n", 2, "a quote is not closed"),
            ("a:\n  - b\n c: d\n", 3, "the indentation differs"),
            (&*deep, 1, "nested too deeply"),
            ("a:\n  b: 1\n  c\n", 3, "write `key: value`"),
        ] {
            let fault = value(document).expect_err("no YAML");
            assert!(fault.text.contains(words), "{document:.60}: {fault:?}");
            assert_eq!(fault.line, Some(line), "{document:.60}: {fault:?}");
            for advice in ["Option", "from_str", "<input>", "policy", "deserialize", "serde"] {
                assert!(!fault.text.contains(advice), "{document:.60}: {fault:?}");
            }
        }
    }

    #[test]
    fn unusual_yaml_is_read() {
        let value = value("a: yes\n1: &x [1.5, ~]\nb: *x\n").expect("YAML");
        let expected = serde_json::json!({"a": "yes", "1": [1.5, null], "b": [1.5, null]});
        assert_eq!(value, expected);
    }
}
