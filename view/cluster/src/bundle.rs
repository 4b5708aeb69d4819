//! The index of a support archive: what is in it, and what could not be got.

use crate::redact::redact_text;
use serde::Serialize;

/// What an archive says of itself.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The tool's version.
    pub version: String,
    /// What is in it.
    pub files: Vec<Entry>,
    /// What is not, and why.
    pub missing: Vec<Missing>,
    /// Whether it was interrupted: then more is missing.
    pub interrupted: bool,
}

/// A file.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its path in the archive.
    pub path: String,
    /// Its size.
    pub bytes: usize,
    /// Whether its beginning or end was left out.
    pub cut: bool,
}

/// What could not be got.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// What would have been its path.
    pub path: String,
    /// Why it is not there.
    pub why: String,
}

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of one file.
    pub file: usize,
    /// Of all together, uncompressed.
    pub all: usize,
}

impl Index {
    /// Takes a file in, within the bounds: what of it is to be written, if anything.
    pub fn take<'a>(&mut self, path: &str, text: &'a [u8], bounds: Bounds) -> Option<&'a [u8]> {
        let so_far: usize = self.files.iter().map(|file| file.bytes).sum();
        let room = bounds.all.saturating_sub(so_far).min(bounds.file);
        if room == 0 && !text.is_empty() {
            let why = format!("the archive has the {} bytes that it may have", bounds.all);
            self.miss(path, why);
            return None;
        }
        let kept = text.get(..room).unwrap_or(text);
        let (path, bytes) = (path.to_owned(), kept.len());
        self.files.push(Entry { path, bytes, cut: bytes < text.len() });
        Some(kept)
    }

    /// Whether nothing more has room.
    pub fn is_full(&self, bounds: Bounds) -> bool {
        self.files.iter().map(|file| file.bytes).sum::<usize>() >= bounds.all
    }

    /// Notes what could not be got.
    pub fn miss(&mut self, path: &str, why: impl Into<String>) {
        self.missing.push(Missing { path: path.to_owned(), why: redact_text(&why.into()) });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn an_archive_has_bounds_and_says_what_they_left_out() {
        let bounds = Bounds { file: 4, all: 6 };
        let mut index = Index::default();
        assert!(!index.is_full(bounds));
        assert_eq!(index.take("a", b"abcdef", bounds), Some(&b"abcd"[..]));
        assert_eq!(index.take("b", b"xyz", bounds), Some(&b"xy"[..]));
        assert_eq!(index.take("c", b"q", bounds), None);
        assert!(index.is_full(bounds));
        index.miss("d", "no way to https://user:pw@host");
        assert_eq!(index.missing.pop().unwrap().why, "no way to https://REDACTED@host");
        let cut: Vec<bool> = index.files.iter().map(|file| file.cut).collect();
        assert_eq!((cut, index.missing.len()), (vec![true, true], 1));
    }
}
