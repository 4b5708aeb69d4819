//! Reachability as a table for people.

use super::{Allowed, Group, Matrix};
use std::fmt;

/// Results that are neither all nor nothing, each with its letter, in the order of their first place.
pub(super) struct Letters<'a>(Vec<&'a Allowed>);

impl<'a> Letters<'a> {
    pub(super) fn of(matrix: &'a Matrix) -> Self {
        let mut some: Vec<&Allowed> = Vec::new();
        for cell in matrix.cells.iter().flatten().flatten() {
            if !cell.is_all() && !cell.is_none() && !some.contains(&cell) {
                some.push(cell);
            }
        }
        Self(some)
    }

    /// a to z, then a1 and so on.
    pub(super) fn letter(&self, cell: &Allowed) -> String {
        let place = self.0.iter().position(|some| *some == cell).unwrap_or(0);
        let letter = char::from(b'a' + u8::try_from(place % 26).unwrap_or(0));
        match place / 26 {
            0 => letter.to_string(),
            round => format!("{letter}{round}"),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (String, &'a Allowed)> + '_ {
        self.0.iter().map(|cell| (self.letter(cell), *cell))
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = Letters::of(self);
        let mark = |cell: &Option<Allowed>| match cell {
            None => "-".to_owned(),
            Some(cell) if cell.is_all() => "+".to_owned(),
            Some(cell) if cell.is_none() => ".".to_owned(),
            Some(cell) => letters.letter(cell),
        };
        let widest = |groups: &[Group]| {
            groups.iter().map(|group| group.name.chars().count()).max().unwrap_or(0)
        };
        let (count, name) = (self.destinations.len(), widest(&self.sources).max(CORNER.len()));
        let number = count.to_string().len();
        let marks = self.cells.iter().flatten().map(|cell| mark(cell).len());
        let width = marks.max().unwrap_or(0).max(number);
        write!(f, "{CORNER:name$} ")?;
        (1..=count).try_for_each(|column| write!(f, " {column:>width$}"))?;
        writeln!(f)?;
        for (group, cells) in self.sources.iter().zip(&self.cells) {
            write!(f, "{:name$} ", group.name)?;
            cells.iter().try_for_each(|cell| write!(f, " {:>width$}", mark(cell)))?;
            writeln!(f)?;
        }
        writeln!(f)?;
        for (column, group) in (1..).zip(&self.destinations) {
            writeln!(f, "to {column:>number$}: {}", group.name)?;
        }
        writeln!(f, "+ everything passes   . nothing passes   - a pod and itself")?;
        letters.iter().try_for_each(|(letter, cell)| writeln!(f, "{letter} {cell}"))
    }
}

const CORNER: &str = "from \\ to";
