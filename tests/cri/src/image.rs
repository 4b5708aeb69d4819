//! The image of the sandboxes: one static program, packed by hand, from no registry.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The image's name.
pub(crate) const NAME: &str = "test.local/pod:1";

/// Builds the image as an archive in this folder.
pub(crate) fn pack(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder.join("root")).context("make a folder for the image")?;
    run(folder, "cc", &["-static", "-O2", "-Wall", "-Werror", "-o", "root/pod", PROGRAM])?;
    run(folder, "tar", &["--owner=0", "--group=0", "-C", "root", "-cf", "layer.tar", "pod"])?;
    let digest = run(folder, "sha256sum", &["layer.tar"])?;
    let digest = digest.split_whitespace().next().context("sha256sum printed nothing")?;
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/pod"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{
        "Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"],
    }]);
    for (name, content) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(folder.join(name), content.to_string())
            .with_context(|| format!("write the image's {name}"))?;
    }
    run(folder, "tar", &["-cf", "image.tar", "manifest.json", "config.json", "layer.tar"])?;
    Ok(folder.join("image.tar"))
}

/// This machine's, as OCI writes it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn run(folder: &Path, program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}: {said}", args.join(" "), output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pod/pod.c");
