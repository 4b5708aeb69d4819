//! Output formats and standard output.

mod screen;

pub(crate) use screen::Screen;

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
    /// One YAML document
    Yaml,
}

impl Output {
    pub(crate) fn is_text(self) -> bool {
        self == Self::Text
    }

    /// Formats a document. Callers format text themselves; for it the result is JSON.
    pub(crate) fn document(self, value: &serde_json::Value) -> Result<String> {
        let encoding = "cannot encode the result";
        match self {
            Self::Yaml => serde_saphyr::to_string(value).context(encoding),
            Self::Text | Self::Json => {
                Ok(serde_json::to_string_pretty(value).context(encoding)? + "\n")
            }
        }
    }

    pub(crate) fn write(self, value: &serde_json::Value) -> Result<()> {
        write_raw(&self.document(value)?)
    }
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

/// Writes output that is repeated. Returns false if the reader is gone: there is no use in more output.
pub(crate) fn write_block(text: &str) -> Result<bool> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        done => done.map(|()| true).context("cannot print the result"),
    }
}

fn printed(written: io::Result<()>) -> Result<()> {
    match written {
        // A closed pipe, as with `head`, is no error; the exit code is still the result.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("cannot print the result"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_yaml_document_has_the_values_of_the_json_document() {
        let value = json!({
            "words": ["yes", "null", "1.10", "0x1f", "a: b", "- c", "two\nlines\n", "", " x ", "\u{1b}[2J"],
            "numbers": [0, -1, 18446744073709551615_u64, 1.5], "none": null, "no": false,
            "empty": {}, "list": [],
        });
        let text = Output::Yaml.document(&value).unwrap();
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, value, "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
