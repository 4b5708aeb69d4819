//! Images of other projects' programs. The first layer is that of Ferrule's image, which has iptables and nft.

use crate::installed::output_of;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// An image in a folder of this machine. Its own files are below [`BasedImage::root`].
pub(crate) struct BasedImage {
    folder: tempfile::TempDir,
}

impl BasedImage {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a folder for an image")?;
        Ok(Self { folder })
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Gives programs of iptables their usual names. The first layer has each variant under a name of its own.
    pub(crate) fn link_iptables(&self, names: &[&str]) -> Result<()> {
        let programs = self.root().join("usr/sbin");
        fs::create_dir_all(&programs).context("cannot create a folder for iptables")?;
        for name in names {
            symlink("xtables-nft-multi", programs.join(name)).context("cannot link iptables")?;
        }
        Ok(())
    }

    /// Packs the image and returns its archive. `ours` is the archive of Ferrule's image, and `config` the settings of
    /// its containers.
    pub(crate) fn pack(&self, ours: &Path, name: &str, config: &Value) -> Result<PathBuf> {
        let folder = self.folder.path();
        let tar = |args: &[&str]| output_of(Command::new("tar").current_dir(folder).args(args));
        let of_ours = |path: &str| -> Result<()> {
            let ours = ours.to_str().context("the path is not UTF-8")?;
            tar(&["-xf", ours, path]).map(drop)
        };
        let json = |path: &str| -> Result<Value> {
            let path = folder.join(path);
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_slice(&text)
                .with_context(|| format!("cannot parse {}", path.display()))
        };
        of_ours("manifest.json")?;
        let manifest = json("manifest.json")?;
        let named = |of: &Value| of.as_str().map(str::to_owned).context("an image without layers");
        let (settings, base) = (named(&manifest[0]["Config"])?, named(&manifest[0]["Layers"][0])?);
        of_ours(&settings)?;
        of_ours(&base)?;
        let settings = json(&settings)?;
        let base_digest = named(&settings["rootfs"]["diff_ids"][0])?;

        tar(&["--owner=0", "--group=0", "-C", "root", "-cf", "layer.tar", "."])?;
        let digest = output_of(Command::new("sha256sum").current_dir(folder).arg("layer.tar"))?;
        let digest = digest.split_whitespace().next().context("sha256sum printed nothing")?;
        let config = json!({
            "architecture": settings["architecture"], "os": "linux", "config": config,
            "rootfs": { "type": "layers", "diff_ids": [base_digest, format!("sha256:{digest}")] },
        });
        let manifest = json!([{
            "Config": "config.json", "RepoTags": [name], "Layers": [base, "layer.tar"],
        }]);
        for (name, content) in [("config.json", config), ("manifest.json", manifest)] {
            fs::write(folder.join(name), content.to_string())
                .with_context(|| format!("cannot write the image's {name}"))?;
        }
        tar(&["-cf", "image.tar", "manifest.json", "config.json", &base, "layer.tar"])?;
        Ok(folder.join("image.tar"))
    }
}
