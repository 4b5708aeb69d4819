//! Tables on the terminal.

use view_text::Table;

/// Formats the table for standard output. The last line has no newline.
pub(super) fn shown(table: &Table) -> String {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let width = size.ok().map(|size| size.ws_col).filter(|width| *width > 0);
    table.text(width).to_string().trim_end().to_owned()
}
