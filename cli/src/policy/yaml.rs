//! YAML, and what is wrong with it in words for people.

use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter};

/// Where a document is wrong, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// From 1, within the document; `None` where no line is to blame.
    pub(super) line: Option<usize>,
    /// What is wrong, and what to do.
    pub(super) text: String,
}

/// Reads one document.
pub(super) fn value(document: &str) -> Result<Value, Fault> {
    // Lists of a whole cluster have no bound; what is too large is the reader's own.
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
            format!("the key `{key}` is there twice: delete one")
        }
        Error::DuplicateMappingKey { key: None, .. } => {
            "a key is there twice: delete one".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "an alias (`*name`) is of no anchor (`&name`) before it: write the value out".to_owned()
        }
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias is part of what it stands for: write the value out".to_owned()
        }
        Error::MultipleDocuments { .. } => {
            "something stands behind the document's end: put `---` between two documents".to_owned()
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } => {
            "`<<` takes keys and values, or a list of such: write the values out".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => {
            format!("`{value}` is no number that JSON has: write one, or put it in quotes")
        }
        Error::BinaryNotUtf8 { .. } | Error::InvalidBinaryBase64 { .. } => {
            "`!!binary` stands for bytes that are no text: write a text".to_owned()
        }
        Error::UnsupportedTag { tag, .. } => {
            format!("the tag `{tag}` is not known: write the value without it")
        }
        Error::Eof { .. } => "it ends too early: is the file whole?".to_owned(),
        Error::Unexpected { expected, .. } if expected.contains("string") => {
            "a key is no text: write a text before the `:`".to_owned()
        }
        Error::ExternalMessage { msg, .. } => grammar(msg),
        other => grammar(&UserMessageFormatter.format_message(other)),
    }
}

/// What the grammar does not allow; parsers have one set of words for it.
fn grammar(words: &str) -> String {
    let known = GRAMMAR.iter().find(|(mark, _)| words.contains(mark));
    known.map_or_else(|| unlisted(words), |(_, text)| (*text).to_owned())
}

fn unlisted(words: &str) -> String {
    format!("{words}: compare it with the lines before it")
}

const GRAMMAR: [(&str, &str); 10] = [
    ("replayed", "aliases of aliases make it too large: write the values out"),
    ("unclosed bracket", "a `[` or `{` is not closed: close it"),
    ("tab", "a tab stands where only spaces may: indent with spaces"),
    ("mapping values are not allowed", "a `:` too many: put a value that has one in quotes"),
    ("flow", "a `{` or `[` is not closed, or a comma is missing: close it before this line ends"),
    ("quote", "a quote is not closed: close it"),
    ("while parsing a block", "it is indented otherwise than what stands above: align the two"),
    ("recursion limit", "lists or objects are nested too deeply: write fewer within each other"),
    ("version", "this version of YAML is not known: delete the line"),
    ("simple key", "a `:` is missing behind a key: write `key: value`"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_to_do_and_not_in_a_librarys_words() {
        let deep = "[".repeat(3_000);
        for (document, line, words) in [
            ("kind: A\nkind: B\n", 2, "the key `kind` is there twice: delete one"),
            ("a: *b\n", 1, "no anchor"),
            ("a: &x [*x]\n", 1, "part of what it stands for"),
            ("a: 1\n...\nb: 2\n", 3, "put `---` between"),
            ("<<: 3\na: 1\n", 1, "`<<` takes keys and values"),
            ("a: 1\nb: .nan\n", 2, "`.nan` is no number"),
            ("a: !!binary \"/w==\"\n", 1, "no text: write a text"),
            ("? [a, b]\n: c\n", 1, "a key is no text"),
            ("a:\n\tb: 1\n", 2, "indent with spaces"),
            ("a: b: c\n", 1, "put a value that has one in quotes"),
            ("a: {b: c\nd: {}\n", 2, "is not closed"),
            ("a: [b\n", 1, "is not closed"),
            ("a: \"b\n", 2, "a quote is not closed"),
            ("a:\n  - b\n c: d\n", 3, "indented otherwise"),
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
    fn what_is_odd_and_still_yaml_is_read() {
        let value = value("a: yes\n1: &x [1.5, ~]\nb: *x\n").expect("YAML");
        let expected = serde_json::json!({"a": "yes", "1": [1.5, null], "b": [1.5, null]});
        assert_eq!(value, expected);
    }
}
