//! `ferrule`, also installed as `kubectl-ferrule`: see [`cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run(std::env::args_os())
}
