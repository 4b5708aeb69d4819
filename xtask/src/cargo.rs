//! The `cargo` that runs this program, and the files that it builds.

use crate::{generate, processes};
use anyhow::{Context as _, Result, bail};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The folder of cargo's build output.
pub(crate) fn target_dir() -> PathBuf {
    // cargo resolves a relative path from its working directory.
    generate::root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The `cargo` that runs this program.
pub(crate) fn command() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(generate::root()).stdin(Stdio::null());
    // Of xtask's own run: build scripts that look at it would run again whenever cargo is called without.
    cargo.env_remove("CARGO_MANIFEST_DIR").envs(processes::tag());
    cargo
}

pub(crate) fn build(args: &[&str]) -> Result<()> {
    let status = command()
        .args(["build", "--locked"])
        .args(args)
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("start cargo")?;
    if !status.success() {
        bail!("cargo build {} failed; its output is above", args.join(" "));
    }
    Ok(())
}

/// Copies `from` to another name and renames it to `to`, because a lab may run the old program.
pub(crate) fn place(from: &Path, to: &Path) -> Result<()> {
    let context = || format!("copy {} to {}", from.display(), to.display());
    let next = to.with_extension("next");
    std::fs::copy(from, &next).with_context(context)?;
    std::fs::rename(&next, to).with_context(context)
}
