//! `cargo xtask image`: builds the image of the `Containerfile` from local programs on a base of Debian packages, and
//! prints its contents and size.
//!
//! buildah works in a store of its own below the user's cache, without mounts and without a registry.

mod base;
mod buildah;
mod file;
mod gather;
mod sbom;
mod size;

use crate::{
    architecture::Architecture,
    binaries::{self, Binaries, Profile},
    cargo,
    deps::{self, Need},
    generate, say,
};
use anyhow::{Context as _, Result, bail, ensure};
pub(crate) use buildah::cache;
use buildah::{Store, Try};
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build profile of the programs
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// Target architecture; the default is that of this machine
    #[arg(long, value_enum)]
    arch: Option<Architecture>,
    /// Name of the image
    #[arg(long, default_value = NAME)]
    tag: String,
    /// Path of the image archive for `docker load` and `podman load`; the default is image.tar beside the
    /// programs
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Load it into the containerds of a lab's cluster; the value names the lab
    #[arg(long, value_name = "LAB", num_args = 0..=1)]
    load: Option<Option<String>>,
    /// Only copy the files of the image above its base into this folder, for the Containerfile
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["tag", "output", "load"])]
    gather: Option<PathBuf>,
    /// dpkg folder of the base, whose packages go into the list of parts
    #[arg(long, value_name = "FOLDER", requires = "gather")]
    packages: Option<PathBuf>,
}

/// The default name of the image. No registry has it.
pub(crate) const NAME: &str = concat!("localhost/ferrule:", env!("CARGO_PKG_VERSION"));

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let architecture = args.arch.map_or_else(Architecture::here, Ok)?;
    if let Some(folder) = &args.gather {
        deps::install(&[Need::Clang])?;
        let built = binaries::build_for_image(args.profile, architecture)?;
        gather::into(&built, architecture, folder, args.packages.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let archive = match &args.output {
        Some(path) => std::path::absolute(path).context("where the archive goes")?,
        None => binaries::folder(args.profile, architecture).join(ARCHIVE),
    };
    ensure!(
        args.load.is_none() || architecture.is_here(),
        "the nodes of a lab's cluster are as this machine: leave out --arch"
    );
    ready()?;
    // The tests build all programs at once, and features of dependencies depend on that selection.
    let with_lab = args.load.is_some() || args.profile == Profile::Dev;
    let built = if with_lab && architecture.is_here() {
        binaries::build(args.profile)?
    } else {
        binaries::build_for_image(args.profile, architecture)?
    };
    pack(&built, architecture, &args.tag, &archive)?;
    if let Some(lab) = &args.load {
        load(&built, lab.as_deref(), &archive)?;
    }
    say::result(&archive.display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// The path of the image archive for this profile.
pub(crate) fn archive(profile: Profile) -> PathBuf {
    cargo::target_dir().join("ferrule").join(profile.folder()).join(ARCHIVE)
}

const ARCHIVE: &str = "image.tar";

/// Builds the programs and the image, tries each program in it, and prints its size.
///
/// # Errors
/// Names the failed step; the output of its program is above.
pub(crate) fn make(profile: Profile, tag: &str, archive: &Path) -> Result<Binaries> {
    ready()?;
    let built = binaries::build(profile)?;
    pack(&built, Architecture::here()?, tag, archive)?;
    Ok(built)
}

fn ready() -> Result<()> {
    if !deps::is_root() {
        bail!("an image has files of root: run this as root, by sudo -E for one");
    }
    deps::install(&[Need::Linker, Need::Go, Need::Image, Need::Clang])
}

/// Builds an image of the programs. Other builds wait for the store meanwhile.
fn pack(built: &Binaries, architecture: Architecture, tag: &str, archive: &Path) -> Result<()> {
    if !architecture.is_here() {
        deps::install(&[Need::Emulator])?;
    }
    let store = Store::open()?;
    let base = base::ready(&store, architecture)?;
    let context = tempfile::tempdir().context("make a folder for what goes into the image")?;
    let laid = context.path().join("prebuilt");
    gather::into(built, architecture, &laid, Some(base.packages.path()))?;
    let began = Instant::now();
    say::step(&format!("building {tag}"));
    let file = context.path().join("Containerfile");
    file::write(&file, &base.name, "prebuilt")?;
    store.build(&file, context.path(), architecture, tag, &revision())?;
    say::good(&format!("built in {}", say::took(began)));
    say::step("trying each program in it, as nobody in particular");
    store.try_all(tag, architecture, TRIED)?;
    store.write(tag, archive)?;
    size::print(archive, &laid)
}

/// Loads an archive into the containerds of a lab's cluster.
///
/// # Errors
/// If the lab has no cluster, or one of its containerds fails; the output of the tool is above.
fn load(built: &Binaries, lab: Option<&str>, archive: &Path) -> Result<()> {
    say::step("loading it into the cluster's containerds");
    let mut tool = Command::new(built.lab());
    if let Some(lab) = lab {
        tool.args(["--name", lab]);
    }
    let status = tool.args(["cluster", "load-image"]).arg(archive).status();
    let status = status.context("start ferrule-lab")?;
    ensure!(status.success(), "ferrule-lab cluster load-image: {status}");
    Ok(())
}

/// The commit, for the image's label.
fn revision() -> String {
    let mut git = Command::new("git");
    git.args(["-C"]).arg(generate::root()).args(["rev-parse", "HEAD"]);
    let told = git.output().ok().filter(|output| output.status.success());
    let told = told.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    told.unwrap_or_else(|| "unknown".to_owned())
}

/// Every program of the image and of its base that ours call, with the expected output.
const TRIED: &[Try] = &[
    Try::printing("/usr/local/bin/ferrule", &["--version"], VERSION),
    Try::printing("/usr/local/bin/ferrule-ipamd", &["--version"], VERSION),
    Try::printing("/usr/local/bin/ferrule-agent", &["--version"], VERSION),
    Try::printing("/usr/local/bin/ferrule-controller", &["--help"], "ferrule-controller"),
    Try::plugin("/usr/local/bin/ferrule-cni"),
    Try::plugin("/opt/cni/plugins/loopback"),
    Try::plugin("/opt/cni/plugins/portmap"),
    Try::plugin("/opt/cni/plugins/bandwidth"),
    Try::plugin("/opt/cni/plugins/tuning"),
    Try::printing("/usr/sbin/nft", &["--version"], "nftables").until("Netlink socket"),
    Try::printing("/usr/sbin/iptables-nft-save", &["--version"], "nf_tables"),
    Try::printing("/usr/sbin/iptables-legacy-save", &["--version"], "legacy"),
];

const VERSION: &str = env!("CARGO_PKG_VERSION");
