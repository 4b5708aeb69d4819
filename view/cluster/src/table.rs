//! Text tables with columns as wide as their widest cell.

use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let length = |cell: &String| cell.chars().count();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("   ");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other_and_no_line_ends_in_blanks() {
        let mut table = Table::new(&["NODE", "FREE"]);
        table.row(["a-long-name", "1"]);
        table.row(["b", ""]);
        assert_eq!(table.to_string(), "NODE          FREE\na-long-name   1\nb\n");
    }
}
