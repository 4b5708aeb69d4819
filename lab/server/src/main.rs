//! `ferrule-lab`: see [`lab_server`].

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A process that was started to enter a node becomes a program there, while it has one thread.
    if let Some(code) = lab_fabric::enter::dispatch() {
        return code;
    }
    match lab_server::cli::run(lab_server::cli::Cli::parse()) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("ferrule-lab: {err:#}");
            ExitCode::FAILURE
        }
    }
}
