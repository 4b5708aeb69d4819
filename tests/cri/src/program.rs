//! Which containerd: Debian's, or a current one built from its Go module and kept in the user's cache.

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use std::{
    ffi::OsString,
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
};

/// A containerd with its client and its shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// Debian's package; its CNI library refuses results of 1.1.0.
    Debian,
    /// The current one that the tests are written for, in this folder.
    Built(PathBuf),
}

impl Program {
    /// The current version, built now if it is not in the cache: some minutes, then never again.
    ///
    /// The cache is `$XDG_CACHE_HOME/ferrule/containerd`, else `~/.cache/ferrule/containerd`.
    /// Processes that want it at the same time wait for one build.
    ///
    /// # Errors
    /// When there is no Go, or the build fails.
    pub fn built() -> Result<Self> {
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
            build(&unfinished)?;
            fs::rename(&unfinished, &folder)
                .with_context(|| format!("move what was built to {}", folder.display()))?;
        }
        Ok(Self::Built(folder))
    }

    /// The search path on which its programs come first: containerd finds its shim by it.
    pub(crate) fn search_path(&self) -> OsString {
        let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        match self {
            Self::Debian => usual.into(),
            Self::Built(folder) => {
                let mut path = folder.clone().into_os_string();
                path.push(":");
                path.push(usual);
                path
            }
        }
    }
}

fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrule/containerd"))
}

fn build(folder: &PathBuf) -> Result<()> {
    say(&format!("building containerd {VERSION} from its module; some minutes, this once"));
    let link_flags = format!("-s -w -X {MODULE}/version.Version={VERSION}");
    let status = Command::new("go")
        .args(["install", "-trimpath", "-ldflags", &link_flags])
        .args(COMMANDS.map(|name| format!("{MODULE}/cmd/{name}@{VERSION}")))
        .env("GOBIN", folder)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status();
    let status = match status {
        Ok(status) => status,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no program named go: install Go 1.26 or newer (https://go.dev/dl)")
        }
        Err(error) => return Err(error).context("start go install"),
    };
    ensure!(status.success(), "go install of containerd {VERSION}: {status}; its words are above");
    Ok(())
}

#[expect(clippy::print_stderr, reason = "whoever waits for minutes should know what for")]
fn say(text: &str) {
    eprintln!("{text}");
}

/// The version that is built.
const VERSION: &str = "v2.4.2";
const MODULE: &str = "github.com/containerd/containerd/v2";
const COMMANDS: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];
