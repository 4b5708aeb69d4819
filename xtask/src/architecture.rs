//! The architectures that the image is for, and what builds programs for one that is not this machine's.

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

/// As Docker, Debian and Go call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub(crate) enum Architecture {
    /// Of Intel's and AMD's processors
    Amd64,
    /// Of Graviton's
    Arm64,
}

impl Architecture {
    /// This machine's.
    ///
    /// # Errors
    /// When the image is not for it.
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

    /// As Rust calls it with its system.
    pub(crate) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// One of the compiler's programs, for this architecture.
    pub(crate) fn tool(self, name: &str) -> String {
        if self.is_here() {
            name.to_owned()
        } else {
            format!("{}-linux-gnu-{name}", self.machine())
        }
    }

    /// What runs its programs on this machine, if that cannot by itself.
    pub(crate) fn emulator(self) -> Option<String> {
        (!self.is_here()).then(|| format!("qemu-{}-static", self.machine()))
    }

    /// What cargo is told to build for it.
    pub(crate) fn cargo_args(self) -> Vec<String> {
        let triple = self.triple();
        let linker = format!("target.{triple}.linker=\"{}\"", self.tool("gcc"));
        ["--target", &triple, "--config", &linker].map(str::to_owned).to_vec()
    }

    /// Gets the compilers that are missing for it.
    ///
    /// # Errors
    /// When they cannot be had from here; says what to install by hand.
    pub(crate) fn get_compilers(self) -> Result<()> {
        if self.is_here() {
            return deps::install(&[Need::Linker]);
        }
        deps::install(&[Need::Linker, self.cross_compiler()])?;
        if self.has_library()? {
            return Ok(());
        }
        let triple = self.triple();
        say::step(&format!("Rust's standard library for {triple}"));
        let mut rustup = Command::new("rustup");
        rustup.current_dir(generate::root()).args(["target", "add", &triple]).stdin(Stdio::null());
        let status = rustup.stdout(Stdio::from(std::io::stderr())).status();
        let by_hand = || format!("install Rust's standard library for {triple} by hand");
        let status = status.with_context(|| format!("start rustup; without it, {}", by_hand()))?;
        ensure!(status.success(), "rustup target add {triple}: {status}; {}", by_hand());
        Ok(())
    }

    fn has_library(self) -> Result<bool> {
        let mut rustc = Command::new("rustc");
        rustc.current_dir(generate::root()).stdin(Stdio::null());
        rustc.args(["--print", "target-libdir", "--target", &self.triple()]);
        let output = rustc.output().context("start rustc")?;
        let folder = String::from_utf8_lossy(&output.stdout);
        Ok(output.status.success() && Path::new(folder.trim()).is_dir())
    }

    /// What Debian has to compile C for it elsewhere.
    fn cross_compiler(self) -> Need {
        match self {
            Self::Amd64 => Need::CrossAmd64,
            Self::Arm64 => Need::CrossArm64,
        }
    }

    /// As kernels, Rust and compilers of C call it.
    fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}
