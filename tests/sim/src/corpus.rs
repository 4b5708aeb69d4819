//! The seeds that once failed.

use crate::plan::Mode;

/// The corpus file: one `MODE SEED` per line, with the broken law after a `#`.
pub const CORPUS: &str = include_str!("../corpus");

/// Reads the seeds of a corpus.
///
/// # Errors
///
/// The line that cannot be parsed.
pub fn read_corpus(text: &str) -> Result<Vec<(Mode, u64)>, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let wrong = || format!("corpus: {line:?} is not MODE SEED");
            let (mode, seed) = line.split_once(' ').ok_or_else(wrong)?;
            Ok((mode.parse()?, seed.trim().parse().map_err(|_| wrong())?))
        })
        .collect()
}
