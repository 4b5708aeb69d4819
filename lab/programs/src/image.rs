//! Images of one static program, made on this machine: no registry is asked.

use crate::{Program, architecture};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The image whose one process keeps a pod's namespaces.
pub const PAUSE: &str = "localhost/pause:1";
/// The image of what the lab's pods run.
pub const PROBE: &str = "localhost/probe:1";
/// The image of the cluster's name server.
pub const COREDNS: &str = "localhost/coredns:1";

/// The images that every node of the cluster has, packed in this folder.
///
/// # Errors
/// When a program cannot be built, or an image not be written.
pub fn usual(folder: &Path) -> Result<Vec<PathBuf>> {
    let (probe, coredns) = (Program::probe()?, Program::coredns()?);
    Ok(vec![
        pack(folder, PAUSE, probe.path(), &["/probe", "pause"])?,
        // For users that work on a node through a container that mounts the host.
        pack_named(folder, PROBE, probe.path(), &["chroot"], &["/probe"])?,
        pack(folder, COREDNS, coredns.path(), &["/coredns"])?,
    ])
}

/// Packs a static program as an image of this name, in a folder of its own below this one; the archive's path.
///
/// # Errors
/// When it cannot be read, or the image not be written.
pub fn pack(folder: &Path, name: &str, program: &Path, entrypoint: &[&str]) -> Result<PathBuf> {
    pack_named(folder, name, program, &[], entrypoint)
}

/// The same of a program that has other names besides its own.
fn pack_named(
    folder: &Path,
    name: &str,
    program: &Path,
    others: &[&str],
    entrypoint: &[&str],
) -> Result<PathBuf> {
    let file = program.file_name().context("the program has no name")?;
    let file = file.to_str().context("a program whose name is not UTF-8")?;
    let links: Vec<_> = others.iter().map(|other| (*other, file)).collect();
    Contents { base: None, files: &[(file, program)], links: &links, entrypoint, arguments: &[] }
        .pack(folder, &[name])
}

/// The contents of an image.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The tar archive of the first layer; `None` for an image of the files alone.
    pub base: Option<&'a Path>,
    /// Each file's path in the image without the first slash, and its source.
    pub files: &'a [(&'a str, &'a Path)],
    /// Each symbolic link's path in the image without the first slash, and its target.
    pub links: &'a [(&'a str, &'a str)],
    pub entrypoint: &'a [&'a str],
    /// The default arguments of the entrypoint.
    pub arguments: &'a [&'a str],
}

impl Contents<'_> {
    /// Packs an image with these names, in a folder of its own below this one; the archive's path.
    ///
    /// # Errors
    /// When a file cannot be read, or the image not be written.
    pub fn pack(&self, folder: &Path, names: &[&str]) -> Result<PathBuf> {
        let name = names.first().context("the image has no name")?;
        let short = name.rsplit('/').next().unwrap_or(name).replace(':', "-");
        let folder = folder.join(short);
        let root = folder.join("root");
        fs::create_dir_all(&root).context("make a folder for an image")?;
        let place = |path: &str| {
            let path = root.join(path);
            let parent = path.parent().unwrap_or(&root);
            fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
            anyhow::Ok(path)
        };
        for (path, source) in self.files {
            fs::copy(source, place(path)?).with_context(|| format!("copy {}", source.display()))?;
        }
        for (path, target) in self.links {
            symlink(target, place(path)?)
                .with_context(|| format!("give {target} the name {path}"))?;
        }
        let steady = ["--owner=0", "--group=0", "--mtime=@0", "--sort=name"];
        run(&folder, "tar", &[&steady[..], &["-C", "root", "-cf", "layer.tar", "."]].concat())?;
        let mut layers = vec!["layer.tar"];
        if let Some(base) = self.base {
            fs::copy(base, folder.join(BASE))
                .with_context(|| format!("copy {}", base.display()))?;
            layers.insert(0, BASE);
        }
        let digests = run(&folder, "sha256sum", &layers)?;
        let digests = digests.lines().filter_map(|line| line.split_whitespace().next());
        let digests: Vec<String> = digests.map(|digest| format!("sha256:{digest}")).collect();
        let path = if self.base.is_some() { SEARCH_PATH } else { "PATH=/" };
        let config = json!({
            "architecture": architecture::here(), "os": "linux",
            "config": {"Entrypoint": self.entrypoint, "Cmd": self.arguments, "Env": [path]},
            "rootfs": {"type": "layers", "diff_ids": digests},
        });
        let manifest = json!([{
            "Config": "config.json", "RepoTags": names, "Layers": layers,
        }]);
        for (name, content) in [("config.json", config), ("manifest.json", manifest)] {
            fs::write(folder.join(name), content.to_string())
                .with_context(|| format!("write the image's {name}"))?;
        }
        let parts = [&["-cf", "image.tar", "manifest.json", "config.json"], &layers[..]].concat();
        run(&folder, "tar", &parts)?;
        fs::remove_dir_all(&root).with_context(|| format!("remove {}", root.display()))?;
        for layer in layers {
            let layer = folder.join(layer);
            fs::remove_file(&layer).with_context(|| format!("remove {}", layer.display()))?;
        }
        Ok(folder.join("image.tar"))
    }
}

const BASE: &str = "base.tar";
const SEARCH_PATH: &str = "PATH=/:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
