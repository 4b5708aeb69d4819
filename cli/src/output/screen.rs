//! Output that is repeated: in place on a terminal, else as one block below the other.

use super::write_block;
use anyhow::Result;
use std::{io, mem::replace};
use view_text::Text;

pub(crate) struct Screen {
    /// False if the output cannot be redrawn.
    is_terminal: bool,
    /// True from the first block on.
    shown: bool,
}

impl Screen {
    pub(crate) fn of_stdout() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self { is_terminal: !is_dumb && size().is_some(), shown: false }
    }

    /// Shows a block. Returns false if the reader of standard output is gone.
    pub(crate) fn show(&mut self, text: &Text) -> Result<bool> {
        let has_color = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
        let painted = if has_color { text.ansi() } else { text.to_string() };
        let first = !replace(&mut self.shown, true);
        match size().filter(|_| self.is_terminal) {
            Some(size) => {
                let lines = fitting(&text.to_string(), size);
                write_block(&redrawn(&painted, lines, first))
            }
            None if first => write_block(&painted),
            None => write_block(&format!("\n{painted}")),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Size {
    rows: usize,
    columns: usize,
}

fn size() -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let size = Size { rows: size.ws_row.into(), columns: size.ws_col.into() };
    (size.rows > 0 && size.columns > 0).then_some(size)
}

/// Returns the number of lines that fit, without the last row of the terminal, which has the cursor.
fn fitting(text: &str, size: Size) -> usize {
    let mut free = size.rows.saturating_sub(1);
    let rows = |line: &str| line.chars().count().div_ceil(size.columns).max(1);
    let fits = |line: &&str| {
        let left = free.checked_sub(rows(line));
        free = left.unwrap_or_default();
        left.is_some()
    };
    text.lines().take_while(fits).count()
}

/// Draws the first lines over the previous block, without a flicker of the whole screen.
fn redrawn(painted: &str, lines: usize, first: bool) -> String {
    let mut block = if first { format!("{CLEAR}{HOME}") } else { HOME.to_owned() };
    for line in painted.lines().take(lines) {
        block.push_str(&format!("{line}{CLEAR_LINE}\n"));
    }
    block + CLEAR_BELOW
}

const HOME: &str = "\x1b[H";
const CLEAR: &str = "\x1b[2J";
/// Clears from the cursor to the end of the line, and to the end of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_only_the_lines_that_fit() {
        let size = |rows, columns| Size { rows, columns };
        assert_eq!(fitting("a\nb\nc\n", size(4, 10)), 3);
        assert_eq!(fitting("a\nb\nc\n", size(3, 10)), 2);
        assert_eq!(fitting("a\nlonger than ten\nc\n", size(4, 10)), 2);
        assert_eq!(fitting("longer than ten\n\nc\n", size(3, 10)), 1);
    }

    #[test]
    fn a_later_block_overwrites_the_earlier_one() {
        assert_eq!(redrawn("a\nb\nc\n", 2, true), "\x1b[2J\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(redrawn("a\n", 2, false), "\x1b[Ha\x1b[K\n\x1b[J");
    }
}
