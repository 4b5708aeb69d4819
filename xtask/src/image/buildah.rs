//! buildah, in a store of its own: plain folders instead of mounts, so that nothing is left of a build
//! that was killed but files.

use crate::say;
use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Where images are built, and bases kept.
pub(super) struct Store {
    folder: PathBuf,
    _lock: File,
}

/// A program of an image, and what must come of it.
pub(super) struct Try {
    program: &'static str,
    args: &'static [&'static str],
    input: Option<&'static str>,
    says: &'static str,
}

impl Try {
    pub(super) const fn saying(
        program: &'static str,
        args: &'static [&'static str],
        says: &'static str,
    ) -> Self {
        Self { program, args, input: None, says }
    }

    /// A CNI plugin, asked for the versions that it speaks.
    pub(super) const fn plugin(program: &'static str) -> Self {
        let input = Some(r#"{"cniVersion":"1.0.0","name":"tried","type":"tried"}"#);
        Self { program, args: &[], input, says: "supportedVersions" }
    }
}

impl Store {
    /// Waits until nobody else works in it, and takes away what a build that was killed has left.
    ///
    /// # Errors
    /// When there can be no such folder, or buildah refuses.
    pub(super) fn open() -> Result<Self> {
        let folder = cache()?.join("images");
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let lock = File::open(&folder).and_then(|file| file.lock().map(|()| file));
        let lock = lock.with_context(|| format!("lock {}", folder.display()))?;
        let store = Self { folder, _lock: lock };
        store.said(&["rm", "--all"])?;
        Ok(store)
    }

    /// The folder that is kept.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn has(&self, image: &str) -> bool {
        let mut asked = self.buildah(&["images", "--quiet", image]);
        asked.stderr(Stdio::null());
        asked.output().is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    }

    /// Makes an image of one layer from an archive of its files.
    pub(super) fn import(&self, files: &Path, image: &str) -> Result<()> {
        let container = self.said(&["from", "scratch"])?;
        let files = files.to_str().context("the cache's path is not UTF-8")?;
        let added = self
            .said(&["add", "--quiet", &container, files, "/"])
            .and_then(|_| self.said(&["commit", "--quiet", &container, image]));
        self.said(&["rm", &container])?;
        added.map(drop)
    }

    /// Builds what the file says, from programs that are built.
    pub(super) fn build(
        &self,
        file: &Path,
        context: &Path,
        tag: &str,
        revision: &str,
    ) -> Result<()> {
        let mut build = self.buildah(&["build", "--quiet", "--pull=never", "--layers=false"]);
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

    /// Runs programs in a container of the image, by the user that the image names.
    pub(super) fn try_all(&self, image: &str, tries: &[Try]) -> Result<()> {
        let container = self.said(&["from", "--pull=never", image])?;
        let outcome = tries.iter().try_for_each(|tried| self.try_one(&container, tried));
        self.said(&["rm", &container])?;
        outcome?;
        say::good(&format!("{} programs run in it", tries.len()));
        Ok(())
    }

    fn try_one(&self, container: &str, tried: &Try) -> Result<()> {
        let mut output = self.output_of(container, tried)?;
        // On a busy machine buildah's relay can end before it has read what a short program wrote.
        let is_silent = |of: &Output| of.stdout.is_empty() && of.stderr.is_empty();
        for _ in 0..RELAY_AGAIN {
            if output.status.success() && is_silent(&output) {
                output = self.output_of(container, tried)?;
            }
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(
            output.status.success() && said.contains(tried.says),
            "{} in the image: {}, and it did not say {:?} but: {said}",
            tried.program,
            output.status,
            tried.says
        );
        Ok(())
    }

    fn output_of(&self, container: &str, tried: &Try) -> Result<Output> {
        let mut run = self.buildah(&["run", "--isolation", "chroot"]);
        if tried.input.is_some() {
            run.args(["--env", "CNI_COMMAND=VERSION"]);
        }
        run.args([container, "--", tried.program]).args(tried.args);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().context("start buildah")?;
        if let Some(mut stdin) = child.stdin.take() {
            // Who does not read it says why.
            let _ = stdin.write_all(tried.input.unwrap_or_default().as_bytes());
        }
        child.wait_with_output().context("wait for buildah")
    }

    /// Writes the image as an archive, and forgets it: what is kept is the base.
    pub(super) fn write(&self, image: &str, archive: &Path) -> Result<()> {
        let unfinished = archive.with_extension("next");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", unfinished.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let to = format!("docker-archive:{}:{image}", unfinished.display());
        self.said(&["push", "--quiet", image, &to])?;
        std::fs::rename(&unfinished, archive)
            .with_context(|| format!("move the image to {}", archive.display()))?;
        // What stages were made in, and they themselves.
        self.said(&["rm", "--all"])?;
        self.said(&["rmi", image])?;
        self.said(&["rmi", "--prune"]).map(drop)
    }

    fn said(&self, args: &[&str]) -> Result<String> {
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
        // The machine's own files of configuration may name another driver's options.
        buildah.env("BUILDAH_ISOLATION", "chroot").env_remove("STORAGE_OPTS");
        buildah
    }
}

/// The user's cache.
///
/// # Errors
/// When nobody says where it is.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("ferrule"))
}

/// Enough for a machine that is as busy as it can be.
const RELAY_AGAIN: u32 = 4;
