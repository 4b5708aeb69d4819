//! The plugin's binary: the process's environment and standard streams, and nothing else.

use dlmalloc::GlobalDlmalloc;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

/// musl's own allocator maps and unmaps pages for most allocations, a tenth of a DEL.
#[global_allocator]
static ALLOCATOR: GlobalDlmalloc = GlobalDlmalloc;

fn main() -> ExitCode {
    let reply = cni::run(|name| std::env::var_os(name), io::stdin().lock());
    // A runtime that has closed its end sees only the exit code.
    let _ = io::stderr().write_all(reply.stderr.as_bytes());
    let written = io::stdout().write_all(&reply.stdout);
    if reply.failed || written.is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
