//! Output formats and standard output.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::io::{self, Write as _};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Tables and sentences
    Text,
    /// One JSON document
    Json,
}

/// Escapes control characters, because names in objects could otherwise control the terminal.
pub(crate) fn plain(text: &str) -> String {
    let is_odd = |letter: char| letter.is_control() && letter != '\n';
    text.chars()
        .map(|letter| match is_odd(letter) {
            true => letter.escape_default().to_string(),
            false => letter.to_string(),
        })
        .collect()
}

pub(crate) fn write_json(value: &serde_json::Value) -> Result<()> {
    write_raw(&(serde_json::to_string_pretty(value).context("cannot encode the result")? + "\n"))
}

pub(crate) fn write_text(text: &str) -> Result<()> {
    write_raw(&plain(text))
}

/// Writes output that programs read, without escapes.
pub(crate) fn write_raw(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // A closed pipe, as with `head`, is no error; the exit code is still the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot print the result"),
    }
}
