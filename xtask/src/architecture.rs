//! The architectures of the image, and the tools that build for another architecture than this machine's.

use crate::{
    deps::{self, Need},
    generate, say,
};
use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use std::{
    path::Path,
    process::{Command, Stdio},
};

/// Named as in Docker, Debian and Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Architecture {
    /// Intel and AMD processors
    Amd64,
    /// Graviton processors
    Arm64,
}

impl Architecture {
    /// Returns the architecture of this machine.
    ///
    /// # Errors
    /// If the image does not support it.
    pub(crate) fn here() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => {
                bail!("the image is for amd64 and arm64, and this machine is {other}: use --arch")
            }
        }
    }

    pub(crate) fn is_here(self) -> bool {
        self.machine() == std::env::consts::ARCH
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's name of the target, with its system.
    pub(crate) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// Rust's name of the target whose programs need no library of the system.
    pub(crate) fn static_triple(self) -> String {
        format!("{}-unknown-linux-musl", self.machine())
    }

    /// A program of the compiler for this architecture.
    pub(crate) fn tool(self, name: &str) -> String {
        if self.is_here() {
            name.to_owned()
        } else {
            format!("{}-linux-gnu-{name}", self.machine())
        }
    }

    /// The emulator for programs of this architecture. `None` if this machine runs them natively.
    pub(crate) fn emulator(self) -> Option<String> {
        (!self.is_here()).then(|| format!("qemu-{}-static", self.machine()))
    }

    /// The arguments that select this target in cargo.
    pub(crate) fn cargo_args(self) -> Vec<String> {
        let triple = self.triple();
        let linker = self.linker_args(&triple);
        ["--target".to_owned(), triple].into_iter().chain(linker).collect()
    }

    /// The arguments that select this architecture's linker for a target; none on a machine of this architecture.
    pub(crate) fn linker_args(self, triple: &str) -> Vec<String> {
        if self.is_here() {
            return Vec::new();
        }
        vec!["--config".to_owned(), format!("target.{triple}.linker=\"{}\"", self.tool("gcc"))]
    }

    /// Installs the missing compilers for this architecture.
    ///
    /// # Errors
    /// If they cannot be installed from here; the message lists the manual steps.
    pub(crate) fn get_compilers(self) -> Result<()> {
        if self.is_here() {
            return deps::install(&[Need::Linker]);
        }
        deps::install(&[Need::Linker, self.cross_compiler()])?;
        get_library(&self.triple())
    }

    /// Installs Rust's standard library of the static target, if it is missing.
    ///
    /// # Errors
    /// If it cannot be installed from here; the message states the manual step.
    pub(crate) fn get_static_library(self) -> Result<()> {
        get_library(&self.static_triple())
    }

    /// Debian's C cross compiler for this architecture.
    fn cross_compiler(self) -> Need {
        match self {
            Self::Amd64 => Need::CrossAmd64,
            Self::Arm64 => Need::CrossArm64,
        }
    }

    /// The name in kernels, Rust and C compilers.
    fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}

/// Installs Rust's standard library for a target, if it is missing.
fn get_library(triple: &str) -> Result<()> {
    if has_library(triple)? {
        return Ok(());
    }
    say::step(&format!("Rust's standard library for {triple}"));
    let mut rustup = Command::new("rustup");
    rustup.current_dir(generate::root()).args(["target", "add", triple]).stdin(Stdio::null());
    let status = rustup.stdout(Stdio::from(std::io::stderr())).status();
    let by_hand = || format!("install Rust's standard library for {triple} by hand");
    let status = status.with_context(|| format!("start rustup; without it, {}", by_hand()))?;
    ensure!(status.success(), "rustup target add {triple}: {status}; {}", by_hand());
    Ok(())
}

fn has_library(triple: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.current_dir(generate::root()).stdin(Stdio::null());
    rustc.args(["--print", "target-libdir", "--target", triple]);
    let output = rustc.output().context("start rustc")?;
    let folder = String::from_utf8_lossy(&output.stdout);
    Ok(output.status.success() && Path::new(folder.trim()).is_dir())
}
