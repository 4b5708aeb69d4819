//! Identifiers, punctuation and string literals of Rust source. Comments are left out.

/// A part of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Word(&'a str),
    /// The content of a string literal as it is in the source.
    Text(&'a str),
    Mark(char),
}

/// Returns the tokens of a file, each with its line. Unknown characters are left out.
pub(crate) fn tokens(source: &str) -> Vec<(usize, Token<'_>)> {
    let mut found = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let (length, token) = next(rest, first);
        let (read, after) = rest.split_at(length);
        found.extend(token.map(|token| (line, token)));
        line += read.matches('\n').count();
        rest = after;
    }
    found
}

/// Returns the length of the next part in bytes, and its token if it has one.
fn next(rest: &str, first: char) -> (usize, Option<Token<'_>>) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (rest.find("*/").map_or(rest.len(), |end| end + 2), None);
    }
    if let Some((start, end, length)) = literal(rest) {
        return (length, rest.get(start..end).map(Token::Text));
    }
    match first {
        '\'' => (quote(rest), None),
        _ if first.is_alphanumeric() || first == '_' => {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            // A raw identifier.
            let is_prefix = word == "r" && after.starts_with('#');
            (end, (!is_prefix).then_some(Token::Word(word)))
        }
        _ if first.is_ascii_punctuation() => (1, Some(Token::Mark(first))),
        _ => (first.len_utf8(), None),
    }
}

/// Returns start and end of the content of the string literal at the start, and the length of the literal.
fn literal(rest: &str) -> Option<(usize, usize, usize)> {
    let body = rest.trim_start_matches(['b', 'c']);
    let raw = body.strip_prefix('r').map(|after| (after, after.trim_start_matches('#')));
    if let Some((after, quoted)) = raw.filter(|(_, quoted)| quoted.starts_with('"')) {
        let close = format!("\"{}", "#".repeat(after.len() - quoted.len()));
        let start = rest.len() - quoted.len() + 1;
        let end = rest.get(start..)?.find(&close).map_or(rest.len(), |at| start + at);
        return Some((start, end, (end + close.len()).min(rest.len())));
    }
    if !body.starts_with('"') || rest.len() - body.len() > 1 {
        return None;
    }
    let start = rest.len() - body.len() + 1;
    let mut is_escaped = false;
    for (at, character) in rest.get(start..)?.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some((start, start + at, start + at + 1)),
            _ => {}
        }
    }
    Some((start, rest.len(), rest.len()))
}

/// Returns the length of a character literal, or 1 for the quote of a lifetime.
fn quote(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    let is_escape = matches!(characters.next(), Some((_, '\\')));
    let close = if is_escape {
        characters.skip(1).find(|(_, c)| *c == '\'')
    } else {
        characters.next().filter(|(_, c)| *c == '\'')
    };
    close.map_or(1, |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{Token::*, *};

    #[test]
    fn comments_and_characters_are_left_out_and_lines_are_counted() {
        let source =
            "// \"a\"\nlet a: &'b str = r#\"x \"y\"\"#; /* \"c\" */\nf('\"', '\\'', b\"d\\\"\");";
        let found: Vec<_> =
            tokens(source).into_iter().filter(|(_, t)| !matches!(t, Mark(_))).collect();
        let expected = [
            (2, Word("let")),
            (2, Word("a")),
            (2, Word("b")),
            (2, Word("str")),
            (2, Text("x \"y\"")),
            (3, Word("f")),
            (3, Text("d\\\"")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_raw_identifier_is_one_word() {
        let found: Vec<_> = tokens("r#type r").into_iter().map(|(_, token)| token).collect();
        assert_eq!(found, [Mark('#'), Word("type"), Word("r")]);
    }
}
