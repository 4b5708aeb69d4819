//! Programs of others, built from their Go modules once and kept in the user's cache.

mod recipe;

pub use recipe::VERSION;

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use recipe::{Recipe, Source};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

/// A program, or a folder of them, in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(PathBuf);

impl Program {
    /// Kubernetes in one program, whose first argument names the component; built now if it is not in the cache:
    /// minutes on two cores, then never again.
    ///
    /// The cache is `FERRULE_KUBERNETES_CACHE`, else `$XDG_CACHE_HOME/ferrule/kubernetes`, else
    /// `~/.cache/ferrule/kubernetes`; the other programs have folders beside it. Processes that want one at the
    /// same time wait for one build.
    ///
    /// # Errors
    /// When there is no Go, or the build fails; with the end of what it said.
    pub fn ready() -> Result<Self> {
        recipe::KUBERNETES.ready()
    }

    /// Whether [`Program::ready`] would have nothing to build.
    pub fn is_built() -> bool {
        recipe::KUBERNETES.place().is_ok_and(|place| place.exists())
    }

    /// `kubectl` of the same version.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn kubectl() -> Result<Self> {
        recipe::KUBECTL.ready()
    }

    /// CoreDNS.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn coredns() -> Result<Self> {
        recipe::COREDNS.ready()
    }

    /// What the lab's pods run: see `programs/probe`.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn probe() -> Result<Self> {
        recipe::PROBE.ready()
    }

    /// Helm.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn helm() -> Result<Self> {
        recipe::HELM.ready()
    }

    /// The CNI project's plugins loopback, portmap, bandwidth and tuning, static: the folder that holds them and
    /// nothing else.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn plugins() -> Result<Self> {
        recipe::PLUGINS.ready()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Recipe {
    fn ready(&self) -> Result<Program> {
        let place = self.place()?;
        if place.exists() {
            return Ok(Program(place));
        }
        let cache = self.cache()?;
        fs::create_dir_all(&cache).with_context(|| format!("make {}", cache.display()))?;
        let path = cache.join("lock");
        let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        // Held until this returns.
        let _lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| errno)
            .with_context(|| format!("lock {}", path.display()))?;
        if !place.exists() {
            self.build(&place)?;
        }
        Ok(Program(place))
    }

    /// Where it is once it is built.
    fn place(&self) -> Result<PathBuf> {
        Ok(self.cache()?.join(self.key()).join(self.name))
    }

    fn cache(&self) -> Result<PathBuf> {
        let kubernetes = std::env::var_os("FERRULE_KUBERNETES_CACHE").map(PathBuf::from);
        if let Some(folder) = kubernetes.filter(|_| self.name == recipe::KUBERNETES.name) {
            return Ok(folder);
        }
        let base = match std::env::var_os("XDG_CACHE_HOME") {
            Some(base) => PathBuf::from(base),
            None => {
                PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache")
            }
        };
        Ok(base.join("ferrule").join(self.name))
    }

    fn build(&self, place: &Path) -> Result<()> {
        let folder = place.parent().context("the program lies in no folder")?;
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        let began = Instant::now();
        let (what, version) = (self.what, self.version);
        say(&format!("building {what} {version} from its modules; {}, this once", self.takes));
        let unfinished = folder.join("unfinished");
        let sources = tempfile::tempdir().context("make a folder for the sources")?;
        let mut go = Command::new("go");
        match self.source {
            Source::Module { files, tags } => {
                for (name, text) in files {
                    let path = sources.path().join(name);
                    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
                }
                go.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]);
                go.arg(format!("-tags={tags}")).args(["-ldflags", &self.link_flags()]);
                go.arg("-o").arg(&unfinished).arg(".").current_dir(sources.path());
            }
            Source::Install { module, commands } => {
                go.args(["install", "-trimpath", "-ldflags", &self.link_flags()]);
                go.args(commands.iter().map(|command| format!("{module}/{command}@{version}")));
                go.env("GOBIN", &unfinished);
            }
        }
        go.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
        go.env("GOWORK", "off").stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
        let status = match go.status() {
            Ok(status) => status,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("there is no program named go: install Go 1.26 or newer (https://go.dev/dl)")
            }
            Err(error) => return Err(error).context("start go"),
        };
        ensure!(status.success(), "go build of {what} {version}: {status}; its words are above");
        let made = match self.source {
            Source::Install { commands: [_], .. } => unfinished.join(self.name),
            Source::Install { .. } | Source::Module { .. } => unfinished,
        };
        fs::rename(&made, place)
            .with_context(|| format!("move what was built to {}", place.display()))?;
        say(&format!("built in {} s: {}", began.elapsed().as_secs(), place.display()));
        Ok(())
    }
}

#[expect(clippy::print_stderr, reason = "whoever waits for minutes should know what for")]
fn say(text: &str) {
    eprintln!("{text}");
}
