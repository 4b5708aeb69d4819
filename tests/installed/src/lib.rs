//! A cluster of the lab with Ferrule installed by its chart, and traffic between its pods that
//! counts what is lost.
//!
//! The lane `whole` says by its environment where programs, image and chart are. Without it a test
//! that needs them is skipped, by name.

#![expect(clippy::print_stdout, reason = "a skip is told on standard output")]

mod installed;
mod traffic;

pub use installed::{Installed, Pod};
pub use traffic::{Counts, Newcomers, Traffic};

use std::path::PathBuf;

/// What a test is given by its lane.
#[derive(Clone, Debug)]
pub struct Given {
    /// The folder of our programs.
    pub programs: PathBuf,
    /// The image, as an archive.
    pub image: PathBuf,
    /// The chart's folder.
    pub chart: PathBuf,
}

impl Given {
    /// What the lane gave; `None`, and a line that says so, where `test` cannot run.
    pub fn or_skip(test: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            println!("SKIP {test}: needs root");
            return None;
        }
        let of = |name: &str| {
            let value = std::env::var_os(name).map(PathBuf::from);
            if value.is_none() {
                println!("SKIP {test}: {name} is not set; run: cargo xtask test whole");
            }
            value
        };
        Some(Self {
            programs: of("FERRULE_BIN_DIR")?,
            image: of("FERRULE_IMAGE")?,
            chart: of("FERRULE_CHART")?,
        })
    }
}
