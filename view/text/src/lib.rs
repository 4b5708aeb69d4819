//! Text and tables of the commands, with tones that a terminal shows as colors.
//!
//! Pure: the caller knows the terminal. It passes the width and decides between [`Text::ansi`] and plain text.

mod table;
mod text;

pub use table::{Cell, Table};
pub use text::{Text, Tone, counted, escaped};
