//! `cargo xtask fuzz`: searches for inputs that break the properties of `tests/fuzz`.
//!
//! libFuzzer runs on stable Rust. The instrumentation is a pass of LLVM that `-C passes` adds for the target alone, so
//! build scripts and macros stay without it. Two folders are below the build folder: `fuzz/corpus`, where runs continue
//! from each other, and `fuzz/found`.

use crate::{cargo, deps, generate, say};
use anyhow::{Context as _, Result, bail};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of search for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// One target only; without a name, one after the other
    #[arg(long)]
    target: Option<String>,
    /// Afterwards replace the corpus of the repository by the fewest inputs with the same reach
    #[arg(long)]
    keep: bool,
}

/// The flags that instrument every crate below the fuzzer.
const FLAGS: &str = "-Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Longer inputs are slower and reach nothing further.
const LONGEST: &str = "-max_len=4096";
/// The kept inputs reach every edge. Counters and comparisons matter only for the search.
const EDGES_ALONE: [&str; 2] = ["-use_counters=0", "-use_cmp=0"];
/// The interval between progress lines.
const PACE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    deps::install(&[deps::Need::Linker, deps::Need::Cxx])?;
    let corpus = generate::root().join("tests/fuzz/corpus");
    let mut targets = folders(&corpus)?;
    if let Some(wanted) = &args.target {
        let known = targets.join(", ");
        targets.retain(|name| name == wanted);
        if targets.is_empty() {
            bail!("no target is named {wanted:?}; the targets are {known}");
        }
    }
    let fuzzer = build()?;
    let mut found = 0;
    for name in &targets {
        let target = Target { fuzzer: &fuzzer, name, kept: corpus.join(name) };
        let figures = target.search(args.seconds)?;
        target.log(&figures)?;
        found += usize::from(figures.found);
        if args.keep && !figures.found {
            target.keep()?;
        }
    }
    say::result(&format!("{} targets, {found} with a finding", targets.len()));
    Ok(if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn folders(corpus: &Path) -> Result<Vec<String>> {
    let context = || format!("read {}", corpus.display());
    let entries = fs::read_dir(corpus).with_context(context)?.collect::<Result<Vec<_>, _>>();
    let names = entries.with_context(context)?.into_iter().map(|entry| entry.file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf> {
    say::step("building the fuzzer (instrumented)");
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let status = cargo::command()
        .args(["build", "--locked", "-q", "--profile", "sim", "--target", &triple])
        .args(["-p", "tests-fuzz", "--features", "guided"])
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("start cargo build")?;
    if !status.success() {
        bail!("cargo build of tests-fuzz failed; its output is above");
    }
    Ok(cargo::target_dir().join(triple).join("sim").join("ferrule-fuzz"))
}

/// The result of a search.
struct Figures {
    seconds: u64,
    executions: u64,
    /// Edges of the program that some input reached.
    reached: u64,
    inputs: u64,
    found: bool,
}

struct Target<'a> {
    fuzzer: &'a Path,
    name: &'a str,
    kept: PathBuf,
}

impl Target<'_> {
    fn folder(&self, what: &str) -> Result<PathBuf> {
        let folder = cargo::target_dir().join("fuzz").join(what).join(self.name);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    fn command(&self, folders: &[&Path]) -> Command {
        let mut command = Command::new(self.fuzzer);
        command
            .env("FERRULE_FUZZ_TARGET", self.name)
            .env("RUST_BACKTRACE", "0")
            .arg(LONGEST)
            .args(folders);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn search(&self, seconds: u32) -> Result<Figures> {
        say::step(&format!("{}: {seconds} s", self.name));
        let (corpus, found) = (self.folder("corpus")?, self.folder("found")?);
        let started = Instant::now();
        let mut child = self
            .command(&[&corpus, &self.kept])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", found.display()))
            .args(["-use_value_profile=1", "-print_final_stats=1", "-timeout=10"])
            .spawn()
            .with_context(|| format!("start {}", self.fuzzer.display()))?;
        let stderr = child.stderr.take().context("the fuzzer has no output")?;
        let mut figures =
            Figures { seconds: 0, executions: 0, reached: 0, inputs: 0, found: false };
        let (mut tail, mut told) = (Vec::new(), Instant::now());
        for line in BufReader::new(stderr).split(b'\n') {
            let line = line.context("read the fuzzer's output")?;
            let line = String::from_utf8_lossy(&line).into_owned();
            if !figures.read(&line) {
                tail.push(line);
            } else if told.elapsed() >= PACE {
                told = Instant::now();
                say::note(&format!("{} at {}", figures.text(), say::took(started)));
            }
        }
        figures.found = !child.wait().context("wait for the fuzzer")?.success();
        figures.seconds = started.elapsed().as_secs();
        if figures.found {
            tail.iter().rev().take(40).rev().for_each(|line| say::note(line));
            say::fail(&format!(
                "{}: an input breaks a property: see above, and {}. Put it into {}: from then on \
                 every test run tries it",
                self.name,
                found.display(),
                self.kept.display()
            ));
        } else {
            say::good(&format!("{}: {}", self.name, figures.text()));
        }
        Ok(figures)
    }

    /// Appends one line per search, so that the total can be computed.
    fn log(&self, figures: &Figures) -> Result<()> {
        let path = cargo::target_dir().join("fuzz").join("searches.tsv");
        let context = || format!("write {}", path.display());
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(&path).with_context(context)?;
        let Figures { seconds, executions, reached, inputs, found } = figures;
        writeln!(file, "{}\t{seconds}\t{executions}\t{reached}\t{inputs}\t{found}", self.name)
            .with_context(context)
    }

    /// Replaces the kept inputs by the fewest inputs with the same reach.
    fn keep(&self) -> Result<()> {
        let (corpus, fewest) = (self.folder("corpus")?, self.folder("fewest")?);
        fs::remove_dir_all(&fewest).with_context(|| format!("empty {}", fewest.display()))?;
        let fewest = self.folder("fewest")?;
        let mut merge = self.command(&[&fewest, &self.kept, &corpus]);
        let merged = merge.arg("-set_cover_merge=1").args(EDGES_ALONE).output();
        if !merged.context("start the fuzzer")?.status.success() {
            bail!("{}: the corpus cannot be merged", self.name);
        }
        let context = || format!("replace {}", self.kept.display());
        fs::remove_dir_all(&self.kept).with_context(context)?;
        fs::create_dir(&self.kept).with_context(context)?;
        for entry in fs::read_dir(&fewest).with_context(context)? {
            let path = entry.with_context(context)?.path();
            let name = path.file_name().context("a file of the corpus has a name")?;
            fs::copy(&path, self.kept.join(name)).with_context(context)?;
        }
        Ok(())
    }
}

impl Figures {
    /// Parses a line of libFuzzer. Returns true if the line contains figures.
    fn read(&mut self, line: &str) -> bool {
        let number = |text: &str| -> Option<u64> {
            text.trim_start().split([' ', '/']).next().and_then(|number| number.parse().ok())
        };
        let after = |word: &str| line.split_once(word).and_then(|(_, rest)| number(rest));
        if let Some(executions) = after("stat::number_of_executed_units:") {
            self.executions = executions;
            return true;
        }
        let Some(executions) = line.strip_prefix('#').and_then(|rest| {
            rest.split(['\t', ' ']).next().and_then(|number| number.parse::<u64>().ok())
        }) else {
            return line.starts_with("stat::");
        };
        self.executions = executions;
        self.reached = after(" cov: ").unwrap_or(self.reached);
        self.inputs = after(" corp: ").unwrap_or(self.inputs);
        true
    }

    fn text(&self) -> String {
        let Self { executions, reached, inputs, .. } = self;
        format!("{executions} executions, {reached} edges reached, {inputs} inputs kept")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_libfuzzer_are_read() {
        let mut figures =
            Figures { seconds: 0, executions: 0, reached: 0, inputs: 0, found: false };
        let line = "#302811\tNEW    cov: 11 ft: 12 corp: 5/141b lim: 2996 exec/s: 0 rss: 27Mb";
        assert!(figures.read(line));
        assert_eq!((figures.executions, figures.reached, figures.inputs), (302_811, 11, 5));
        assert!(figures.read("stat::number_of_executed_units: 400000"));
        assert_eq!(figures.executions, 400_000);
        assert!(!figures.read("thread '<unnamed>' panicked at src/lib.rs:1:1:"));
    }
}
