//! Progress of long work, on standard error.

use crate::output::plain;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal as _, Write},
    time::{Duration, Instant},
};

/// A line with a bar on a terminal, which disappears at the end. Elsewhere a line for each stage. Both appear only if
/// the work takes long.
pub(crate) struct Progress {
    begun: Instant,
    patience: Duration,
    sink: Sink,
}

enum Sink {
    Nothing,
    /// `None` until the work takes long.
    Terminal(Option<ProgressBar>),
    Lines {
        out: Box<dyn Write + Send>,
        /// The last printed stage.
        stage: String,
    },
}

/// The finished part of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Unknown,
    /// The number of finished parts, of an unknown number.
    SoFar(usize),
    Of(usize, usize),
}

impl Progress {
    pub(crate) fn new() -> Self {
        let sink = match io::stderr().is_terminal() {
            true => Sink::Terminal(None),
            false => Sink::Lines { out: Box::new(io::stderr()), stage: String::new() },
        };
        Self { begun: Instant::now(), patience: PATIENCE, sink }
    }

    /// Returns progress without output.
    pub(crate) fn hidden() -> Self {
        Self { begun: Instant::now(), patience: PATIENCE, sink: Sink::Nothing }
    }

    /// Shows a stage and its finished part.
    pub(crate) fn show(&mut self, stage: &str, done: Done) {
        if self.begun.elapsed() < self.patience {
            return;
        }
        match &mut self.sink {
            Sink::Nothing => {}
            Sink::Terminal(bar) => draw(bar.get_or_insert_with(new_bar), stage, done),
            Sink::Lines { stage: printed, .. } if printed == stage => {}
            Sink::Lines { out, stage: printed } => {
                stage.clone_into(printed);
                let of = match done {
                    Done::Unknown | Done::SoFar(_) => String::new(),
                    Done::Of(done, all) => format!(": {done} of {all}"),
                };
                // There is no other output if standard error is closed.
                let _ = writeln!(out, "{}{of}", plain(stage));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Sink::Terminal(Some(bar)) = &self.sink {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.enable_steady_tick(TICK);
    bar
}

fn draw(bar: &ProgressBar, stage: &str, done: Done) {
    let stage = plain(stage);
    let (template, message) = match done {
        Done::Unknown => ("{spinner} {wide_msg}", stage),
        Done::SoFar(count) => ("{spinner} {wide_msg}", format!("{stage}: {count}")),
        Done::Of(done, all) => {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
            ("{spinner} [{bar:20}] {pos} of {len} {wide_msg}", stage)
        }
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> ").tick_chars("|/-\\ "));
    }
    bar.set_message(message);
}

const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(patience: Duration) -> (Progress, Kept) {
        let kept = Kept::default();
        let sink = Sink::Lines { out: Box::new(kept.clone()), stage: String::new() };
        (Progress { begun: Instant::now(), patience, sink }, kept)
    }

    #[test]
    fn without_a_terminal_each_stage_is_one_line() {
        let (mut progress, kept) = lines(Duration::ZERO);
        progress.show("reading pods", Done::SoFar(500));
        progress.show("reading pods", Done::SoFar(1000));
        progress.show("calling daemons", Done::Of(0, 12));
        progress.show("calling daemons", Done::Of(1, 12));
        progress.show("making\x1b[2J", Done::Unknown);
        let printed = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(printed, "reading pods\ncalling daemons: 0 of 12\nmaking\\u{1b}[2J\n");
    }

    #[test]
    fn short_work_shows_no_progress() {
        let (mut progress, kept) = lines(Duration::MAX);
        progress.show("reading pods", Done::Unknown);
        drop(progress);
        assert!(kept.0.lock().unwrap().is_empty());
    }
}
