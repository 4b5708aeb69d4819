//! Runs of `cargo test`, read as they are shown.

use crate::{binaries, say};
use anyhow::{Context as _, Result};
use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

/// The tests of some crates, with what they need in the environment.
pub(crate) struct Tests<'a> {
    pub(crate) crates: &'a [&'a str],
    pub(crate) env: &'a [(&'a str, &'a OsStr)],
}

impl Tests<'_> {
    /// Builds them, which shows its own progress; whether that worked.
    pub(crate) fn build(&self) -> Result<bool> {
        let built = self.cargo(&["--no-run"]).stdout(Stdio::from(std::io::stderr())).status();
        Ok(built.context("start cargo test")?.success())
    }

    /// Runs them, with further words for libtest, and shows what they print.
    pub(crate) fn run(&self, libtest: &[&str]) -> Result<Ran> {
        // Skip lines are printed by tests that pass, so their output must not be caught.
        let mut cargo = self.cargo(&["--", "--nocapture"]);
        cargo.args(libtest).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cargo.spawn().context("start cargo test")?;
        let stdout = child.stdout.take().context("cargo test has no output")?;
        let stderr = child.stderr.take().context("cargo test has no second output")?;
        let errors = std::thread::spawn(move || {
            let mut errors = Errors::default();
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                say::note(&line);
                errors.read(&line);
            }
            errors
        });
        let mut ran = Ran::default();
        for line in BufReader::new(stdout).lines() {
            let line = line.context("read the output of cargo test")?;
            say::note(&line);
            ran.read(&line);
        }
        let errors = errors.join();
        let errors = errors.map_err(|_| anyhow::anyhow!("reading cargo test's errors failed"))?;
        let status = child.wait().context("wait for cargo test")?;
        // Programs that ended before they could tell which of their tests failed.
        let silent = errors.failed_programs.saturating_sub(ran.failed_programs);
        ran.failed.extend((0..silent).map(|_| None));
        if !status.success() && ran.failed.is_empty() {
            ran.failed.push(None);
        }
        ran.said = errors.lines;
        Ok(ran)
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut cargo = binaries::cargo();
        cargo.args(["test", "--locked", "--no-fail-fast"]);
        for krate in self.crates {
            cargo.args(["-p", krate]);
        }
        cargo.args(args).envs(self.env.iter().copied());
        cargo
    }
}

/// What came of a run.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) passed: u64,
    /// The names of those that failed, where libtest told them.
    pub(crate) failed: Vec<Option<String>>,
    /// Those that failed, and passed when they ran by themselves.
    pub(crate) unsteady: Vec<String>,
    pub(crate) skipped: Vec<String>,
    /// The last errors that were told.
    pub(crate) said: Vec<String>,
    /// The tests libtest listed under `failures:` and has not yet counted; none outside of such a list.
    pub(crate) listed: Option<Vec<String>>,
    /// The programs of tests that told of failures.
    pub(crate) failed_programs: usize,
}

impl Ran {
    /// Takes from a line of libtest what counts.
    pub(crate) fn read(&mut self, line: &str) {
        if let Some(skip) = line.find("SKIP ").map(|at| &line[at + 5..]) {
            self.skipped.push(skip.to_owned());
        }
        if line == "failures:" {
            self.listed = Some(Vec::new());
        }
        if let (Some(listed), Some(name)) = (&mut self.listed, line.strip_prefix("    ")) {
            listed.push(name.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |word: &str| -> u64 {
            result
                .split([';', '.'])
                .filter_map(|part| part.trim().strip_suffix(word))
                .find_map(|n| n.trim().parse().ok())
                .unwrap_or(0)
        };
        self.passed += number("passed");
        self.failed_programs += usize::from(result.starts_with("FAILED"));
        let mut names = self.listed.take().unwrap_or_default().into_iter();
        self.failed.extend((0..number("failed")).map(|_| names.next()));
    }

    /// Of those that failed, whom to run again.
    pub(crate) fn named_failures(&self) -> Vec<String> {
        self.failed.iter().flatten().cloned().collect()
    }

    /// The test passed when it ran by itself.
    pub(crate) fn steady(&mut self, test: &str) {
        if let Some(at) = self.failed.iter().position(|failed| failed.as_deref() == Some(test)) {
            self.failed.remove(at);
            self.passed += 1;
            self.unsteady.push(test.to_owned());
        }
    }
}

/// The errors and panics among what tests print.
#[derive(Default)]
struct Errors {
    lines: Vec<String>,
    /// How many more lines belong to the last.
    go_on: usize,
    /// The programs that failed, as cargo counts them.
    failed_programs: usize,
}

/// An error's chain of causes, or what an assertion compared, has about as many lines.
const OF_ONE: usize = 12;
/// More of them tell no more.
const OF_ALL: usize = 60;

impl Errors {
    fn read(&mut self, line: &str) {
        if line.starts_with("Error: ") || line.contains(" panicked at ") {
            self.go_on = OF_ONE;
        } else if ["Stack backtrace:", "stack backtrace:", "note: run with"]
            .iter()
            .any(|end| line.starts_with(end))
        {
            self.go_on = 0;
        }
        if let Some(count) = line.strip_prefix("error: ").and_then(targets_failed) {
            self.failed_programs = count;
        }
        if self.go_on > 0 {
            self.go_on -= 1;
            let too_many = (self.lines.len() + 1).saturating_sub(OF_ALL);
            self.lines.drain(..too_many);
            self.lines.push(line.to_owned());
        }
    }
}

/// How many programs cargo says failed, in a line of its own.
fn targets_failed(said: &str) -> Option<usize> {
    let (count, rest) = said.split_once(' ')?;
    matches!(rest, "target failed:" | "targets failed:").then(|| count.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_libtest_are_counted() {
        let mut ran = Ran::default();
        ran.read(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        // Words of a test between the two lists that libtest prints are no names.
        let failing = [
            "failures:",
            "",
            "failures:",
            "    netlink::a_rule",
            "    a_table",
            "",
            "test result: FAILED. 3 passed; 3 failed; 0 ignored; 0 measured",
            "SKIP kernel: needs root",
        ];
        for line in failing {
            ran.read(line);
        }
        assert_eq!((ran.passed, ran.skipped.len(), ran.failed_programs), (15, 1, 1));
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(ran.failed, [named("netlink::a_rule"), named("a_table"), None]);
        ran.steady("a_table");
        ran.steady("of_another_run");
        assert_eq!((ran.passed, ran.unsteady.as_slice()), (16, ["a_table".to_owned()].as_slice()));
        assert_eq!(ran.failed, [named("netlink::a_rule"), None]);
    }

    #[test]
    fn of_what_tests_print_the_errors_are_kept() {
        let mut errors = Errors::default();
        let printed = [
            "2026-01-01 INFO a daemon starts",
            "Error: the pod has no address",
            "",
            "Caused by:",
            "    the subnet is full",
            "Stack backtrace:",
            "   0: anyhow::error",
            "thread 'a_rule' (17) panicked at tests/rule.rs:4:9:",
            "no rule",
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            "ferrule-lab: taking the lab down",
        ];
        for line in printed {
            errors.read(line);
        }
        let kept = [&printed[1..5], &printed[7..9]].concat();
        assert_eq!(errors.lines, kept);
        assert_eq!(errors.failed_programs, 0);
        errors.read("error: 2 targets failed:");
        errors.read("    `-p tests-lab --test drift`");
        errors.read("error: 1 target is missing");
        assert_eq!(errors.failed_programs, 2);
        let long = ["thread 'long' panicked at tests/long.rs:1:1:"].into_iter().chain([""; 400]);
        long.for_each(|line| errors.read(line));
        assert_eq!(errors.lines.len(), kept.len() + OF_ONE);
    }
}
