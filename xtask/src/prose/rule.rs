//! A rule, and its evaluation on one sentence.

use super::sentence::Sentence;
use anyhow::{Context as _, Result};
use regex::Regex;

/// The test that a rule applies to a sentence.
pub(crate) enum Check {
    /// Rejects a sentence in which the pattern matches the masked text and the exception does not
    /// match at the same words.
    Words {
        /// A regular expression. Case counts unless it starts with `(?i)`.
        pattern: &'static str,
        /// Removed from the text before the pattern is applied.
        except: Option<&'static str>,
    },
    /// Rejects a sentence if the function returns true.
    Is(fn(&Sentence<'_>) -> bool),
}

/// One rule of `docs/style.md`.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) check: Check,
    /// The correction, in a few words.
    pub(crate) hint: &'static str,
    /// Doc comments of one sentence that the rule must reject.
    #[cfg_attr(not(test), expect(dead_code, reason = "the table test reads the examples"))]
    pub(crate) rejects: &'static [&'static str],
    /// Near misses: doc comments of one sentence that the rule must accept.
    #[cfg_attr(not(test), expect(dead_code, reason = "the table test reads the examples"))]
    pub(crate) accepts: &'static [&'static str],
}

/// A rule with its regular expressions.
pub(crate) struct Compiled {
    pub(crate) rule: &'static Rule,
    expressions: Option<(Regex, Option<Regex>)>,
}

impl Compiled {
    /// # Errors
    /// When an expression of the table is not valid.
    pub(crate) fn new(rule: &'static Rule) -> Result<Self> {
        let compile = |text: &str| {
            Regex::new(text).with_context(|| format!("cannot compile rule {}: {text}", rule.name))
        };
        let expressions = match &rule.check {
            Check::Words { pattern, except } => {
                Some((compile(pattern)?, except.map(compile).transpose()?))
            }
            Check::Is(_) => None,
        };
        Ok(Self { rule, expressions })
    }

    pub(crate) fn rejects(&self, sentence: &Sentence<'_>) -> bool {
        match (&self.rule.check, &self.expressions) {
            (Check::Is(is_bad), _) => is_bad(sentence),
            (Check::Words { .. }, Some((pattern, None))) => pattern.is_match(&sentence.masked),
            (Check::Words { .. }, Some((pattern, Some(except)))) => {
                pattern.is_match(&except.replace_all(&sentence.masked, ""))
            }
            (Check::Words { .. }, None) => false,
        }
    }
}
