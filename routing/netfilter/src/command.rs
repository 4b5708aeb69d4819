//! One program, run to its end.

use std::{io, path::PathBuf, process::Stdio, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

/// Timeout of one run, including the wait for another writer's lock.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: &'static str,
    path: PathBuf,
}

/// A failed run.
#[derive(Debug, thiserror::Error)]
#[error("`{program} {args}`: {cause}")]
pub struct Failure {
    pub program: &'static str,
    pub args: String,
    pub cause: FailureCause,
}

/// Cause of a failed run.
#[derive(Debug, thiserror::Error)]
pub enum FailureCause {
    /// The program cannot be started, or a pipe to it failed.
    #[error("cannot run it: {0}")]
    Io(#[from] io::Error),
    /// The program exited with an error.
    #[error("{status}: {stderr}")]
    Status {
        status: std::process::ExitStatus,
        /// Its standard error, in one line.
        stderr: String,
    },
    /// The program exceeded the timeout and was killed.
    #[error("timed out after {} s", PATIENCE.as_secs())]
    TooLong,
}

impl Program {
    /// Searches `PATH`. A program that fails with `--version` is skipped: distributions install scripts that only print
    /// that the tool is missing.
    pub(crate) async fn find(name: &'static str) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).map(|folder| folder.join(name));
        for path in found.filter(|path| path.is_file()) {
            let program = Self { name, path };
            if program.run(&["--version"], "").await.is_ok() {
                return Some(program);
            }
        }
        None
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Runs the program and returns its standard output.
    pub(crate) async fn run(&self, args: &[&str], input: &str) -> Result<String, Failure> {
        let failure = |cause| Failure { program: self.name, args: args.join(" "), cause };
        let mut command = Command::new(&self.path);
        command.args(args).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| failure(error.into()))?;
        let ended = timeout(PATIENCE, feed(child, input)).await;
        let output =
            ended.map_err(|_| failure(FailureCause::TooLong))?.map_err(|it| failure(it.into()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(failure(FailureCause::Status { status: output.status, stderr }))
    }
}

async fn feed(mut child: Child, input: &str) -> io::Result<std::process::Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // A program that exits before it has read its input reports the cause itself.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await
}
