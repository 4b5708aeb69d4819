//! Progress on a terminal.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// A line on standard error that is overwritten. It appears only if the work takes long.
pub(super) struct Progress {
    begun: Instant,
    shown: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), shown: false }
    }

    pub(super) fn show(&mut self, text: &str) {
        if self.begun.elapsed() > PATIENCE && io::stderr().is_terminal() {
            self.shown = true;
            // There is no other output if standard error is closed.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(1);
