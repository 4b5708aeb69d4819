//! The output of libtest, read line by line.

/// The result of one or more test programs.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) passed: u64,
    /// The failed tests by name; none for a failure that libtest does not name.
    pub(crate) failed: Vec<Option<String>>,
    /// Tests that failed, and passed when they ran alone.
    pub(crate) unsteady: Vec<String>,
    pub(crate) skipped: Vec<String>,
    /// The last error lines of failed programs.
    pub(crate) errors: Vec<String>,
    /// The tests libtest listed under `failures:` and has not yet counted; none outside of such a list.
    pub(crate) listed: Option<Vec<String>>,
}

impl Ran {
    /// Reads a line of libtest's standard output.
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
        let mut names = self.listed.take().unwrap_or_default().into_iter();
        self.failed.extend((0..number("failed")).map(|_| names.next()));
    }

    /// The failed tests that can run again by name.
    pub(crate) fn named_failures(&self) -> Vec<String> {
        self.failed.iter().flatten().cloned().collect()
    }

    /// Counts a failed test as unsteady: it passed when it ran alone.
    /// Adds the result of another program.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.unsteady.extend(other.unsteady);
        self.skipped.extend(other.skipped);
        self.errors.extend(other.errors);
    }

    pub(crate) fn steady(&mut self, test: &str) {
        if let Some(at) = self.failed.iter().position(|failed| failed.as_deref() == Some(test)) {
            self.failed.remove(at);
            self.passed += 1;
            self.unsteady.push(test.to_owned());
        }
    }
}

/// Reads both streams of one test program.
#[derive(Default)]
pub(crate) struct Reader {
    ran: Ran,
    errors: Errors,
}

impl Reader {
    pub(crate) fn read_output(&mut self, line: &str) {
        self.ran.read(line);
    }

    pub(crate) fn read_error(&mut self, line: &str) {
        self.errors.read(line);
    }

    /// The result, once the program has exited. A program that crashes has failed, whatever it printed.
    pub(crate) fn end(self, program: &str, success: bool) -> Ran {
        let Self { mut ran, errors } = self;
        if !success && ran.failed.is_empty() {
            ran.failed.push(None);
        }
        if !ran.failed.is_empty() {
            ran.errors.push(format!("{program}:"));
            ran.errors.extend(errors.lines);
        }
        ran
    }
}

/// The errors and panics among the lines that a test program prints.
#[derive(Default)]
struct Errors {
    lines: Vec<String>,
    /// Number of further lines that belong to the last error.
    left: usize,
}

/// Lines of one error: its chain of causes, or the two sides of an assertion.
const OF_ONE: usize = 12;
/// Lines of all errors of one program; the last are kept.
const OF_ALL: usize = 60;

impl Errors {
    fn read(&mut self, line: &str) {
        if line.starts_with("Error: ") || line.contains(" panicked at ") {
            self.left = OF_ONE;
        } else if ["Stack backtrace:", "stack backtrace:", "note: run with"]
            .iter()
            .any(|end| line.starts_with(end))
        {
            self.left = 0;
        }
        if self.left > 0 {
            self.left -= 1;
            let too_many = (self.lines.len() + 1).saturating_sub(OF_ALL);
            self.lines.drain(..too_many);
            self.lines.push(line.to_owned());
        }
    }
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
        // The output of a test between libtest's two lists holds no names.
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
        assert_eq!((ran.passed, ran.skipped.len()), (15, 1));
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(ran.failed, [named("netlink::a_rule"), named("a_table"), None]);
        ran.steady("a_table");
        ran.steady("of_another_run");
        assert_eq!((ran.passed, ran.unsteady.as_slice()), (16, ["a_table".to_owned()].as_slice()));
        assert_eq!(ran.failed, [named("netlink::a_rule"), None]);
    }

    #[test]
    fn errors_and_panics_are_kept() {
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
        let long = ["thread 'long' panicked at tests/long.rs:1:1:"].into_iter().chain([""; 400]);
        long.for_each(|line| errors.read(line));
        assert_eq!(errors.lines.len(), kept.len() + OF_ONE);
    }
}
