//! The index of a support archive: its files, and those that could not be collected.

mod owned;

pub use owned::OwnObjects;

use crate::redact::redact_text;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The version of `ferrule`.
    pub version: String,
    pub files: Vec<Entry>,
    /// Missing files with the reason.
    pub missing: Vec<Missing>,
    /// True if the collection was interrupted. Then more files are missing than `missing` lists.
    pub interrupted: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub path: String,
    pub bytes: usize,
    /// True if the start or the end of the file was cut off.
    pub cut: bool,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The path that the file would have.
    pub path: String,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub file: usize,
    /// The limit of all files together, uncompressed.
    pub all: usize,
}

impl Index {
    /// Adds a file within the bounds and returns the part to write; `None` if nothing fits.
    pub fn take<'a>(&mut self, path: &str, text: &'a [u8], bounds: Bounds) -> Option<&'a [u8]> {
        let so_far: usize = self.files.iter().map(|file| file.bytes).sum();
        let room = bounds.all.saturating_sub(so_far).min(bounds.file);
        if room == 0 && !text.is_empty() {
            let why = format!("the archive has reached its limit of {} bytes", bounds.all);
            self.miss(path, why);
            return None;
        }
        let kept = text.get(..room).unwrap_or(text);
        let (path, bytes) = (path.to_owned(), kept.len());
        self.files.push(Entry { path, bytes, cut: bytes < text.len() });
        Some(kept)
    }

    /// Returns true if the bounds are reached.
    pub fn is_full(&self, bounds: Bounds) -> bool {
        self.files.iter().map(|file| file.bytes).sum::<usize>() >= bounds.all
    }

    /// Records a file that could not be collected.
    pub fn miss(&mut self, path: &str, why: impl Into<String>) {
        self.missing.push(Missing { path: path.to_owned(), why: redact_text(&why.into()) });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn an_archive_has_bounds_and_lists_omitted_files() {
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
