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

/// The module whose program `bench enforce` measures beside ours.
const PEER: &str = "github.com/aws/aws-network-policy-agent@v1.4.1";

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

/// Compiles the program of aws-network-policy-agent for incoming IPv4 packets, of its Go module, with those that
/// `bench enforce` runs. Returns the object file.
///
/// # Errors
/// If Go cannot fetch the module, or the module has another program, or the compiler refuses the program.
pub(crate) fn peer_object() -> Result<PathBuf> {
    let compiler = compiler().context("cannot compile the eBPF programs: install clang-19")?;
    let mut go = Command::new("go");
    go.args(["mod", "download", "-json", PEER]).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = go.output().context("start go")?;
    ensure!(output.status.success(), "cannot fetch {PEER}: go reports the cause above");
    let module: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("read the answer of go")?;
    let folder = module["Dir"].as_str().context("go names no folder of the module")?;
    let path = Path::new(folder).join("pkg/ebpf/c/tc.v4ingress.bpf.c");
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    // Another program calls it, in a section whose name loaders know.
    let (before, after) = text
        .split_once("SEC(\"tc_cls\")\nint handle_ingress")
        .context("the module has another program")?;
    let text =
        format!("{before}static __always_inline int handle_ingress{after}\n#include \"end.h\"\n");
    let folder = cargo::target_dir().join("bpf");
    std::fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let (source, object) = (folder.join("peer.bpf.c"), folder.join("peer.bpf.o"));
    std::fs::write(&source, text).with_context(|| format!("write {}", source.display()))?;
    let mut command = Command::new(compiler);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-w"]);
    command.args(["-I", "tests/bench/bpf", "-I", "tests/bench/bpf/peer", "-I"]).arg(headers());
    command.arg("-c").arg(&source).arg("-o").arg(&object);
    command.current_dir(generate::root()).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("start {compiler}"))?;
    ensure!(status.success(), "{compiler} refuses {}", source.display());
    Ok(object)
}

/// The folder of the C library's headers for this architecture.
fn headers() -> String {
    format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH)
}

/// Compiles the programs of a source file, with a planted fault if one is given.
fn compile(compiler: &str, source: &str, object: &Path, fault: Option<&str>) -> Result<()> {
    let mut command = Command::new(compiler);
    command.args(FLAGS).arg("-I").arg(headers()).arg("-c").arg(source).arg("-o").arg(object);
    command.args(fault.map(|fault| format!("-DPLANTED_{fault}=1")));
    command.current_dir(generate::root()).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("start {compiler}"))?;
    ensure!(status.success(), "{compiler} refuses {source}");
    Ok(())
}
