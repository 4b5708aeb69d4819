//! The project's commands: `cargo xtask demo`, `cargo xtask test` and others.
//!
//! Start in [`lanes`] for the tests, in [`demo`] for the demonstration. The commands run other programs; none of this
//! code runs on a node.

mod architecture;
mod bench;
mod binaries;
mod book;
mod bpf;
mod cargo;
mod circles;
mod cluster;
mod demo;
mod deps;
mod fuzz;
mod generate;
mod image;
mod interrupt;
mod lanes;
mod layers;
mod libtest;
mod next_release;
mod processes;
mod programs;
mod prose;
mod say;
mod sim;
mod tools;
mod vm;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "Ferrule's commands for the people who build it"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Two nodes, ninety pods, every pod to every other: the whole path for real
    Demo(demo::Args),
    /// Run the tests, lane by lane
    Test(lanes::Args),
    /// Simulate node lives, one for each seed, until one breaks a law
    Sim(sim::Args),
    /// Search for inputs that break a parser, guided by what they reach
    Fuzz(fuzz::Args),
    /// A real Kubernetes on loopback: up, down, status
    #[command(disable_help_flag = true)]
    Cluster(cluster::Args),
    /// Measure; ratios are taken within one run
    Bench(bench::Args),
    /// Check that dependencies point down and that pure crates are pure
    Layers,
    /// Write the generated files (or check them with --check)
    Generate(generate::Args),
    /// Install what the other commands need from Debian's packages
    InstallDeps(deps::Args),
    /// Build the programs and print where they are
    Build(binaries::Args),
    /// Build the pages of docs as a book and print its first page
    Book,
    /// Check names and text against docs/style.md
    Prose(prose::Args),
    /// Build the image by the Containerfile, try it, print its size
    Image(image::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(err) => {
            say::fail(&format!("{err:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Test(args) => lanes::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Layers => layers::run(),
        Command::Generate(args) => generate::run(&args),
        Command::InstallDeps(args) => deps::run(&args),
        Command::Build(args) => binaries::run(&args),
        Command::Book => book::run(),
        Command::Prose(args) => prose::run(&args),
        Command::Image(args) => image::run(&args),
    }
}
