//! `ferrule-cluster`: a Kubernetes that runs until `down`.

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tests_cluster::{ClusterSpec, Part, Program, VERSION, keep};

#[derive(Parser)]
#[command(
    name = "cargo xtask cluster",
    about = "A real Kubernetes on this machine's loopback",
    after_help = "`up` prints the value for KUBECONFIG. The first `up` builds Kubernetes from its Go modules, which takes minutes."
)]
struct Cli {
    /// Folder of the cluster's state
    #[arg(long, env = "FERRULE_CLUSTER_DIR", default_value = "/tmp/ferrule-cluster")]
    dir: PathBuf,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// Text for people
    Text,
    /// One JSON object
    Json,
}

#[derive(Subcommand)]
enum Verb {
    /// Start etcd, the API server, the controller manager and the scheduler
    Up {
        /// Only etcd and the API server
        #[arg(long)]
        api_only: bool,
    },
    /// Stop the cluster and remove its files
    Down,
    /// List the running components
    Status,
    /// Build a program of the same version unless it is in the cache, and print its path
    Program {
        /// Name of the program
        name: Name,
        /// Architecture of the plugins; default: that of this machine
        #[arg(long, value_name = "amd64|arm64")]
        arch: Option<String>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// The client of the same version
    Kubectl,
    /// The chart tool
    Helm,
    /// Folder with the CNI project's plugins
    Plugins,
}

#[derive(Serialize)]
struct Status {
    version: &'static str,
    running: Vec<&'static str>,
    kubeconfig: Option<PathBuf>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.verb {
        Verb::Up { api_only } => {
            if !keep::what_runs(&cli.dir).is_empty() {
                bail!("a cluster is already running in {}; stop it with `down`", cli.dir.display());
            }
            keep::forget(&cli.dir)?;
            std::fs::create_dir_all(&cli.dir)
                .with_context(|| format!("create {}", cli.dir.display()))?;
            let all = vec![Part::ControllerManager, Part::Scheduler];
            let parts = if api_only { Vec::new() } else { all };
            let wanted = ClusterSpec { parts, ..ClusterSpec::default() };
            if let Err(error) = keep::up(&cli.dir, &wanted).map(drop) {
                keep::down(&cli.dir);
                return Err(error);
            }
            show(&cli.dir, cli.output)
        }
        Verb::Down => {
            keep::down(&cli.dir);
            keep::forget(&cli.dir)?;
            show(&cli.dir, cli.output)
        }
        Verb::Status => show(&cli.dir, cli.output),
        Verb::Program { name, arch } => print_path(name, arch.as_deref()),
    }
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn print_path(name: Name, arch: Option<&str>) -> Result<()> {
    if arch.is_some() && !matches!(name, Name::Plugins) {
        bail!("--arch is valid for plugins only");
    }
    let program = match name {
        Name::Kubectl => Program::kubectl(),
        Name::Helm => Program::helm(),
        Name::Plugins => arch.map_or_else(Program::plugins, Program::plugins_for),
    };
    println!("{}", program?.path().display());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn show(folder: &Path, output: Output) -> Result<()> {
    let running = keep::what_runs(folder);
    let kubeconfig = (!running.is_empty()).then(|| keep::kubeconfig(folder));
    let status = Status { version: VERSION, running, kubeconfig };
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
        Output::Text => match &status.kubeconfig {
            None => println!("no cluster runs"),
            Some(path) => {
                println!("Kubernetes {VERSION} runs: {}", status.running.join(", "));
                println!("export KUBECONFIG={}", path.display());
            }
        },
    }
    Ok(())
}
