//! `ferrule`, the operator's command. Installed as `kubectl-ferrule` in the path it serves `kubectl ferrule`.
//!
//! `doctor` observes a node (`gather`), and [`cli_doctor`] judges; it changes nothing. `migrate` observes the node too,
//! takes the next step from [`cli_migrate`] and applies it. `policy` reads objects from files or a cluster and
//! evaluates them with [`policy_core`].
//!
//! Tests as a process against a real kernel are in `tests/netns/tests/doctor.rs`, on whole nodes in
//! `tests/lab/tests/migrate.rs`, and for `policy` in `cli/tests/policy.rs`.

mod args;
mod awaited;
mod cluster;
mod doctor;
mod gather;
mod migrate;
mod output;
mod policy;
mod print;
mod probe;
mod progress;
mod target;

use args::{Cli, Verb};
use clap::{CommandFactory as _, FromArgMatches as _};
use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    path::Path,
    process::ExitCode,
};

/// Runs the command line and returns the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let name = words.first().map(Path::new).and_then(Path::file_name);
    let mut command = Cli::command();
    if name == Some(OsStr::new("kubectl-ferrule")) {
        command = command.name("kubectl-ferrule").bin_name("kubectl ferrule");
    }
    let cli = match command.try_get_matches_from(words).and_then(|m| Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(err) => err.exit(),
    };
    cli.color.apply();
    let done = match &cli.verb {
        Verb::Status(args) => cluster::status(args),
        Verb::Pod(args) => cluster::pod(args),
        Verb::Service(args) => cluster::service(args),
        Verb::Ip(args) => cluster::ip(args),
        Verb::Bundle(args) => cluster::bundle(args),
        Verb::Check(args) => cluster::check(args),
        Verb::Probe(verb) => probe::run(verb),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Migrate(args) => migrate::run(args),
        Verb::Policy(verb) => policy::run(verb),
        Verb::Version(args) => cluster::version(args),
        Verb::Completions { shell } => complete(*shell),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(err) => {
            // There is no other output if standard error is closed.
            let _ = writeln!(std::io::stderr(), "ferrule: {err:#}");
            ExitCode::from(doctor::COULD_NOT_LOOK)
        }
    }
}

fn complete(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ferrule", &mut script);
    output::write_raw(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
