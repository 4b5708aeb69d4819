//! The files of the image above its base, in one folder.

use super::sbom;
use crate::{
    architecture::Architecture,
    binaries::{self, Binaries},
    bpf, cluster, generate, say,
};
use anyhow::{Context as _, Result, ensure};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Copies built programs into a folder, with the eBPF programs, plugins, license and the list of all parts.
///
/// # Errors
/// If the eBPF programs or a plugin cannot be built, or a file cannot be copied.
pub(super) fn into(
    built: &Binaries,
    architecture: Architecture,
    folder: &Path,
    packages: Option<&Path>,
) -> Result<()> {
    let [programs, plugins, papers] = [PROGRAMS, PLUGINS, PAPERS].map(|path| folder.join(path));
    for path in [&programs, &plugins, &papers] {
        fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
    }
    for name in binaries::image_programs() {
        let to = programs.join(name);
        copy(&built.dir.join(name), &to, 0o755)?;
        strip(&to, architecture)?;
    }
    let object = folder.join(bpf_object()?.trim_start_matches('/'));
    let library = object.parent().context("the eBPF programs are in no folder")?;
    fs::create_dir_all(library).with_context(|| format!("make {}", library.display()))?;
    say::step("compiling the eBPF programs");
    // One object file is for all architectures of the image: they have one byte order.
    copy(&bpf::object()?, &object, 0o644)?;
    let brought = plugins_of_the_cni_project(architecture)?;
    for from in &brought {
        let name = from.file_name().context("a plugin without a name")?;
        copy(from, &plugins.join(name), 0o755)?;
    }
    copy(&generate::root().join("LICENSE"), &papers.join("LICENSE"), 0o644)?;
    say::step("a list of its parts, for scanners");
    let list = sbom::of_the_image(architecture, &brought, packages)?;
    let parts = list["components"].as_array().map_or(0, Vec::len);
    let path = papers.join("sbom.json");
    let text = serde_json::to_string_pretty(&list).context("write the list")?;
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    say::good(&format!("{parts} parts, in /{PAPERS}/sbom.json"));
    Ok(())
}

/// The path of the eBPF programs in the image, at which the agent expects them by default.
pub(super) fn bpf_object() -> Result<&'static str> {
    let mut settings = config_settings::table();
    let setting = settings.find(|setting| setting.name == "FERRULE_AGENT_BPF_OBJECT");
    Ok(setting.context("FERRULE_AGENT_BPF_OBJECT is no setting")?.default)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let context = || format!("copy {} to {}", from.display(), to.display());
    fs::copy(from, to).with_context(context)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(context)
}

/// Removes debug information. The builder keeps the original.
fn strip(program: &Path, architecture: Architecture) -> Result<()> {
    let strip = architecture.tool("strip");
    let status =
        Command::new(&strip).arg("--strip-debug").arg(program).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("start {strip}, which comes with the linker"))?;
    ensure!(status.success(), "{strip} {}: {status}", program.display());
    Ok(())
}

fn plugins_of_the_cni_project(architecture: Architecture) -> Result<Vec<PathBuf>> {
    let folder = cluster::plugins(architecture)?;
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .map(|entry| Ok(entry.context("read the plugins")?.path()))
        .collect::<Result<_>>()?;
    found.sort();
    Ok(found)
}

const PROGRAMS: &str = "usr/local/bin";
const PLUGINS: &str = "opt/cni/plugins";
const PAPERS: &str = "usr/share/doc/ferrule";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_ebpf_programs_is_in_a_folder_that_the_image_copies() {
        let path = bpf_object().expect("a setting");
        let text = fs::read_to_string(generate::root().join("Containerfile")).expect("a file");
        let copied = ["/opt", "/usr"].iter().filter(|folder| {
            path.starts_with(&format!("{folder}/"))
                && text.contains(&format!("COPY --from=programs {folder} {folder}\n"))
        });
        assert_eq!(copied.count(), 1, "{path}");
    }
}
