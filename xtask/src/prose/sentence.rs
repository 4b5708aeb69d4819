//! Sentences of a passage, and their words.

use super::passage::{Kind, Passage};

/// One sentence of a passage.
#[derive(Clone, Debug)]
pub(crate) struct Sentence<'a> {
    /// The text as it is in the file, apart from line breaks.
    pub(crate) text: &'a str,
    /// The text with [`CODE`] in place of each inline code span.
    pub(crate) masked: String,
    pub(crate) passage: &'a Passage,
    pub(crate) line: usize,
    pub(crate) is_first: bool,
}

/// The word that replaces inline code. No rule matches it.
pub(crate) const CODE: &str = "\u{25a1}";

const ABBREVIATIONS: [&str; 8] = ["e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "no.", "fig."];

impl Sentence<'_> {
    /// The number of words. A number counts as one, a symbol such as `×` as none.
    pub(crate) fn words(&self) -> usize {
        let is_word = |word: &&str| word.contains(CODE) || word.chars().any(char::is_alphanumeric);
        self.masked.split_whitespace().filter(is_word).count()
    }

    /// Returns true if a pronoun at the start of the sentence has no antecedent.
    pub(crate) fn opens_passage(&self) -> bool {
        self.is_first && self.passage.kind.has_no_antecedent()
    }

    /// Returns true for the first sentence of a doc comment.
    pub(crate) fn opens_doc(&self) -> bool {
        self.is_first && self.passage.kind == Kind::Doc
    }
}

/// Splits a passage at the ends of its sentences.
pub(crate) fn sentences(passage: &Passage) -> Vec<Sentence<'_>> {
    let mut found = Vec::new();
    let mut start = 0;
    for end in ends(&passage.text).into_iter().chain([passage.text.len()]) {
        let Some(part) = passage.text.get(start..end) else { continue };
        let at = start + (part.len() - part.trim_start().len());
        let text = part.trim();
        start = end;
        if text.chars().any(char::is_alphanumeric) {
            let is_first = found.is_empty();
            let line = passage.line_at(at);
            found.push(Sentence { text, masked: masked(text), passage, line, is_first });
        }
    }
    found
}

/// Positions behind the ends of sentences: a full stop, question or exclamation mark, then a space
/// and no lower-case letter.
fn ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut in_code = false;
    for (at, character) in text.char_indices() {
        if character == '`' {
            in_code = !in_code;
        }
        if in_code || !matches!(character, '.' | '?' | '!') {
            continue;
        }
        let (before, after) = text.split_at(at + 1);
        let closers = after.len() - after.trim_start_matches(['"', ')', '*', '”', '\'']).len();
        let (closing, rest) = after.split_at(closers);
        let is_lower = rest.trim_start().chars().next().is_some_and(char::is_lowercase);
        let last = before.split_whitespace().next_back().unwrap_or_default().to_lowercase();
        let is_abbreviation = ABBREVIATIONS.contains(&last.trim_start_matches(['(', '"']));
        if rest.starts_with(char::is_whitespace) && !is_lower && !is_abbreviation {
            ends.push(at + 1 + closing.len());
        }
    }
    ends
}

fn masked(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        out.push_str(if index % 2 == 0 { part } else { CODE });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::passage::{Markdown, passages};

    fn split(text: &str) -> Vec<(String, usize)> {
        let markdown = Markdown { text, lines: &[1, 2, 3], first: Kind::Doc, item: None };
        let passages = passages(&markdown);
        let all = passages.iter().flat_map(sentences);
        all.map(|sentence| (sentence.text.replace('\u{a0}', " "), sentence.words())).collect()
    }

    #[test]
    fn a_sentence_ends_before_a_capital_letter() {
        let found = split("It takes 1.5 s. The next one, e.g. `a. B c`, starts at v1.2 then.");
        let expected =
            [("It takes 1.5 s.", 4), ("The next one, e.g. `a. B c`, starts at v1.2 then.", 9)];
        assert_eq!(found, expected.map(|(text, words)| (text.to_owned(), words)));
    }

    #[test]
    fn inline_code_is_one_word_and_a_symbol_is_none() {
        assert_eq!(
            split("Run `cargo xtask prose -o json` ≤ 2 × a day."),
            [("Run `cargo xtask prose -o json` ≤ 2 × a day.".to_owned(), 5)]
        );
    }
}
