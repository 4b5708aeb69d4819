//! The image of the sandboxes: one static program, not from a registry.

use anyhow::{Context as _, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub(crate) const NAME: &str = "test.local/pod:1";

/// Builds the image as an archive in this folder.
pub(crate) fn pack(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).context("make a folder for the image")?;
    let pod = folder.join("pod");
    let output = Command::new("cc")
        .args(["-static", "-O2", "-Wall", "-Werror", "-o"])
        .args([&pod, Path::new(PROGRAM)])
        .stdin(Stdio::null())
        .output()
        .context("start cc")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cc {PROGRAM}: {}: {text}", output.status);
    lab_programs::image::pack(folder, NAME, &pod, &["/pod"])
}

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pod/pod.c");
