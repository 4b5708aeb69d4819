//! The program: built once for each set of sources, kept in the user's cache.

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use sha1::{Digest as _, Sha1};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// The version of Kubernetes that is built (`kubernetes/go.mod`).
pub const VERSION: &str = "v1.36.3";

/// What the program is made of.
const SOURCES: [(&str, &str); 3] = [
    ("go.mod", include_str!("../kubernetes/go.mod")),
    ("go.sum", include_str!("../kubernetes/go.sum")),
    ("main.go", include_str!("../kubernetes/main.go")),
];

/// Kubernetes in one program; its first argument names the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(PathBuf);

impl Program {
    /// The program, built now if it is not in the cache: minutes on two cores, then never again.
    ///
    /// The cache is `FERRULE_KUBERNETES_CACHE`, else `$XDG_CACHE_HOME/ferrule/kubernetes`, else
    /// `~/.cache/ferrule/kubernetes`. Processes that want it at the same time wait for one build.
    ///
    /// # Errors
    /// When there is no Go, or the build fails; with the end of what it said.
    pub fn ready() -> Result<Self> {
        let cache = cache()?;
        let program = cache.join(key()).join("kubernetes");
        if program.is_file() {
            return Ok(Self(program));
        }
        fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
        let path = cache.join("lock");
        let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        // Held until this returns.
        let _lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| errno)
            .with_context(|| format!("lock {}", path.display()))?;
        if !program.is_file() {
            build(&program)?;
        }
        Ok(Self(program))
    }

    /// Whether [`Program::ready`] would have nothing to build.
    pub fn is_built() -> bool {
        cache().is_ok_and(|cache| cache.join(key()).join("kubernetes").is_file())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("FERRULE_KUBERNETES_CACHE") {
        return Ok(folder.into());
    }
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrule/kubernetes"))
}

fn key() -> String {
    let mut hash = Sha1::new();
    for (name, text) in SOURCES {
        hash.update(name);
        hash.update([0]);
        hash.update(text);
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn build(program: &Path) -> Result<()> {
    let folder = program.parent().context("the program lies in no folder")?;
    let sources = tempfile::tempdir().context("make a folder for the sources")?;
    for (name, text) in SOURCES {
        let path = sources.path().join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let began = Instant::now();
    say(&format!("building Kubernetes {VERSION} from its modules; some minutes, this once"));
    let unfinished = folder.join("unfinished");
    let status = Command::new("go")
        .args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace"])
        .args(["-ldflags", &link_flags(), "-o"])
        .arg(&unfinished)
        .arg(".")
        .current_dir(sources.path())
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
        Err(error) => return Err(error).context("start go build"),
    };
    ensure!(status.success(), "go build of Kubernetes {VERSION}: {status}; its words are above");
    fs::rename(&unfinished, program)
        .with_context(|| format!("move the program to {}", program.display()))?;
    say(&format!("built in {} s: {}", began.elapsed().as_secs(), program.display()));
    Ok(())
}

/// Without these every component would call itself v0.0.0.
fn link_flags() -> String {
    let minor = VERSION.split('.').nth(1).unwrap_or_default();
    let mut flags = "-s -w".to_owned();
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [
            ("gitVersion", VERSION),
            ("gitMajor", "1"),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ] {
            flags.push_str(&format!(" -X {package}.{name}={value}"));
        }
    }
    flags
}

#[expect(clippy::print_stderr, reason = "whoever waits for minutes should know what for")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_modules() {
        let (_, modules) = SOURCES[0];
        assert!(modules.contains(&format!("k8s.io/kubernetes {VERSION}\n")));
    }
}
