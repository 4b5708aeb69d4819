//! Test programs: built once for all lanes, and run side by side.
//!
//! One `cargo build` for everything unifies the features of the selected crates, so that a third-party crate is
//! compiled once, and not once for each lane.

use crate::{
    cargo, layers,
    libtest::{Ran, Reader},
    processes, say,
};
use anyhow::{Context as _, Result};
use cargo_metadata::Message;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{OsStr, OsString},
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// A program of tests, as cargo built it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestProgram {
    /// The crate.
    pub(crate) krate: String,
    /// The target: the crate's library or program, or a file of its `tests`.
    pub(crate) target: String,
    executable: PathBuf,
    /// The crate's folder, in which cargo runs its tests.
    folder: PathBuf,
}

impl TestProgram {
    /// The program's file.
    pub(crate) fn executable(&self) -> &Path {
        &self.executable
    }

    /// The folder in which it runs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The result of one build.
#[derive(Default)]
pub(crate) struct Built {
    tests: BTreeSet<TestProgram>,
    /// Programs by name, where the build was asked for them.
    programs: BTreeMap<String, PathBuf>,
    /// True if everything compiled. Otherwise the programs of the compiled crates exist anyway.
    complete: bool,
}

/// The targets of each selected crate that are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    Tests,
    TestsAndPrograms,
}

/// Builds these crates' tests; errors of the compiler are printed. With the programs, it builds the whole workspace.
///
/// # Errors
/// When cargo cannot be started or its messages cannot be read.
pub(crate) fn build(crates: &BTreeSet<&str>, targets: Targets) -> Result<Built> {
    let started = Instant::now();
    say::step(&format!("building the tests of {} crates", crates.len()));
    let mut cargo = cargo::command();
    cargo.args(["build", "--locked", "--keep-going", "--tests"]);
    if targets == Targets::TestsAndPrograms {
        cargo.arg("--bins");
    }
    cargo.arg("--message-format=json-render-diagnostics");
    match targets {
        Targets::Tests => cargo.args(crates.iter().flat_map(|krate| ["-p", krate])),
        // Features are those of the whole workspace, so that clippy's and these builds agree.
        Targets::TestsAndPrograms => cargo.arg("--workspace"),
    };
    cargo.stdout(Stdio::piped());
    let mut child = cargo.spawn().context("start cargo build")?;
    let stdout = child.stdout.take().context("cargo build has no output")?;
    let names = layers::names_of_packages()?;
    let mut built = Built::default();
    for message in Message::parse_stream(BufReader::new(stdout)) {
        let Message::CompilerArtifact(artifact) = message.context("read cargo's messages")? else {
            continue;
        };
        let Some(executable) = artifact.executable else { continue };
        let name = artifact.target.name.clone();
        if !artifact.profile.test {
            built.programs.insert(name, executable.into());
            continue;
        }
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        let krate = names.get(&artifact.package_id).context("an artifact is of a known package")?;
        built.tests.insert(TestProgram {
            krate: krate.clone(),
            target: name,
            executable: executable.into(),
            folder: folder.into(),
        });
    }
    built.complete = child.wait().context("wait for cargo build")?.success();
    say::good(&format!("{} test programs, built in {}", built.tests.len(), say::took(started)));
    Ok(built)
}

impl Built {
    /// Returns true if every crate compiled.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The programs that were built along with the tests.
    pub(crate) fn programs(&self) -> &BTreeMap<String, PathBuf> {
        &self.programs
    }

    /// The test programs of a crate, or of one of its targets alone.
    pub(crate) fn tests(&self, krate: &str, target: Option<&str>) -> Vec<TestProgram> {
        let is_wanted = |of: &&TestProgram| {
            of.krate == krate && target.is_none_or(|target| of.target == target)
        };
        self.tests.iter().filter(is_wanted).cloned().collect()
    }
}

/// A run of test programs.
pub(crate) struct Run<'a> {
    pub(crate) programs: Vec<TestProgram>,
    /// The environment that the tests need.
    pub(crate) env: &'a [(&'a str, OsString)],
    /// Arguments of libtest, a filter for one.
    pub(crate) args: &'a [&'a str],
    /// Number of programs that run at a time.
    pub(crate) side_by_side: usize,
    /// The targets that run before the others, each without another one beside it.
    pub(crate) alone: &'a [&'a str],
}

impl Run<'_> {
    /// Runs them all. Failed tests run once more, alone, if they are few: a test that then passes is unsteady.
    ///
    /// # Errors
    /// When a program cannot be started.
    pub(crate) fn run(&self) -> Result<Ran> {
        let mut sum = Ran::default();
        let mut failed = Vec::new();
        for (program, ran) in self.run_all()? {
            failed.extend(ran.named_failures().into_iter().map(|test| (program.clone(), test)));
            sum.add(ran);
        }
        if sum.failed.len() <= SECOND_CHANCES {
            for (program, test) in failed {
                say::step(&format!("{test} failed: once more, alone"));
                let again =
                    self.run_one(&program, &["--exact", &test, "--test-threads=1"], true)?;
                if again.passed > 0 && again.failed.is_empty() {
                    sum.steady(&test);
                }
            }
        }
        Ok(sum)
    }

    fn run_all(&self) -> Result<Vec<(TestProgram, Ran)>> {
        let is_first = |of: &TestProgram| self.alone.contains(&of.target.as_str());
        let (first, others): (Vec<_>, Vec<_>) = self.programs.iter().cloned().partition(is_first);
        let mut all = Vec::new();
        for program in first {
            let ran = self.run_one(&program, self.args, true)?;
            all.push((program, ran));
        }
        let is_alone = self.side_by_side <= 1 || others.len() <= 1;
        let queue = Mutex::new(VecDeque::from(others));
        let (results, ended) = mpsc::channel();
        let others: Result<Vec<_>> = thread::scope(|scope| {
            for _ in 0..self.side_by_side.max(1) {
                let (results, queue) = (results.clone(), &queue);
                scope.spawn(move || {
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(program) = next else { break };
                        let ran = self.run_one(&program, self.args, is_alone);
                        if results.send((program, ran)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(results);
            ended.iter().map(|(program, ran)| Ok((program, ran?))).collect()
        });
        all.extend(others?);
        Ok(all)
    }

    /// Runs one program; its output is shown line by line if it runs alone, at its end otherwise.
    fn run_one(&self, program: &TestProgram, args: &[&str], is_alone: bool) -> Result<Ran> {
        let TestProgram { krate, target, .. } = program;
        say::step(&format!("{krate}: {target}"));
        let started = Instant::now();
        // Skip lines are printed by tests that pass, so their output must not be captured.
        let mut command = Command::new(&program.executable);
        command.arg("--nocapture").args(args).current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder).envs(processes::tag());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start the tests of {krate}"))?;
        let stdout = child.stdout.take().context("a test program has no output")?;
        let stderr = child.stderr.take().context("a test program has no second output")?;
        let (lines, printed) = mpsc::channel();
        let readers = [
            read_lines(Stream::Output, stdout, lines.clone()),
            read_lines(Stream::Errors, stderr, lines),
        ];
        let (mut reader, mut kept) = (Reader::default(), Vec::new());
        for (stream, line) in printed {
            match stream {
                Stream::Output => reader.read_output(&line),
                Stream::Errors => reader.read_error(&line),
            }
            match is_alone {
                true => say::note(&line),
                false => kept.push(line),
            }
        }
        for thread in readers {
            thread.join().map_err(|_| anyhow::anyhow!("a reader of the tests' output panicked"))?;
        }
        let status = child.wait().with_context(|| format!("wait for the tests of {krate}"))?;
        say::note_all(&format!("{krate}: {target}"), &kept);
        if started.elapsed() > WORTH_A_LINE {
            say::note(&format!("{krate}: {target} took {}", say::took(started)));
        }
        Ok(reader.end(&format!("{krate} {target}"), status.success()))
    }
}

/// More failed tests than these do not fail by chance.
const SECOND_CHANCES: usize = 3;
const WORTH_A_LINE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
enum Stream {
    Output,
    Errors,
}

fn read_lines(
    stream: Stream,
    from: impl Read + Send + 'static,
    to: mpsc::Sender<(Stream, String)>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if to.send((stream, String::from_utf8_lossy(&line).into_owned())).is_err() {
                break;
            }
        }
    })
}

/// One variable of a run's environment.
pub(crate) fn variable(name: &str, value: impl AsRef<OsStr>) -> (&str, OsString) {
    (name, value.as_ref().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, text: &str) -> (tempfile::TempDir, TestProgram) {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let executable = folder.path().join(name);
        std::fs::write(&executable, format!("#!/bin/sh\n{text}")).expect("a script");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&executable, mode).expect("a mode");
        let program = TestProgram {
            krate: "made-up".to_owned(),
            target: name.to_owned(),
            executable,
            folder: folder.path().to_owned(),
        };
        (folder, program)
    }

    fn run(programs: Vec<TestProgram>, side_by_side: usize) -> Ran {
        Run { programs, env: &[], args: &[], side_by_side, alone: &["first"] }.run().expect("a run")
    }

    #[test]
    fn programs_that_run_side_by_side_are_counted_together() {
        let text = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'";
        let (folders, programs): (Vec<_>, Vec<_>) =
            ["one", "two", "three"].map(|name| script(name, text)).into_iter().unzip();
        let ran = run(programs, 2);
        assert_eq!((ran.passed, ran.failed.len(), folders.len()), (6, 0, 3));
    }

    /// Each other program fails if the first one has not ended.
    #[test]
    fn a_program_that_runs_alone_ends_before_the_others_start() {
        let ended = tempfile::tempdir().expect("a folder");
        let file = ended.path().join("ended");
        let passes = "echo 'test result: ok. 1 passed; 0 failed'";
        let first = script("first", &format!("sleep 0.2; touch {}; {passes}", file.display()));
        let other = |name| script(name, &format!("test -e {} && {passes}", file.display()));
        let (folders, programs): (Vec<_>, Vec<_>) =
            [other("a"), first, other("z")].into_iter().unzip();
        let ran = run(programs, 3);
        assert_eq!((ran.passed, ran.failed.len(), folders.len()), (3, 0, 3));
    }

    #[test]
    fn a_test_that_passes_alone_is_unsteady() {
        let text = "case \"$*\" in *--exact*) echo 'test result: ok. 1 passed; 0 failed;'; exit 0;; esac\n\
                    printf 'failures:\\n    a_rule\\n\\ntest result: FAILED. 1 passed; 1 failed;\\n'; exit 101";
        let (_folder, program) = script("unsteady", text);
        let ran = run(vec![program], 1);
        assert_eq!((ran.passed, ran.failed.len()), (2, 0));
        assert_eq!(ran.unsteady, ["a_rule"]);
    }

    #[test]
    fn a_program_that_crashes_has_failed() {
        let (_folder, program) = script("crashed", "kill -SEGV $$");
        let ran = run(vec![program], 1);
        assert_eq!((ran.passed, ran.failed.len()), (0, 1));
    }
}
