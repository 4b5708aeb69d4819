//! buildah in a store of its own: plain folders instead of mounts, so that a killed build leaves only files.

use crate::{architecture::Architecture, say};
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The folder in which images are built and bases are kept.
pub(super) struct Store {
    folder: PathBuf,
    _lock: File,
}

/// A program of an image, with the expected result.
pub(super) struct Try {
    program: &'static str,
    args: &'static [&'static str],
    input: Option<&'static str>,
    expected: &'static str,
    /// The output at which the program may stop if the emulator lacks a kernel feature.
    until: Option<&'static str>,
}

impl Try {
    pub(super) const fn printing(
        program: &'static str,
        args: &'static [&'static str],
        expected: &'static str,
    ) -> Self {
        Self { program, args, input: None, expected, until: None }
    }

    /// A CNI plugin that prints its supported versions.
    pub(super) const fn plugin(program: &'static str) -> Self {
        let input = Some(r#"{"cniVersion":"1.0.0","name":"tried","type":"tried"}"#);
        Self { program, args: &[], input, expected: "supportedVersions", until: None }
    }

    /// QEMU supports netlink without netfilter. There the program must at least load all its libraries.
    pub(super) const fn until(self, stops: &'static str) -> Self {
        Self { until: Some(stops), ..self }
    }

    fn run(&self, chroot: &[String], is_emulated: bool) -> Result<()> {
        let mut run = Command::new("chroot");
        run.args(chroot).arg(self.program).args(self.args).env_clear().env("PATH", PATH);
        if self.input.is_some() {
            run.env("CNI_COMMAND", "VERSION");
        }
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().context("start chroot")?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read its input reports the reason.
            let _ = stdin.write_all(self.input.unwrap_or_default().as_bytes());
        }
        let output = child.wait_with_output().context("wait for chroot")?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let is_stopped = is_emulated && self.until.is_some_and(|words| printed.contains(words));
        ensure!(
            is_stopped || output.status.success() && printed.contains(self.expected),
            "{} in the image: {}; expected {:?} in its output: {printed}",
            self.program,
            output.status,
            self.expected
        );
        Ok(())
    }
}

impl Store {
    /// Waits for exclusive use of the store, and removes the files of a killed build.
    ///
    /// # Errors
    /// If the folder cannot be created, or buildah fails.
    pub(super) fn open() -> Result<Self> {
        let folder = cache()?.join("images");
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let lock = File::open(&folder).and_then(|file| file.lock().map(|()| file));
        let lock = lock.with_context(|| format!("lock {}", folder.display()))?;
        let store = Self { folder, _lock: lock };
        store.run(&["rm", "--all"])?;
        Ok(store)
    }

    /// The persistent folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn has(&self, image: &str) -> bool {
        let mut asked = self.buildah(&["images", "--quiet", image]);
        asked.stderr(Stdio::null());
        asked.output().is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    }

    /// Makes an image of one layer from an archive of its files.
    pub(super) fn import(
        &self,
        files: &Path,
        architecture: Architecture,
        image: &str,
    ) -> Result<()> {
        let container = self.run(&["from", "scratch"])?;
        let files = files.to_str().context("the cache's path is not UTF-8")?;
        let added = self
            .run(&["config", "--arch", architecture.name(), &container])
            .and_then(|_| self.run(&["add", "--quiet", &container, files, "/"]))
            .and_then(|_| self.run(&["commit", "--quiet", &container, image]));
        self.run(&["rm", &container])?;
        added.map(drop)
    }

    /// Builds the file from programs that are built already.
    pub(super) fn build(
        &self,
        file: &Path,
        context: &Path,
        architecture: Architecture,
        tag: &str,
        revision: &str,
    ) -> Result<()> {
        let mut build = self.buildah(&["build", "--quiet", "--pull=never", "--layers=false"]);
        build.args(["--platform", &format!("linux/{}", architecture.name())]);
        let version = env!("CARGO_PKG_VERSION");
        for (name, value) in [("VERSION", version), ("REVISION", revision)] {
            build.args(["--build-arg", &format!("{name}={value}")]);
        }
        let status = build
            .args(["--tag", tag, "--file"])
            .arg(file)
            .arg(context)
            .stdout(Stdio::null())
            .status()
            .context("start buildah")?;
        ensure!(status.success(), "buildah build: {status}; its words are above");
        Ok(())
    }

    /// Runs programs in the image's files, as the user that the image names.
    ///
    /// It uses chroot and not `buildah run`, whose relay loses output of short programs on a busy machine.
    pub(super) fn try_all(
        &self,
        image: &str,
        architecture: Architecture,
        tries: &[Try],
    ) -> Result<()> {
        let container = self.run(&["from", "--pull=never", image])?;
        let outcome = self.try_in(&container, architecture, tries);
        self.run(&["rm", &container])?;
        outcome?;
        say::good(&format!("{} programs run in it", tries.len()));
        Ok(())
    }

    fn try_in(&self, container: &str, architecture: Architecture, tries: &[Try]) -> Result<()> {
        let root = PathBuf::from(self.run(&["mount", container])?);
        let user = self.run(&["inspect", "--format", "{{.OCIv1.Config.User}}", container])?;
        ensure!(!user.is_empty(), "the image names no user");
        let mut chroot = vec![format!("--userspec={user}"), root.display().to_string()];
        if let Some(emulator) = architecture.emulator() {
            let inside = format!("/{emulator}");
            let from = Path::new("/usr/bin").join(&emulator);
            std::fs::copy(&from, root.join(&emulator))
                .with_context(|| format!("copy {} beside the image's files", from.display()))?;
            chroot.push(inside);
        }
        tries.iter().try_for_each(|tried| tried.run(&chroot, !architecture.is_here()))
    }

    /// Writes the image as an archive and removes it from the store, which keeps only the base.
    pub(super) fn write(&self, image: &str, archive: &Path) -> Result<()> {
        let unfinished = archive.with_extension("next");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", unfinished.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let to = format!("docker-archive:{}:{image}", unfinished.display());
        self.run(&["push", "--quiet", image, &to])?;
        std::fs::rename(&unfinished, archive)
            .with_context(|| format!("move the image to {}", archive.display()))?;
        // Containers of the stages, and the stages.
        self.run(&["rm", "--all"])?;
        self.run(&["rmi", image])?;
        self.run(&["rmi", "--prune"]).map(drop)
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.buildah(args).output().context("start buildah")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("buildah {}: {}: {}", args.join(" "), output.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn buildah(&self, args: &[&str]) -> Command {
        let mut buildah = Command::new("buildah");
        buildah.arg("--root").arg(self.folder.join("store"));
        buildah.arg("--runroot").arg(self.folder.join("run"));
        buildah.args(["--storage-driver", "vfs"]).args(args).stdin(Stdio::null());
        // The configuration of the machine may name options of another driver.
        buildah.env("BUILDAH_ISOLATION", "chroot").env_remove("STORAGE_OPTS");
        buildah
    }
}

/// The user's cache folder.
///
/// # Errors
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrule"))
}

/// Path of chroot on this machine, and `PATH` of the image's programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
