//! The programs: the build of each, and its place afterwards.

use crate::{architecture::Architecture, cargo, deps, next_release, say};
use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::OnceLock,
    time::Instant,
};

/// The build profile of daemon and lab. The plugin always has its release profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// With development checks; shares the build of the SDK with the tests
    Dev,
    /// For release and for benchmarks
    Release,
}

impl Profile {
    /// The folder below the target folder.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }

    /// The arguments that select the profile in cargo.
    pub(crate) fn cargo_args(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Release => &["--release"],
        }
    }
}

/// The built programs, all in one folder.
pub(crate) struct Binaries {
    /// The folder that `ferrule-lab --bin-dir` takes.
    pub(crate) dir: PathBuf,
}

impl Binaries {
    /// The tool `ferrule-lab`.
    pub(crate) fn lab(&self) -> PathBuf {
        self.dir.join("ferrule-lab")
    }

    pub(crate) fn plugin(&self) -> PathBuf {
        self.dir.join("ferrule-cni")
    }

    /// The tool `ferrule`.
    pub(crate) fn cli(&self) -> PathBuf {
        self.dir.join("ferrule")
    }
}

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build profile of daemon and lab
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// Build the daemon and plugin of the next release instead, for upgrade tests (FERRULE_NEXT_DIR)
    #[arg(long)]
    next: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    deps::install(&[deps::Need::Linker])?;
    let dir = if args.next { next_release::build()? } else { build(args.profile)?.dir };
    say::result(&dir.display().to_string());
    Ok(ExitCode::SUCCESS)
}

/// Programs with cargo's default target, by crate. The plugin is built separately.
const PROGRAMS: [(&str, &str); 5] = [
    ("ipamd-daemon", "ferrule-ipamd"),
    ("datapath-agent", "ferrule-agent"),
    ("control-controller", "ferrule-controller"),
    ("lab-server", "ferrule-lab"),
    ("cli", "ferrule"),
];

/// Development programs that this process has built already.
static BUILT: OnceLock<PathBuf> = OnceLock::new();
/// All programs that came out of the build for the lanes, by name.
static BESIDE: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();

/// A program that was built along with the tests of all lanes.
pub(crate) fn built_beside(name: &str) -> Option<&'static Path> {
    BESIDE.get()?.get(name).map(PathBuf::as_path)
}

/// Gathers programs that were built along with the tests, and the plugin: [`build`] need not build them again.
///
/// # Errors
/// When one is missing or cannot be copied, or the plugin does not build.
pub(crate) fn take(programs: &BTreeMap<String, PathBuf>) -> Result<()> {
    let dir = folder(Profile::Dev, Architecture::here()?);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    for (_, name) in PROGRAMS {
        let built = programs.get(name).with_context(|| format!("{name} was not built"))?;
        cargo::place(built, &dir.join(name))?;
    }
    cargo::place(&plugin()?, &dir.join("ferrule-cni"))?;
    BUILT.get_or_init(|| dir);
    BESIDE.get_or_init(|| programs.clone());
    Ok(())
}

/// The programs of the image except the plugin. The lab is not part of it.
fn in_the_image() -> impl Iterator<Item = (&'static str, &'static str)> {
    let plugin = ("cni", "ferrule-cni");
    PROGRAMS.into_iter().chain([plugin]).filter(|(of, _)| *of != THE_LAB)
}

const THE_LAB: &str = "lab-server";

/// The programs of the image.
pub(crate) fn image_programs() -> impl Iterator<Item = &'static str> {
    in_the_image().map(|(_, name)| name)
}

/// The crates of the image's programs.
pub(crate) fn image_crates() -> impl Iterator<Item = &'static str> {
    in_the_image().map(|(of, _)| of)
}

/// Builds the programs of a node, a cluster and the lab, and gathers them in one folder.
///
/// # Errors
/// Names the build that failed; the output of cargo is above.
pub(crate) fn build(profile: Profile) -> Result<Binaries> {
    build_these(profile, &PROGRAMS)
}

/// Builds only the programs of the image.
///
/// # Errors
/// Names the build that failed; the output of cargo is above.
pub(crate) fn build_for_image(profile: Profile, architecture: Architecture) -> Result<Binaries> {
    let programs: Vec<_> = PROGRAMS.into_iter().filter(|(of, _)| *of != THE_LAB).collect();
    if architecture.is_here() {
        return build_these(profile, &programs);
    }
    architecture.get_compilers()?;
    let started = Instant::now();
    let name = architecture.name();
    say::step(&format!("building the programs for {name} (the first time takes minutes)"));
    let target = architecture.cargo_args();
    let target: Vec<&str> = target.iter().map(String::as_str).collect();
    let built = cargo::target_dir().join(architecture.triple()).join(profile.folder());
    let dir = folder(profile, architecture);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    build_and_place(profile, &programs, &target, &built, &dir)?;
    cargo::place(&plugin_for(&architecture.triple(), &target)?, &dir.join("ferrule-cni"))?;
    say::good(&format!("built in {}", say::took(started)));
    Ok(Binaries { dir })
}

/// The folder of the gathered programs.
pub(crate) fn folder(profile: Profile, architecture: Architecture) -> PathBuf {
    let mut folder = cargo::target_dir().join("ferrule");
    if !architecture.is_here() {
        folder.push(architecture.name());
    }
    folder.join(profile.folder())
}

/// Builds these programs and the plugin for this machine.
fn build_these(profile: Profile, programs: &[(&str, &str)]) -> Result<Binaries> {
    if let (Profile::Dev, Some(dir)) = (profile, BUILT.get()) {
        return Ok(Binaries { dir: dir.clone() });
    }
    let dir = cargo::target_dir().join("ferrule").join(profile.folder());
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    let started = Instant::now();
    say::step("building the programs (the first time takes minutes: the EC2 SDK)");
    build_and_place(profile, programs, &[], &cargo::target_dir().join(profile.folder()), &dir)?;
    cargo::place(&plugin()?, &dir.join("ferrule-cni"))?;
    say::good(&format!("built in {}", say::took(started)));
    if profile == Profile::Dev && programs.len() == PROGRAMS.len() {
        BUILT.get_or_init(|| dir.clone());
    }
    Ok(Binaries { dir })
}

fn build_and_place(
    profile: Profile,
    programs: &[(&str, &str)],
    target: &[&str],
    built: &Path,
    dir: &Path,
) -> Result<()> {
    let mut args = [profile.cargo_args(), target].concat();
    args.extend(programs.iter().flat_map(|(of, _)| ["-p", of]));
    cargo::build(&args)?;
    programs.iter().try_for_each(|(_, name)| cargo::place(&built.join(name), &dir.join(name)))
}

/// Builds the plugin: stripped, static down to the C library, and at a fixed address. It is executed for every pod.
/// Relocation would cost it a fifth of its page faults (docs/decisions/0013).
pub(crate) fn plugin() -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    plugin_for(&triple, &["--target", &triple])
}

fn plugin_for(triple: &str, target: &[&str]) -> Result<PathBuf> {
    say::step("building the plugin (static)");
    let flags = format!(
        "target.{triple}.rustflags=[\"-C\", \"target-feature=+crt-static\", \"-C\", \"relocation-model=static\"]"
    );
    let plugin = ["--profile", "plugin", "-p", "cni", "--config", &flags];
    cargo::build(&[&plugin, target].concat())?;
    Ok(cargo::target_dir().join(triple).join("plugin").join("ferrule-cni"))
}
