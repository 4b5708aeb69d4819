//! The programs and their places in the cache.

use crate::{
    architecture::here,
    build,
    recipe::{self, Recipe},
};
use anyhow::{Context as _, Result};
use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

/// A program, or a folder of them, in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(PathBuf);

impl Program {
    /// All Kubernetes components in one program; the first argument names the component.
    ///
    /// The first use builds it if the cache lacks it, which takes minutes on two cores. Later uses take it from the
    /// cache.
    ///
    /// The cache is `FERRULE_KUBERNETES_CACHE`, else `$XDG_CACHE_HOME/ferrule/kubernetes`, else
    /// `~/.cache/ferrule/kubernetes`. The other programs have folders beside it. Processes that need the same
    /// program at the same time wait for one build.
    ///
    /// # Errors
    /// If Go is missing or the build fails; the error contains the end of the build's output.
    pub fn ready() -> Result<Self> {
        recipe::KUBERNETES.ready()
    }

    /// True if [`Program::ready`] would not have to build.
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

    /// # Errors
    /// As [`Program::ready`].
    pub fn coredns() -> Result<Self> {
        recipe::COREDNS.ready()
    }

    /// The program in the lab's pods; its source is `sources/probe`.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn probe() -> Result<Self> {
        recipe::PROBE.ready()
    }

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

    /// The same for that architecture, `amd64` or `arm64`.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn plugins_for(architecture: &str) -> Result<Self> {
        let other = (architecture != here()).then_some(architecture);
        recipe::PLUGINS.ready_for(other)
    }

    /// containerd with its shim for runc and `ctr`: the folder that holds them and nothing else.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn containerd() -> Result<Self> {
        recipe::CONTAINERD.ready()
    }

    /// amazon-vpc-cni: the folder of its agent and plugins, with the files that its image has beside them.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn vpc_cni() -> Result<Self> {
        recipe::VPC_CNI.ready()
    }

    /// Kubernetes' end-to-end tests, and the programs of their images: the folder of `e2e.test`, `agnhost`,
    /// `agnhost.kubernetes` and `regression-issue-74839`.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn conformance() -> Result<Self> {
        recipe::CONFORMANCE.ready()
    }

    /// aws-network-policy-agent: the folder of its eBPF programs and of two programs. `controller` is the program of its
    /// image. `network-policy-agent` attaches the eBPF programs by that agent's code without a cluster. Needs clang.
    ///
    /// # Errors
    /// As [`Program::ready`], or if clang is missing.
    pub fn network_policy_agent() -> Result<Self> {
        recipe::NETWORK_POLICY_AGENT.ready()
    }

    /// The conformance tests of network-policy-api: the folder of `policy-api.test`.
    ///
    /// # Errors
    /// As [`Program::ready`].
    pub fn policy_api() -> Result<Self> {
        recipe::POLICY_API.ready()
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Recipe {
    fn ready(&self) -> Result<Program> {
        self.ready_for(None)
    }

    /// For this machine's architecture, or for that one.
    fn ready_for(&self, other: Option<&str>) -> Result<Program> {
        let place = self.place()?;
        let place = other.map_or(place.clone(), |other| place.with_extension(other));
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
            build::at(&place, self, other)?;
        }
        Ok(Program(place))
    }

    /// Path of the program after its build.
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
}
