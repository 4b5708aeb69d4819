//! Reachability as a picture.

use super::{Allowed, Group, Matrix, table::Letters};
use std::fmt::Write as _;

impl Matrix {
    /// The picture: rows are senders, columns receivers. Color, a letter and the tooltip show the traffic that
    /// passes.
    pub fn svg(&self) -> String {
        let (rows, columns) = (self.sources.len(), self.destinations.len());
        let letters = Letters::of(self);
        let label = room(&self.sources);
        let head = room(&self.destinations);
        let keys = letters.iter().count() + 3;
        let longest = letters.iter().map(|(_, cell)| cell.to_string().chars().count()).max();
        let text = longest.unwrap_or(0).max(24) * CHARACTER + 48;
        let width = (label + columns * CELL + 24).max(text);
        let height = head + rows * CELL + 32 + keys * LINE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"12\">\n\
             <title>Who reaches whom</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        // Writing to a string cannot fail.
        for (place, group) in self.sources.iter().enumerate() {
            let (end, row) = (label - 8, head + place * CELL + 16);
            let name = escaped(&group.name);
            let _ =
                writeln!(svg, "<text x=\"{end}\" y=\"{row}\" text-anchor=\"end\">{name}</text>");
        }
        for (place, group) in self.destinations.iter().enumerate() {
            let (column, above) = (label + place * CELL + 16, head - 8);
            let name = escaped(&group.name);
            let _ = writeln!(
                svg,
                "<text x=\"{column}\" y=\"{above}\" transform=\"rotate(-90 {column} {above})\">{name}</text>"
            );
        }
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                self.cell(&mut svg, &letters, (row, column), cell, (label, head));
            }
        }
        legend(&mut svg, &letters, head + rows * CELL + 32);
        svg.push_str("</svg>\n");
        svg
    }

    fn cell(
        &self,
        svg: &mut String,
        letters: &Letters<'_>,
        (row, column): (usize, usize),
        cell: &Option<Allowed>,
        (label, head): (usize, usize),
    ) {
        let (x, y) = (label + column * CELL, head + row * CELL);
        let name = |groups: &[Group], place: usize| {
            groups.get(place).map_or(String::new(), |group| group.name.clone())
        };
        let traffic = cell.as_ref().map_or("-".to_owned(), Allowed::to_string);
        let title = escaped(&format!(
            "{} to {}: {traffic}",
            name(&self.sources, row),
            name(&self.destinations, column)
        ));
        let (fill, side) = (color(cell.as_ref()), CELL - 2);
        let _ = write!(
            svg,
            "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" \
             fill=\"{fill}\" stroke=\"#d0d0d0\"/>"
        );
        if let Some(some) = cell.as_ref().filter(|cell| !cell.is_all() && !cell.is_none()) {
            let (x, y, letter) = (x + side / 2, y + 15, letters.letter(some));
            let _ = write!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{letter}</text>");
        }
        svg.push_str("</g>\n");
    }
}

fn room(groups: &[Group]) -> usize {
    let names = groups.iter().map(|group| group.name.chars().count());
    names.max().unwrap_or(0).max(12) * CHARACTER + 16
}

fn legend(svg: &mut String, letters: &Letters<'_>, top: usize) {
    let fixed =
        [(ALL, "everything passes"), (NOTHING, "nothing passes"), (ITSELF, "a pod and itself")];
    let fixed = fixed.map(|(fill, text)| (fill, String::new(), text.to_owned()));
    let some = letters.iter().map(|(letter, cell)| (SOME, letter, cell.to_string()));
    for (line, (fill, letter, text)) in fixed.into_iter().chain(some).enumerate() {
        let y = top + line * LINE;
        let (base, text) = (y + 12, escaped(&text));
        let _ = writeln!(
            svg,
            "<rect x=\"12\" y=\"{y}\" width=\"16\" height=\"16\" fill=\"{fill}\" stroke=\"#d0d0d0\"/>\
             <text x=\"20\" y=\"{base}\" text-anchor=\"middle\">{letter}</text>\
             <text x=\"36\" y=\"{base}\">{text}</text>"
        );
    }
}

fn color(cell: Option<&Allowed>) -> &'static str {
    match cell {
        None => ITSELF,
        Some(cell) if cell.is_all() => ALL,
        Some(cell) if cell.is_none() => NOTHING,
        Some(_) => SOME,
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Distinguishable also for readers with red-green color blindness.
const ALL: &str = "#4b9cd3";
const SOME: &str = "#f5c242";
const NOTHING: &str = "#f4f4f4";
const ITSELF: &str = "#dddddd";
const CELL: usize = 24;
const LINE: usize = 20;
/// Largest width of a character.
const CHARACTER: usize = 8;
