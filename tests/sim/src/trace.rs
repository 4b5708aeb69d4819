//! The last lines of a life, for people.

use config_model::Time;
use std::collections::VecDeque;

/// The last lines, or all of them.
#[derive(Debug)]
pub(crate) struct Trace {
    lines: VecDeque<String>,
    keep: usize,
    /// Lines are printed immediately.
    live: bool,
    began: Time,
}

impl Trace {
    /// Keeps that many lines; 0 costs nothing.
    pub(crate) fn new(keep: usize, live: bool, began: Time) -> Self {
        Self { lines: VecDeque::new(), keep, live, began }
    }

    /// Adds a line, if it is kept or printed.
    pub(crate) fn line(&mut self, now: Time, text: impl FnOnce() -> String) {
        if self.keep == 0 {
            return;
        }
        let since = now.since(self.began).0;
        let line = format!("{:>7}.{:03}  {}", since / 1000, since % 1000, text());
        if self.live {
            crate::print_line(&line);
        }
        if self.lines.len() == self.keep {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
