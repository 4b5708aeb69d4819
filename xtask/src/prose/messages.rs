//! Messages in Rust source: string literals in the arguments of macros and methods that print or report.

use super::{passage::Passage, tokens::Token};

const MACROS: [&str; 22] = [
    "anyhow",
    "assert",
    "assert_eq",
    "assert_ne",
    "bail",
    "debug",
    "ensure",
    "eprint",
    "eprintln",
    "error",
    "format",
    "info",
    "panic",
    "print",
    "println",
    "todo",
    "trace",
    "unimplemented",
    "unreachable",
    "warn",
    "write",
    "writeln",
];
const METHODS: [&str; 4] = ["context", "expect", "expect_err", "with_context"];

/// Returns one passage for each message of a file. A literal of one word is data, not a message.
pub(crate) fn messages(tokens: &[(usize, Token<'_>)]) -> Vec<Passage> {
    let mut found = Vec::new();
    // One flag for each open bracket: its content is part of a message.
    let mut open: Vec<bool> = Vec::new();
    for (index, (line, token)) in tokens.iter().enumerate() {
        let is_inside = open.last().copied().unwrap_or_default();
        match token {
            Token::Mark('(' | '[' | '{') => {
                let before = tokens.get(..index).unwrap_or_default();
                open.push(is_inside || opens_message(before));
            }
            Token::Mark(')' | ']' | '}') => drop(open.pop()),
            Token::Text(text) if is_inside && text.trim().contains(' ') => {
                found.push(Passage::message(&plain(text), *line));
            }
            Token::Text(_) | Token::Word(_) | Token::Mark(_) => {}
        }
    }
    found
}

/// Returns true if the arguments behind these tokens are those of a macro or method of the tables, or of `#[error(`.
fn opens_message(before: &[(usize, Token<'_>)]) -> bool {
    let last = |back: usize| before.iter().rev().nth(back).map(|(_, token)| token);
    match (last(2), last(1), last(0)) {
        (_, Some(Token::Word(name)), Some(Token::Mark('!'))) => MACROS.contains(name),
        (_, Some(Token::Mark('.')), Some(Token::Word(name))) => METHODS.contains(name),
        (Some(Token::Mark('#')), Some(Token::Mark('[')), Some(Token::Word(name))) => {
            *name == "error"
        }
        _ => false,
    }
}

/// Joins continued lines, and marks placeholders as inline code.
fn plain(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let joined = lines.fold(first, |joined, line| joined + line.trim_start());
    let unescaped = joined.replace("\\n", " ").replace("\\\"", "\"");
    let mut out = String::new();
    for part in unescaped.replace("{{", "").replace("}}", "").split_inclusive('}') {
        match part.rsplit_once('{') {
            Some((before, _)) if part.ends_with('}') => out.extend([before, "`{}`"]),
            Some(_) | None => out.push_str(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::tokens::tokens;

    fn read(source: &str) -> Vec<(usize, String)> {
        let found = messages(&tokens(source));
        found.into_iter().map(|passage| (passage.line_at(0), passage.text)).collect()
    }

    #[test]
    fn arguments_of_macros_and_methods_are_messages() {
        let source = "#[error(\"cannot read {path:?}\")]\nfn f() { bail!(\"a b: \\\n  {}\", g(\"in it\"));\n\
                      x.context(\"c d\")?; }";
        let expected = [(1, "cannot read `{}`"), (2, "a b: `{}`"), (3, "in it"), (4, "c d")];
        assert_eq!(read(source), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn data_is_no_message() {
        let source =
            "f(\"a b\"); assert_eq!(a, \"word\"); #[serde(rename = \"a b\")] fn error(x: X) {}";
        assert_eq!(read(source), []);
    }
}
