//! Tables with columns as wide as their widest cell, without borders.

use crate::text::{Text, Tone, escaped};
use comfy_table::{ContentArrangement, presets::NOTHING};
use std::fmt;

/// The content of a cell. Line breaks become blanks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    tone: Tone,
    text: String,
}

impl Cell {
    pub fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { tone, text: text.into() }
    }

    /// Encloses the text in invisible marks, because the layout moves it.
    fn marked(&self) -> String {
        let text = escaped(&self.text).replace('\n', " ");
        match MARKS.iter().find(|(_, tone)| *tone == self.tone) {
            Some((mark, _)) if !text.is_empty() => format!("{mark}{text}{END}"),
            Some(_) | None => text,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Tone::Plain, text)
    }
}

#[derive(Clone, Debug)]
pub struct Table {
    table: comfy_table::Table,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING).set_header(heads);
        Self { table }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        self.table.add_row(cells.into_iter().map(|cell| cell.into().marked()));
    }

    /// Formats the table. `width` is the terminal's number of columns: wider cells are wrapped. `None` keeps each row on
    /// one line.
    pub fn text(&self, width: Option<u16>) -> Text {
        let mut table = self.table.clone();
        let last = table.column_count().saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { GAP }));
        }
        match width {
            Some(width) => {
                table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width)
            }
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        let mut text = Text::default();
        table.lines().for_each(|line| add_line(&mut text, &line));
        text
    }
}

/// The table without a limit of its width and without tones.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text(None).fmt(f)
    }
}

/// Replaces the marks of a line by tones. A wrapped cell has its tone on the first line only.
fn add_line(text: &mut Text, line: &str) {
    let mut rest = line.trim_end();
    while let Some(at) = rest.find(|letter| tone_of(letter).is_some()) {
        let (before, marked) = rest.split_at(at);
        text.push_plain(before);
        let mut letters = marked.chars();
        let tone = letters.next().and_then(tone_of).unwrap_or_default();
        let marked = letters.as_str();
        // Two blanks are the end of a wrapped cell, because the mark is on another line.
        let end = [marked.find(END), marked.find("  ")].into_iter().flatten().min();
        let (toned, after) = marked.split_at(end.unwrap_or(marked.len()));
        text.push(tone, toned);
        rest = after;
    }
    text.push_plain(&rest.replace(END, ""));
    text.push_plain("\n");
}

fn tone_of(letter: char) -> Option<Tone> {
    let mark = MARKS.iter().find(|(mark, _)| *mark == letter);
    mark.map(|(_, tone)| *tone).or_else(|| (letter == END).then_some(Tone::Plain))
}

/// Characters without a width, which [`escaped`] removes from the text of cells.
const MARKS: [(char, Tone); 3] =
    [('\u{2061}', Tone::Good), ('\u{2062}', Tone::Notice), ('\u{2063}', Tone::Bad)];
const END: char = '\u{2064}';
/// Blanks between columns.
const GAP: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_line_ends_in_blanks() {
        let mut table = Table::new(&["NODE", "FREE"]);
        table.row(["a-long-name", "1"]);
        table.row(["b", ""]);
        assert_eq!(table.to_string(), "NODE          FREE\na-long-name   1\nb\n");
    }

    #[test]
    fn a_narrow_terminal_wraps_the_widest_cells() {
        let mut table = Table::new(&["NODE", "STATE"]);
        table.row(["n1", "none: a fargate node has a network of its own"]);
        let text = table.text(Some(30)).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 30), "{text}");
        assert_eq!(
            lines[1..],
            ["n1     none: a fargate node", "       has a network of its", "       own"]
        );
        assert_eq!(table.text(None).to_string().lines().count(), 2);
    }

    #[test]
    fn a_tone_changes_no_column_and_ends_with_its_cell() {
        let mut table = Table::new(&["FROM", "DNS", "HOST"]);
        table.row([Cell::from("n1"), Cell::new(Tone::Bad, "FAIL"), Cell::from("ok")]);
        table.row([Cell::from("n2"), Cell::new(Tone::Good, "ok"), Cell::from("\u{2063}x\ny")]);
        let text = table.text(None);
        assert_eq!(
            text.to_string(),
            "FROM   DNS    HOST\nn1     FAIL   ok\nn2     ok     \\u{2063}x y\n"
        );
        let ansi = text.ansi();
        assert!(ansi.contains("n1     \x1b[1m\x1b[31mFAIL\x1b[0m   ok"), "{ansi:?}");
        assert!(ansi.contains("n2     \x1b[32mok\x1b[0m     \\u{2063}"), "{ansi:?}");
    }

    #[test]
    fn the_tone_of_a_wrapped_cell_does_not_reach_the_next_column() {
        let mut table = Table::new(&["A", "B"]);
        table.row([
            Cell::new(Tone::Bad, "one two three four five"),
            Cell::from("plain and more text"),
        ]);
        let ansi = table.text(Some(24)).ansi();
        let first = ansi.lines().nth(1).unwrap_or_default();
        let (toned, rest) = first.split_once("\x1b[0m").unwrap_or_default();
        assert!(toned.contains("one"), "{ansi:?}");
        assert!(rest.trim_start().starts_with("plain"), "{ansi:?}");
    }
}
