//! Compiles the eBPF programs with clang. The workspace itself builds without clang.

use crate::{cargo, generate};
use anyhow::{Context as _, Result, ensure};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Compilers in the order in which they are looked for.
const COMPILERS: [&str; 2] = ["clang-19", "clang"];
/// The oldest version of clang with which the programs are tested.
const OLDEST: u32 = 19;
const FLAGS: [&str; 8] =
    ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-function"];

/// The source of the programs.
const POLICY: &str = "datapath/bpf/policy.bpf.c";

/// The faults of `datapath/bpf/planted.h`: each has an object next to that of the programs, for tests.
pub(crate) const FAULTS: [&str; 4] = ["KEY", "TICKET", "ADDRESS", "GENERATION"];

/// The compiler; `None` if this machine has none, or an older one.
pub(crate) fn compiler() -> Option<&'static str> {
    COMPILERS.into_iter().find(|compiler| {
        let version = Command::new(compiler).arg("-dumpversion").stdin(Stdio::null()).output();
        let version = version.ok().and_then(|output| String::from_utf8(output.stdout).ok());
        let major = version.as_deref().and_then(|text| text.split('.').next()?.parse().ok());
        major.is_some_and(|major: u32| major >= OLDEST)
    })
}

/// Compiles the programs and returns the object file.
///
/// # Errors
/// If there is no compiler, or it refuses the programs; its messages are above.
pub(crate) fn object() -> Result<PathBuf> {
    let compiler = compiler().context("cannot compile the eBPF programs: install clang-19")?;
    let folder = cargo::target_dir().join("bpf");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for fault in FAULTS {
        let object = folder.join(format!("planted-{fault}.bpf.o"));
        compile(compiler, POLICY, &object, Some(fault))?;
    }
    let object = folder.join("policy.bpf.o");
    compile(compiler, POLICY, &object, None)?;
    Ok(object)
}

/// Compiles the programs with those that `bench enforce` runs, and returns the object file.
///
/// # Errors
/// If there is no compiler, or it refuses the programs; its messages are above.
pub(crate) fn bench_object() -> Result<PathBuf> {
    let compiler = compiler().context("cannot compile the eBPF programs: install clang-19")?;
    let folder = cargo::target_dir().join("bpf");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let object = folder.join("first.bpf.o");
    compile(compiler, "tests/bench/bpf/first.bpf.c", &object, None)?;
    Ok(object)
}

/// Compiles the programs of a source file, with a planted fault if one is given.
fn compile(compiler: &str, source: &str, object: &Path, fault: Option<&str>) -> Result<()> {
    let headers = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(compiler);
    command.args(FLAGS).arg("-I").arg(headers).arg("-c").arg(source).arg("-o").arg(object);
    command.args(fault.map(|fault| format!("-DPLANTED_{fault}=1")));
    command.current_dir(generate::root()).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("start {compiler}"))?;
    ensure!(status.success(), "{compiler} refuses {source}");
    Ok(())
}
