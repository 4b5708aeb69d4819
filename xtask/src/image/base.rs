//! The base: the files of Debian packages that our programs need, without a shell.

use super::buildah::Store;
use crate::{architecture::Architecture, say};
use anyhow::{Context as _, Result, ensure};
use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;

/// A base image in the store.
pub(super) struct Base {
    pub(super) name: String,
    /// The dpkg folder of the base.
    pub(super) packages: TempDir,
}

/// Returns the base, which is recreated if it is older than a month.
///
/// # Errors
/// If there is none and it cannot be created, for example because the mirror of Debian is unreachable.
pub(super) fn ready(store: &Store, architecture: Architecture) -> Result<Base> {
    let mut hash = DefaultHasher::new();
    (PACKAGES, SUITE, HOOK).hash(&mut hash);
    let key = format!("{:016x}", hash.finish());
    let of = format!("{SUITE}-{}-{key}", architecture.name());
    let files = store.folder().join(format!("base-{of}.tar"));
    let made = |files: &Path| fs::metadata(files).and_then(|found| found.modified()).ok();
    let fresh = |at: SystemTime| at.elapsed().is_ok_and(|age| age < RENEWED_AFTER);
    if !made(&files).is_some_and(fresh) {
        say::step(&format!("a base of Debian {SUITE}'s packages: {PACKAGES}, ca-certificates"));
        match make(&files, architecture) {
            Err(error) if files.is_file() => {
                say::note(&format!(
                    "the base of before is used, as there is no new one: {error:#}"
                ));
            }
            done => done?,
        }
    }
    let at = made(&files).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.with_context(|| format!("when {} was made", files.display()))?;
    let name = format!("localhost/ferrule-base:{of}-{}", at.as_secs());
    if !store.has(&name) {
        store.import(&files, architecture, &name)?;
    }
    Ok(Base { name, packages: packages(&files)? })
}

fn make(files: &Path, architecture: Architecture) -> Result<()> {
    let hook = tempfile::NamedTempFile::new().context("make a file for the hook")?;
    fs::write(&hook, HOOK).context("write the hook")?;
    let unfinished = files.with_extension("next");
    let status = Command::new("mmdebstrap")
        .args(["--quiet", "--variant=extract", "--skip=output/dev,output/mknod", "--format=tar"])
        .arg(format!("--architectures={}", architecture.name()))
        .arg(format!("--include={PACKAGES}"))
        .arg(format!("--extract-hook=sh {} \"$1\"", hook.path().display()))
        .arg(SUITE)
        .arg(&unfinished)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("start mmdebstrap")?;
    ensure!(
        status.success(),
        "mmdebstrap: {status}; its words are above: it needs a mirror of Debian's packages"
    );
    fs::rename(&unfinished, files).with_context(|| format!("move it to {}", files.display()))
}

/// Copies the dpkg folder of the base.
fn packages(files: &Path) -> Result<TempDir> {
    let folder = tempfile::tempdir().context("make a folder for the list of packages")?;
    let status = Command::new("tar")
        .args(["--extract", "--strip-components=4", "--file"])
        .arg(files)
        .arg("--directory")
        .arg(folder.path())
        .arg("./var/lib/dpkg")
        .status()
        .context("start tar")?;
    ensure!(status.success(), "tar finds no list of packages in {}: {status}", files.display());
    Ok(folder)
}

const SUITE: &str = "bookworm";
/// Packages with programs that ours call, and libraries that they link; the hook adds the certificates.
const PACKAGES: &str = "base-files,libc6,libgcc-s1,iptables,nftables";
const HOOK: &str = include_str!("base.sh");
/// The longest time for which security fixes in its packages may be missing.
const RENEWED_AFTER: Duration = Duration::from_secs(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    fn read(path: &str) -> String {
        fs::read_to_string(generate::root().join(path)).expect(path)
    }

    #[test]
    fn who_builds_by_the_containerfile_alone_has_the_same_base() {
        let file = read("Containerfile");
        assert!(file.contains(&format!("--include={PACKAGES} ")), "the packages are {PACKAGES}");
        assert!(file.contains(&format!(" {SUITE} /base\n")), "the suite is {SUITE}");
        assert!(file.contains(&format!(":{SUITE}-slim@")), "the suite is {SUITE}");
    }

    #[test]
    fn the_containerfile_has_the_compiler_that_is_asked_for() {
        let (file, asked) = (read("Containerfile"), read("rust-toolchain.toml"));
        let tag = file.lines().find_map(|line| line.strip_prefix("ARG RUST=")).expect("a compiler");
        let tag = tag.split('@').next().expect("a tag");
        let version = tag.rsplit(':').next().and_then(|tag| tag.split('-').next());
        let version = version.expect("a version");
        assert!(asked.contains(&format!("channel = \"{version}.")), "{tag}, and {asked}");
    }
}
