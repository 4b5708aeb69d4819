//! Cargo's companions that the lanes use, each in one pinned version, built once into the cache.

use crate::{cargo, say};
use anyhow::{Context as _, Result, ensure};
use std::{path::PathBuf, process::Command};

/// A program from crates.io.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    features: &'static [&'static str],
}

/// Licenses, sources and duplicates of third-party crates.
pub(crate) const DENY: Tool =
    Tool { name: "cargo-deny", version: "0.20.2", features: &["--no-default-features"] };

/// Dependencies that a manifest names and no source uses.
pub(crate) const MACHETE: Tool = Tool { name: "cargo-machete", version: "0.9.2", features: &[] };

impl Tool {
    /// The program, in the repository's folder.
    ///
    /// # Errors
    /// When it cannot be built.
    pub(crate) fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.program()?);
        command.current_dir(crate::generate::root());
        Ok(command)
    }

    fn program(&self) -> Result<PathBuf> {
        let Self { name, version, features } = self;
        let root = crate::image::cache()?.join("tools").join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if program.is_file() {
            return Ok(program);
        }
        say::step(&format!("building {name} {version}, once: some minutes"));
        let work = tempfile::tempdir().context("create a folder to build in")?;
        let mut cargo = cargo::command();
        // A build without optimization is several times faster, and these programs run for seconds.
        cargo.args(["install", "--quiet", "--locked", "--debug", name, "--version", version]);
        cargo.args(*features).arg("--root").arg(&root).env("CARGO_TARGET_DIR", work.path());
        let status = cargo.status().with_context(|| format!("start cargo install {name}"))?;
        ensure!(status.success(), "cannot build {name} {version}: cargo's output is above");
        Ok(program)
    }
}
