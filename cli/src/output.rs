//! The form and the destination of results.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::io::{self, Write as _};

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// One JSON document
    Json,
}

/// A text in which nothing can lead a terminal astray: names are whatever objects say.
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
    write_raw(&(serde_json::to_string_pretty(value).context("write the answer")? + "\n"))
}

pub(crate) fn write_text(text: &str) -> Result<()> {
    write_raw(&plain(text))
}

/// As it is: programs read it.
pub(crate) fn write_raw(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Who reads has read enough, as `head` has; the exit code is the answer still.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("print the answer"),
    }
}
