//! The real amazon-vpc-cni: its agent and plugins, built from its Go module and kept in the user's
//! cache, for `ferrule-lab node add --cni amazon-vpc-cni --cni-dir <folder>`.

use crate::{Lab, wait_for};
use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The version that is built.
pub const VERSION: &str = "v1.23.1";

/// The folder of its programs and of the files that its image has beside them. Built now if it is
/// not in the cache: minutes on two cores, then never again.
///
/// The cache is `$XDG_CACHE_HOME/ferrule/vpc-cni`, else `~/.cache/ferrule/vpc-cni`. Processes that
/// want it at the same time wait for one build.
///
/// # Errors
/// When there is no Go, or the build fails.
pub fn built() -> Result<PathBuf> {
    let cache = cache()?;
    let folder = cache.join(VERSION);
    fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
    // Held until this returns.
    let _lock = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("lock {}", path.display()))?;
    if !folder.is_dir() {
        let unfinished = cache.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir_all(&unfinished)
            .with_context(|| format!("make {}", unfinished.display()))?;
        build(&unfinished)?;
        say(&format!("amazon-vpc-cni {VERSION} is built: {}", folder.display()));
        fs::rename(&unfinished, &folder)
            .with_context(|| format!("move what was built to {}", folder.display()))?;
    }
    Ok(folder)
}

/// Waits until a node of it takes pods: its conflist comes once its agent serves.
///
/// # Errors
/// When that takes more than two minutes.
pub fn wait_until_ready(lab: &Lab, node: &str) -> Result<()> {
    wait_for(&format!("amazon-vpc-cni on {node}"), PATIENCE, || {
        lab.on_node(node, &["cat", CONFLIST]).map(|_| true)
    })
}

/// Waits until it has so many addresses that no pod has: its ADDs fail where ours wait.
///
/// # Errors
/// When that takes more than two minutes.
pub fn wait_for_free(lab: &Lab, node: &str, count: u32) -> Result<()> {
    wait_for(&format!("{count} free addresses of amazon-vpc-cni on {node}"), PATIENCE, || {
        let metric = |name: &str| lab.metric(node, name, &[]);
        let total = metric("awscni_total_ip_addresses")?.context("it tells no total")?;
        let assigned = metric("awscni_assigned_ip_addresses")?.unwrap_or_default();
        ensure!(total - assigned >= f64::from(count), "{assigned} of {total} are assigned");
        Ok(true)
    })
}

fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrule/vpc-cni"))
}

fn build(folder: &Path) -> Result<()> {
    say(&format!("building amazon-vpc-cni {VERSION} from its module; some minutes, this once"));
    // Its go.mod replaces modules, which `go install` refuses: it is built where it is the main one.
    let sources = tempfile::tempdir().context("make a folder for the sources")?;
    copy(&downloaded()?, sources.path())?;
    let link_flags =
        format!("-s -w -X {MODULE}/pkg/version.Version={VERSION} -X main.version={VERSION}");
    for (package, program) in PROGRAMS {
        let status = go()
            .args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"])
            .args(["-ldflags", &link_flags, "-o"])
            .arg(folder.join(program))
            .arg(format!("./cmd/{package}"))
            .current_dir(sources.path())
            .stdout(Stdio::from(std::io::stderr()))
            .status()
            .context("start go build")?;
        ensure!(status.success(), "go build of {program}: {status}; its words are above");
    }
    for file in FILES {
        let from = sources.path().join("misc").join(file);
        fs::copy(&from, folder.join(file)).with_context(|| format!("copy {}", from.display()))?;
    }
    Ok(())
}

/// Where the module's files are, in Go's own cache.
fn downloaded() -> Result<PathBuf> {
    let output = go()
        .args(["mod", "download", "-json", &format!("{MODULE}@{VERSION}")])
        .current_dir("/")
        .stderr(Stdio::inherit())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no program named go: install Go 1.26 or newer (https://go.dev/dl)")
        }
        Err(error) => return Err(error).context("start go mod download"),
    };
    let told: Value = serde_json::from_slice(&output.stdout).context("read go mod download")?;
    let folder = told["Dir"].as_str();
    folder.map(PathBuf::from).with_context(|| format!("go mod download of {MODULE}: {told}"))
}

fn go() -> Command {
    let mut command = Command::new("go");
    command
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .stdin(Stdio::null());
    command
}

/// Copies a folder's files and folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let entries = fs::read_dir(from).with_context(|| format!("list {}", from.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("list {}", from.display()))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let made = if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)
                .map_err(anyhow::Error::from)
                .and_then(|()| copy(&path, &target))
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

const CONFLIST: &str = "/etc/cni/net.d/10-aws.conflist";
const PATIENCE: Duration = Duration::from_secs(120);
const MODULE: &str = "github.com/aws/amazon-vpc-cni-k8s";
/// Each command's folder, and its name in the image.
const PROGRAMS: [(&str, &str); 3] = [
    ("aws-k8s-agent", "aws-k8s-agent"),
    ("routed-eni-cni-plugin", "aws-cni"),
    ("egress-cni-plugin", "egress-cni"),
];
/// What lies beside them in the image.
const FILES: [&str; 2] = ["10-aws.conflist", "eni-max-pods.txt"];
