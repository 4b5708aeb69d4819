//! Build of a program from its Go module.

use crate::recipe::{Recipe, Source};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// Builds it so that `place` is there whole or not at all; for this machine's architecture, or for that one.
pub(crate) fn at(place: &Path, recipe: &Recipe, other: Option<&str>) -> Result<()> {
    let folder = place.parent().context("cannot find the folder of the program")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let began = Instant::now();
    let (what, version) = (recipe.what, recipe.version);
    say(&format!("building {what} {version} from its modules; {}, this once", recipe.takes));
    let unfinished = folder.join("unfinished");
    let sources = tempfile::tempdir().context("make a folder for the sources")?;
    let made = build(recipe, other, sources.path(), &unfinished)
        .with_context(|| format!("build {what} {version}"))?;
    fs::rename(&made, place)
        .with_context(|| format!("move what was built to {}", place.display()))?;
    say(&format!("built in {} s: {}", began.elapsed().as_secs(), place.display()));
    Ok(())
}

/// Builds it by way of `out`; where it then is.
fn build(recipe: &Recipe, other: Option<&str>, sources: &Path, out: &Path) -> Result<PathBuf> {
    let (version, link_flags) = (recipe.version, recipe.link_flags());
    match recipe.source {
        Source::Module { files, tags } => {
            write(files, sources)?;
            let mut go = build_in(sources, other, &link_flags);
            go.arg(format!("-tags={tags}")).arg("-o").arg(out).arg(".");
            run(&mut go)?;
        }
        Source::Packages { files, tags, commands, tests } => {
            write(files, sources)?;
            empty(out)?;
            for (package, name) in commands {
                let mut go = build_in(sources, other, &link_flags);
                run(go.arg(format!("-tags={tags}")).arg("-o").arg(out.join(name)).arg(package))?;
            }
            for (package, name) in tests {
                let mut go = test_in(sources, other, &link_flags);
                run(go.arg(format!("-tags={tags}")).arg("-o").arg(out.join(name)).arg(package))?;
            }
        }
        Source::Ebpf { files, module, commands, tags, folder, objects } => {
            write(files, sources)?;
            empty(out)?;
            let mut go = build_in(sources, other, &link_flags);
            run(go.arg("-o").arg(out.join(recipe.name)).arg("."))?;
            let theirs = downloaded(&format!("{module}@{version}"))?;
            // That module names the versions of its dependencies.
            let copied = tempfile::tempdir().context("make a folder for the module")?;
            copy(&theirs, copied.path())?;
            for (command, name) in commands {
                let mut go = build_in(copied.path(), other, &link_flags);
                go.arg(format!("-tags={tags}")).arg("-o").arg(out.join(name));
                run(go.arg(format!("./{command}")))?;
            }
            let folder = theirs.join(folder);
            for object in objects {
                let source = folder.join(format!("{object}.c"));
                compile(&source, &[sources, &folder], &out.join(format!("{object}.o")))?;
            }
        }
        Source::Install { module, commands } => {
            let mut go = go(other);
            go.args(["install", "-trimpath", "-ldflags", &link_flags]);
            go.args(commands.iter().map(|command| format!("{module}/{command}@{version}")));
            match other {
                None => run(go.env("GOBIN", out))?,
                Some(other) => {
                    // Go puts what does not run here below its own folder only.
                    go.env_remove("GOBIN")
                        .env("GOPATH", sources)
                        .env("GOMODCACHE", module_cache()?);
                    run(&mut go)?;
                    copy(&sources.join("bin").join(format!("linux_{other}")), out)?;
                }
            }
            if let [_] = commands {
                return Ok(out.join(recipe.name));
            }
        }
        Source::Main { module, commands, tests, files } => {
            copy(&downloaded(&format!("{module}@{version}"))?, sources)?;
            empty(out)?;
            for (command, name) in commands {
                let mut go = build_in(sources, other, &link_flags);
                run(go.arg("-o").arg(out.join(name)).arg(format!("./{command}")))?;
            }
            for (folder, name) in tests {
                let mut go = test_in(sources, other, &link_flags);
                run(go.arg("-o").arg(out.join(name)).arg(format!("./{folder}")))?;
            }
            for file in files {
                let (from, name) = (sources.join(file), Path::new(file).file_name());
                let to = out.join(name.context("a file without a name")?);
                fs::copy(&from, to).with_context(|| format!("copy {}", from.display()))?;
            }
        }
    }
    Ok(out.to_owned())
}

/// `go build` of a module whose files are here.
fn build_in(sources: &Path, other: Option<&str>, link_flags: &str) -> Command {
    command_in(sources, other, &["build"], link_flags)
}

/// `go test` that builds a program of tests and does not run it. Its checks by `go vet` would take ten minutes.
fn test_in(sources: &Path, other: Option<&str>, link_flags: &str) -> Command {
    command_in(sources, other, &["test", "-c", "-vet=off"], link_flags)
}

fn command_in(sources: &Path, other: Option<&str>, command: &[&str], link_flags: &str) -> Command {
    let mut go = go(other);
    go.args(command).args(["-mod=readonly", "-trimpath", "-buildvcs=false"]);
    go.args(["-ldflags", link_flags]).current_dir(sources);
    go
}

/// Writes the files of one of our modules.
fn write(files: &[(&str, &str)], sources: &Path) -> Result<()> {
    for (name, text) in files {
        let path = sources.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Makes an empty folder.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))
}

fn go(other: Option<&str>) -> Command {
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "").env("GOWORK", "off");
    go.env_remove("GOOS").env_remove("GOARCH").stdin(Stdio::null());
    if let Some(other) = other {
        go.env("GOOS", "linux").env("GOARCH", other);
    }
    go
}

/// Compiles an eBPF program with the flags of the module's Makefile.
fn compile(source: &Path, includes: &[&Path], to: &Path) -> Result<()> {
    let mut failed = None;
    for compiler in ["clang-19", "clang"] {
        let mut clang = Command::new(compiler);
        clang.args(["-target", "bpf", "-O2", "-g", "-fpie", "-DCORE", "-D__BPF_TRACING__", "-w"]);
        for folder in includes {
            clang.arg("-I").arg(folder);
        }
        let machine = std::env::consts::ARCH;
        clang.arg(format!("-I/usr/include/{machine}-linux-gnu")).arg("-c").arg(source);
        match clang.arg("-o").arg(to).stdin(Stdio::null()).status() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => failed = Some(error),
            status => {
                let status = status.with_context(|| format!("start {compiler}"))?;
                ensure!(status.success(), "compile {}: {status}", source.display());
                return Ok(());
            }
        }
    }
    let missing = failed.map_or_else(String::new, |error| error.to_string());
    bail!("cannot compile {}: {missing}; install clang-19", source.display())
}

fn run(go: &mut Command) -> Result<()> {
    let status = started(go.stdout(Stdio::from(std::io::stderr())).status())?;
    ensure!(status.success(), "go: {status}; its words are above");
    Ok(())
}

fn started<T>(outcome: std::io::Result<T>) -> Result<T> {
    match outcome {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no program named go: install Go 1.26 or newer (https://go.dev/dl)")
        }
        outcome => outcome.context("start go"),
    }
}

/// Go's module cache (`GOMODCACHE`).
fn module_cache() -> Result<PathBuf> {
    let output = started(go(None).args(["env", "GOMODCACHE"]).current_dir("/").output())?;
    ensure!(output.status.success(), "go env: {}", output.status);
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Where a module's files are, in Go's own cache.
fn downloaded(module: &str) -> Result<PathBuf> {
    let mut go = go(None);
    go.args(["mod", "download", "-json", module]).current_dir("/").stderr(Stdio::inherit());
    let output = started(go.output())?;
    let told: Value = serde_json::from_slice(&output.stdout).context("read go mod download")?;
    let folder = told["Dir"].as_str().map(PathBuf::from);
    folder.with_context(|| format!("go mod download of {module}: {told}"))
}

/// Copies a folder's files and folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("list {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", from.display()))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let made = if entry.file_type()?.is_dir() {
            copy(&path, &target)
        } else {
            fs::copy(&path, &target).map(drop).map_err(anyhow::Error::from)
        };
        made.with_context(|| format!("copy {}", path.display()))?;
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "whoever waits for minutes should know what for")]
fn say(text: &str) {
    eprintln!("{text}");
}
