//! JSON templates.

use anyhow::{Context as _, Result};

/// Pieces of text, each with the name of the placeholder after it.
pub(super) struct Template {
    pieces: Vec<(String, String)>,
    end: String,
}

impl Template {
    /// Parses a template. Placeholders are `@NAME@`. White space between tokens is removed, as API servers
    /// do.
    pub(super) fn new(text: &str) -> Self {
        let mut parts = compact(text);
        let end = parts.split_off(parts.rfind('@').map_or(0, |at| at + 1));
        let mut pieces = Vec::new();
        let mut rest = parts.split('@');
        while let (Some(piece), Some(hole)) = (rest.next(), rest.next()) {
            // Image references contain an `@` too.
            match hole.chars().all(|letter| letter.is_ascii_uppercase()) {
                true => pieces.push((piece.to_owned(), hole.to_owned())),
                false => unreachable!("a template has an @ that is no hole: {hole}"),
            }
        }
        Self { pieces, end }
    }

    pub(super) fn fill<'a>(
        &self,
        into: &mut Vec<u8>,
        of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<()> {
        for (piece, hole) in &self.pieces {
            into.extend_from_slice(piece.as_bytes());
            into.extend_from_slice(
                of(hole).with_context(|| format!("nothing for @{hole}@"))?.as_bytes(),
            );
        }
        into.extend_from_slice(self.end.as_bytes());
        Ok(())
    }
}

fn compact(text: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    let keep = |letter: &char| {
        if inside {
            (inside, escaped) = match (*letter, escaped) {
                ('"', false) => (false, false),
                ('\\', false) => (true, true),
                _ => (true, false),
            };
            return true;
        }
        inside = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    text.chars().filter(keep).collect()
}
