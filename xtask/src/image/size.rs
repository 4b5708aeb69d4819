//! The size of the image: each layer, each program, and the download of a node.

use crate::say;
use anyhow::{Context as _, Result, ensure};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

/// Prints the sizes of an archive, and of the files above its base.
///
/// # Errors
/// If the archive contains no image.
pub(super) fn print(archive: &Path, laid: &Path) -> Result<()> {
    let tar = |args: &[&str]| -> Result<String> {
        let output = Command::new("tar").args(args).output().context("start tar")?;
        ensure!(output.status.success(), "tar {}: {}", args.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let path = archive.to_str().context("the archive's path is not UTF-8")?;
    let listing = tar(&["--list", "--verbose", "--file", path])?;
    let sizes = sizes(&listing);
    let manifest = tar(&["--extract", "--to-stdout", "--file", path, "manifest.json"])?;
    let manifest: serde_json::Value =
        serde_json::from_str(&manifest).context("the archive's manifest")?;
    let layers = manifest[0]["Layers"].as_array().context("a manifest without layers")?;
    let layers = layers.iter().filter_map(|layer| layer.as_str());
    let layers: Vec<u64> = layers.filter_map(|layer| sizes.get(layer).copied()).collect();

    say::step("its size");
    for (at, size) in layers.iter().enumerate() {
        let what = WHAT.get(at).copied().unwrap_or("more");
        say::note(&format!("{:>9}  layer {}: {what}", mib(*size), at + 1));
    }
    for folder in ["usr/local/bin", "usr/local/lib/ferrule", "opt/cni/plugins"] {
        for (name, size) in files(&laid.join(folder))? {
            say::note(&format!("{:>9}  /{folder}/{name}", mib(size)));
        }
    }
    let pulled = compressed(archive)?;
    let whole: u64 = layers.iter().sum();
    say::good(&format!("{} in all, {} to pull", mib(whole), mib(pulled)));
    Ok(())
}

/// The size of each file in a listing of `tar`.
fn sizes(listing: &str) -> BTreeMap<&str, u64> {
    let of = |line: &'_ str| -> Option<u64> { line.split_whitespace().nth(2)?.parse().ok() };
    listing
        .lines()
        .filter(|line| line.starts_with('-'))
        .filter_map(|line| Some((line.split_whitespace().last()?, of(line)?)))
        .collect()
}

fn files(folder: &Path) -> Result<BTreeMap<String, u64>> {
    let read = || format!("read {}", folder.display());
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(read)? {
        let entry = entry.with_context(read)?;
        let size = entry.metadata().with_context(read)?.len();
        found.insert(entry.file_name().to_string_lossy().into_owned(), size);
    }
    Ok(found)
}

/// The compressed size, as in a registry.
fn compressed(archive: &Path) -> Result<u64> {
    let mut gzip = Command::new("gzip")
        .args(["--stdout", "-6"])
        .arg(archive)
        .stdout(Stdio::piped())
        .spawn()
        .context("start gzip")?;
    let mut out = gzip.stdout.take().context("gzip has no standard output")?;
    let size = std::io::copy(&mut out, &mut std::io::sink()).context("read what gzip writes")?;
    let status = gzip.wait().context("wait for gzip")?;
    ensure!(status.success(), "gzip {}: {status}", archive.display());
    Ok(size)
}

fn mib(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

/// The layers that buildah builds from the Containerfile.
const WHAT: [&str; 2] = ["Debian's packages", "programs and plugins"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_has_the_sizes_of_files_and_not_of_links() {
        let listing = "-r--r--r-- 0/0  20024832 1970-01-01 00:00 4a9c.tar\n\
                       l--------- 0/0  0 1970-01-01 00:00 8a1d/layer.tar -> ../4a9c.tar\n";
        assert_eq!(sizes(listing), BTreeMap::from([("4a9c.tar", 20_024_832)]));
    }

    #[test]
    fn sizes_are_printed_in_tenths_rounded_up() {
        assert_eq!((&*mib(1), &*mib(10 << 20)), ("0.1 MiB", "10.0 MiB"));
    }
}
