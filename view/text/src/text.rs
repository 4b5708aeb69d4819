//! Text with tones.

use anstyle::{AnsiColor, Style};
use std::fmt;

/// The meaning of a piece of text. A terminal shows it as a color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    Notice,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Notice => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// Text in pieces of one tone each. Every piece is escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pieces: Vec<(Tone, String)>,
}

impl Text {
    pub fn push(&mut self, tone: Tone, text: &str) {
        if !text.is_empty() {
            self.pieces.push((tone, escaped(text)));
        }
    }

    pub fn push_plain(&mut self, text: &str) {
        self.push(Tone::Plain, text);
    }

    pub fn append(&mut self, mut other: Self) {
        self.pieces.append(&mut other.pieces);
    }

    /// Formats the text with the escape sequences of terminals.
    pub fn ansi(&self) -> String {
        let piece = |(tone, text): &(Tone, String)| {
            let style = tone.style();
            format!("{style}{text}{style:#}")
        };
        self.pieces.iter().map(piece).collect()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut new = Self::default();
        new.push_plain(text);
        new
    }
}

/// The text without tones.
impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|(_, text)| f.write_str(text))
    }
}

/// Escapes control and invisible characters except newlines. Names in objects could otherwise control the terminal or
/// reorder its text.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter != '\n' && (letter.is_control() || is_invisible(letter)) {
            true => escaped.extend(letter.escape_default()),
            false => escaped.push(letter),
        }
    }
    escaped
}

/// Returns true for characters that take no place or change the direction of text.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Formats a number with its noun, and a verb if the caller adds one: `1 step`, `2 steps`.
pub fn counted<N: Copy + fmt::Display + From<u8> + PartialEq>(
    count: N,
    one: &str,
    many: &str,
) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noun_of_a_number_has_its_form() {
        let steps = [0, 1, 2].map(|count: u64| counted(count, "step", "steps"));
        assert_eq!(steps, ["0 steps", "1 step", "2 steps"]);
    }

    #[test]
    fn a_hostile_piece_of_text_cannot_control_the_terminal() {
        let mut text = Text::default();
        text.push(Tone::Bad, "a\x1b[2Jb\u{202e}c\u{2061}\r\n");
        text.push_plain(" d");
        assert_eq!(text.to_string(), "a\\u{1b}[2Jb\\u{202e}c\\u{2061}\\r\n d");
        let ansi = text.ansi();
        assert!(ansi.starts_with("\x1b[1m\x1b[31ma\\u{1b}"), "{ansi:?}");
        assert!(ansi.ends_with("\x1b[0m d"), "{ansi:?}");
    }
}
