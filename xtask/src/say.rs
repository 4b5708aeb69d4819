//! Output for people: progress and verdicts on standard error, results on standard output.

use anstyle::{AnsiColor, Style};
use std::{
    io::Write as _,
    time::{Duration, Instant},
};

/// `anstream` removes the color if standard error is no terminal or NO_COLOR is set.
fn paint(color: AnsiColor, text: &str) -> String {
    let style = Style::new().bold().fg_color(Some(color.into()));
    format!("{style}{text}{style:#}")
}

fn line(text: &str) {
    // A closed reader does not stop the command.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints the start of a step.
pub(crate) fn step(text: &str) {
    line(&format!("{} {text}", paint(AnsiColor::Cyan, "==>")));
}

/// Prints a detail of a step.
pub(crate) fn note(text: &str) {
    line(&format!("    {text}"));
}

/// The output of a program, in one piece.
pub(crate) fn note_all(title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let mut text = format!("    --- {title}\n");
    for line in lines {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// A step went well.
pub(crate) fn good(text: &str) {
    line(&format!("{} {text}", paint(AnsiColor::Green, " ok")));
}

/// Prints a failure.
pub(crate) fn fail(text: &str) {
    line(&format!("{} {text}", paint(AnsiColor::Red, "error:")));
}

/// Prints a result, for people or for a pipe.
pub(crate) fn result(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// The time since `start`, as text with units.
pub(crate) fn took(start: Instant) -> String {
    let took: Duration = start.elapsed();
    if took < Duration::from_secs(90) {
        format!("{:.1} s", took.as_secs_f64())
    } else {
        format!("{} min {} s", took.as_secs() / 60, took.as_secs() % 60)
    }
}
