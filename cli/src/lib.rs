//! `ferrule`: what people ask of a node. As `kubectl-ferrule` in the path it answers `kubectl ferrule`.
//!
//! `doctor` looks at a node (`gather`) and lets [`cli_doctor`] judge; it changes nothing. `migrate`
//! looks at it too, asks [`cli_migrate`] for the next step, and takes it. `policy` reads objects from files
//! and asks [`policy_core`] who may talk to whom.
//!
//! Tested as a process against a real kernel in `tests/netns/tests/doctor.rs`, and on whole nodes in
//! `tests/lab/tests/migrate.rs`; `policy` in `cli/tests/policy.rs`.

mod args;
mod cluster;
mod doctor;
mod gather;
mod migrate;
mod output;
mod policy;
mod print;
mod probe;
mod target;

use args::{Cli, Verb};
use clap::{CommandFactory as _, FromArgMatches as _};
use std::{
    ffi::{OsStr, OsString},
    io::Write as _,
    path::Path,
    process::ExitCode,
};

/// Runs what the command line asks for, and tells by the exit code what came of it.
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
    let done = match &cli.verb {
        Verb::Status(args) => cluster::status(args),
        Verb::Pod(args) => cluster::pod(args),
        Verb::Bundle(args) => cluster::bundle(args),
        Verb::Check(args) => cluster::check(args),
        Verb::Probe(verb) => probe::run(verb),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Migrate(verb) => migrate::run(verb),
        Verb::Policy(verb) => policy::run(verb),
        Verb::Completions { shell } => complete(*shell),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(err) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(std::io::stderr(), "ferrule: {err:#}");
            ExitCode::from(doctor::COULD_NOT_LOOK)
        }
    }
}

fn complete(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ferrule", &mut script);
    policy::raw(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
