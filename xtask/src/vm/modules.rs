//! Modules of an unpacked kernel, each after those that it needs.

use anyhow::{Context as _, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The modules of one kernel, by name.
pub(super) struct Modules {
    files: BTreeMap<String, PathBuf>,
    /// Parts of the kernel itself.
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Reads the names of the modules in the kernel's folder below `lib/modules`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        find(folder, &mut files)?;
        let built_in = folder.join("modules.builtin");
        let built_in = fs::read_to_string(&built_in)
            .with_context(|| format!("read {}", built_in.display()))?;
        let built_in = built_in.lines().filter_map(|line| name_of(Path::new(line))).collect();
        Ok(Self { files, built_in })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Returns names and contents of these modules and of all that they need, in the order of loading.
    pub(super) fn with_dependencies(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let (mut loaded, mut seen) = (Vec::new(), BTreeSet::new());
        for name in names {
            self.add(name, &mut loaded, &mut seen)?;
        }
        Ok(loaded)
    }

    fn add(
        &self,
        name: &str,
        loaded: &mut Vec<(String, Vec<u8>)>,
        seen: &mut BTreeSet<String>,
    ) -> Result<()> {
        if self.built_in.contains(name) || !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let file = self.files.get(name);
        let file = file.with_context(|| format!("the kernel has no module {name}"))?;
        let contents = contents(file)?;
        for needed in dependencies(&contents)
            .with_context(|| format!("{} does not list its dependencies", file.display()))?
        {
            self.add(&needed, loaded, seen)?;
        }
        loaded.push((name.to_owned(), contents));
        Ok(())
    }
}

fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            find(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The name of a module in a file. `None` for other files.
fn name_of(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let name = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz"))?;
    Some(name.replace('-', "_"))
}

fn contents(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_none_or(|end| end != "xz") {
        return fs::read(file).with_context(|| format!("read {}", file.display()));
    }
    let mut unpack = Command::new("busybox");
    let output = unpack.arg("xzcat").arg(file).stdin(Stdio::null()).output();
    let output = output.context("start busybox")?;
    ensure!(output.status.success(), "cannot unpack {}", file.display());
    Ok(output.stdout)
}

/// The modules that a module needs, from its section `.modinfo`. Debian's packages have no `modules.dep`: their
/// installation writes it.
fn dependencies(module: &[u8]) -> Option<Vec<String>> {
    const FIELD: &[u8] = b"\0depends=";
    let start = module.windows(FIELD.len()).position(|bytes| bytes == FIELD)? + FIELD.len();
    let list = module[start..].split(|byte| *byte == 0).next()?;
    let names = std::str::from_utf8(list).ok()?.split(',').filter(|name| !name.is_empty());
    Some(names.map(|name| name.replace('-', "_")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_once_and_after_those_that_it_needs() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, contents: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, contents).expect("a file");
        };
        write("modules.builtin", b"kernel/net/core.ko\n");
        write("kernel/net/top.ko", b"license=GPL\0depends=low-est,core,middle\0name=top\0");
        write("kernel/net/middle.ko", b"license=GPL\0depends=low_est\0");
        write("kernel/low-est.ko", b"license=GPL\0depends=\0name=low_est\0");
        write("kernel/unlisted.ko", b"license=GPL\0");
        let modules = Modules::read(folder.path()).expect("modules");
        let loaded = modules.with_dependencies(&["middle", "top", "core"]).expect("an order");
        let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["low_est", "middle", "top"]);
        assert!(modules.with_dependencies(&["absent"]).is_err());
        assert!(modules.with_dependencies(&["unlisted"]).is_err());
    }
}
