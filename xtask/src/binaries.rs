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

    /// The arguments that select the profile of a program's crate in cargo, and the folder below the target folder.
    fn of_program(self, program_crate: &str) -> (&'static [&'static str], &'static str) {
        match (self, program_crate) {
            (Self::Release, THE_DAEMON) => (&["--profile", "daemon"], "daemon"),
            (Self::Dev | Self::Release, _) => (self.cargo_args(), self.folder()),
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
    (THE_DAEMON, "ferrule-ipamd"),
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
/// Its release build is for size.
const THE_DAEMON: &str = "ipamd-daemon";

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

/// Builds only the programs of a node and of the lab: the other release builds take many minutes.
///
/// # Errors
/// Names the build that failed; the output of cargo is above.
pub(crate) fn build_for_bench(profile: Profile) -> Result<Binaries> {
    let programs: Vec<_> =
        PROGRAMS.into_iter().filter(|(of, _)| [THE_DAEMON, THE_LAB].contains(of)).collect();
    build_these(profile, &programs)
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
    let built = cargo::target_dir().join(architecture.triple());
    let dir = folder(profile, architecture);
    std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
    build_and_place(profile, &programs, &target, &built, &dir)?;
    cargo::place(&plugin_for(architecture)?, &dir.join("ferrule-cni"))?;
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
    build_and_place(profile, programs, &[], &cargo::target_dir(), &dir)?;
    cargo::place(&plugin()?, &dir.join("ferrule-cni"))?;
    say::good(&format!("built in {}", say::took(started)));
    if profile == Profile::Dev && programs.len() == PROGRAMS.len() {
        BUILT.get_or_init(|| dir.clone());
    }
    Ok(Binaries { dir })
}

/// Builds the programs, with one run of cargo for each profile, and gathers them in `dir`. `built` is the folder with
/// the folders of the profiles.
fn build_and_place(
    profile: Profile,
    programs: &[(&str, &str)],
    target: &[&str],
    built: &Path,
    dir: &Path,
) -> Result<()> {
    let mut runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for &(of, _) in programs {
        let (selected, folder) = profile.of_program(of);
        let args = runs.entry(folder).or_insert_with(|| [selected, target].concat());
        args.extend(["-p", of]);
    }
    runs.values().try_for_each(|args| cargo::build(args))?;
    programs.iter().try_for_each(|&(of, name)| {
        let (_, folder) = profile.of_program(of);
        cargo::place(&built.join(folder).join(name), &dir.join(name))
    })
}

/// Builds the plugin for this machine.
pub(crate) fn plugin() -> Result<PathBuf> {
    plugin_for(Architecture::here()?)
}

/// Builds the plugin: stripped, static, with musl, and at a fixed address. It is executed for every pod, and the start
/// of glibc would take a seventh of a DEL (docs/decisions/0013).
fn plugin_for(architecture: Architecture) -> Result<PathBuf> {
    say::step("building the plugin (static)");
    architecture.get_static_library()?;
    let triple = architecture.static_triple();
    let linker = architecture.linker_args(&triple);
    let flags = format!("target.{triple}.rustflags=[\"-C\", \"relocation-model=static\"]");
    let mut args = vec!["--profile", "plugin", "-p", "cni", "--target", &triple];
    args.extend(["--config", &flags]);
    args.extend(linker.iter().map(String::as_str));
    cargo::build(&args)?;
    Ok(cargo::target_dir().join(triple).join("plugin").join("ferrule-cni"))
}
