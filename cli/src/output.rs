//! Output formats and standard output.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::io::{self, Write as _};
use view_text::Text;

pub(crate) use view_text::escaped as plain;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Tables and sentences
    Text,
    /// One JSON document
    Json,
}

/// The use of color in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Sets the use of color for this process.
    pub(crate) fn apply(self) {
        let choice = match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Returns the number of columns of the terminal; `None` if standard output is not a terminal.
pub(crate) fn columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

pub(crate) fn write_json(value: &serde_json::Value) -> Result<()> {
    write_raw(&(serde_json::to_string_pretty(value).context("cannot encode the result")? + "\n"))
}

/// Writes text with its tones as colors, if the terminal and the user allow colors.
pub(crate) fn write(text: &Text) -> Result<()> {
    printed(anstream::stdout().write_all(text.ansi().as_bytes()))
}

pub(crate) fn write_text(text: &str) -> Result<()> {
    write_raw(&plain(text))
}

/// Writes output that programs read, without escapes.
pub(crate) fn write_raw(text: &str) -> Result<()> {
    printed(io::stdout().write_all(text.as_bytes()))
}

fn printed(written: io::Result<()>) -> Result<()> {
    match written {
        // A closed pipe, as with `head`, is no error; the exit code is still the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot print the result"),
    }
}
