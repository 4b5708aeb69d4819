//! Words that names of functions, types, traits and modules must not have.

use super::{report::Finding, tokens::Token};

/// A row of the table.
pub(crate) struct NameRule {
    /// Lower-case words. A name must not have one of them as a whole word.
    words: &'static [&'static str],
    /// The correction, in a few words.
    hint: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the table test reads the examples"))]
    rejects: &'static str,
    /// A near miss that the row must accept.
    #[cfg_attr(not(test), expect(dead_code, reason = "the table test reads the examples"))]
    accepts: &'static str,
}

pub(crate) const NAME_RULES: &[NameRule] = &[
    NameRule {
        words: &["tell", "tells", "told", "telling", "untold", "teller"],
        hint: "report, send, receive, show, log",
        rejects: "a_replica_is_told_of_the_pod",
        accepts: "SatelliteReport",
    },
    NameRule {
        words: &["says", "said", "saying", "unsaid"],
        hint: "report, send, log, show, contain",
        rejects: "what_the_log_says",
        accepts: "an_essay",
    },
    NameRule {
        words: &[
            "whoever",
            "whomever",
            "whom",
            "nobody",
            "nobodys",
            "somebody",
            "somebodys",
            "anybody",
            "anybodys",
        ],
        hint: "name the component; negate the verb",
        rejects: "nobody_answers",
        accepts: "a_body_is_parsed",
    },
    NameRule {
        words: &["anew", "afresh", "beneath", "hitherto", "nevertheless", "ill", "amiss", "astray"],
        hint: "again, below, still, wrong",
        rejects: "RulesMadeAnew",
        accepts: "an_illegal_value_is_refused",
    },
    NameRule {
        words: &["mend", "mends", "mended", "mending"],
        hint: "fix, repair",
        rejects: "a_rule_is_mended",
        accepts: "recommend",
    },
    NameRule {
        words: &[
            "deaf",
            "hear",
            "hears",
            "heard",
            "hearing",
            "unheard",
            "stranger",
            "strangers",
            "believe",
            "believes",
            "believed",
            "wish",
            "wishes",
            "wished",
        ],
        hint: "name the mechanism: receive, ignore, foreign, unauthenticated, assume, request",
        rejects: "StrangerList",
        accepts: "strange_characters",
    },
    NameRule {
        words: &["bury", "buries", "buried", "bear", "bears", "borne", "lend", "lends", "lent"],
        hint: "name the operation: add, drain, ensure, borrow",
        rejects: "bury",
        accepts: "bearer_token",
    },
    NameRule {
        words: &["office", "offices", "desk", "desks", "bell", "bells"],
        hint: "use the term of the glossary: hub, client, session, waker",
        rejects: "OfficeKey",
        accepts: "BellmanFord",
    },
    NameRule {
        words: &[
            "neighbour",
            "neighbours",
            "colour",
            "colours",
            "behaviour",
            "labelled",
            "relabelled",
            "cancelled",
            "modelled",
            "catalogue",
            "licence",
            "normalised",
            "serialised",
            "recognised",
            "misspelt",
            "grey",
        ],
        hint: "American spelling",
        rejects: "neighbour_entry",
        accepts: "NeighborEntry",
    },
];

const KEYWORDS: [&str; 7] = ["fn", "struct", "enum", "union", "trait", "type", "mod"];

/// Returns a finding for each definition with a rejected word in its name.
pub(crate) fn findings(path: &str, tokens: &[(usize, Token<'_>)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for pair in tokens.windows(2) {
        let [(_, Token::Word(keyword)), (line, Token::Word(name))] = pair else { continue };
        if !KEYWORDS.contains(keyword) {
            continue;
        }
        found.extend(NAME_RULES.iter().filter(|rule| rule.is_broken_by(name)).map(|rule| {
            Finding {
                path: path.to_owned(),
                line: *line,
                rule: "name",
                sentence: format!("{keyword} {name}"),
                hint: rule.hint.to_owned(),
            }
        }));
    }
    found
}

impl NameRule {
    fn is_broken_by(&self, name: &str) -> bool {
        words_of_name(name).iter().any(|word| self.words.contains(&word.as_str()))
    }
}

/// Splits an identifier into lower-case words.
pub(crate) fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && character != '_'
        {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::tokens::tokens;

    #[test]
    fn every_row_rejects_and_accepts_its_example() {
        for rule in NAME_RULES {
            assert!(rule.is_broken_by(rule.rejects), "{} must be rejected", rule.rejects);
            assert!(!rule.is_broken_by(rule.accepts), "{} must be accepted", rule.accepts);
        }
    }

    #[test]
    fn definitions_are_checked_and_uses_are_not() {
        let source = "mod x { pub async fn tell(desk: Desk) {} }\n// fn said() {}\nstruct Bell;\nimpl Says for X {}";
        let found = findings("a.rs", &tokens(source));
        let found: Vec<_> = found.iter().map(|f| (f.line, f.sentence.as_str())).collect();
        let expected = [(1, "fn tell"), (3, "struct Bell")];
        assert_eq!(found, expected);
    }
}
