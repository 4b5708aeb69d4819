//! One program, run to its end.

use std::{io, path::PathBuf, process::Stdio, time::Duration};
use tokio::{
    io::AsyncWriteExt as _,
    process::{Child, Command},
    time::timeout,
};

/// So long a tool may take, its wait for another writer's lock among it.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: &'static str,
    path: PathBuf,
}

/// A run that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("`{program} {args}`: {why}")]
pub struct Failure {
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub args: String,
    /// What went wrong.
    pub why: Why,
}

/// What went wrong with a run.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// It could not be started, fed or read.
    #[error("cannot be run: {0}")]
    Io(#[from] io::Error),
    /// It ended in failure.
    #[error("{status}: {said}")]
    Status {
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said, in one line.
        said: String,
    },
    /// It did not end, and was killed.
    #[error("not done within {} s, and was stopped", PATIENCE.as_secs())]
    TooLong,
}

impl Program {
    /// Looks for it on the search path. One that cannot tell its version is as good as none: it
    /// may be a script that says so, as distributions leave it.
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

    /// Runs it and gives what it printed.
    pub(crate) async fn run(&self, args: &[&str], input: &str) -> Result<String, Failure> {
        let failure = |why| Failure { program: self.name, args: args.join(" "), why };
        let mut command = Command::new(&self.path);
        command.args(args).env("LC_ALL", "C").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| failure(error.into()))?;
        let ended = timeout(PATIENCE, feed(child, input)).await;
        let output = ended.map_err(|_| failure(Why::TooLong))?.map_err(|it| failure(it.into()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        Err(failure(Why::Status { status: output.status, said }))
    }
}

async fn feed(mut child: Child, input: &str) -> io::Result<std::process::Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends before it has read all says why on its own.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await
}
