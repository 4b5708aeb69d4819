//! Helm, and what it renders.

use anyhow::{Context as _, Result, bail};
use lab_kubernetes::Program;
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

/// The chart of this clone, and the program that renders it.
pub struct Chart {
    helm: PathBuf,
    /// Helm's own files, and those of values.
    folder: TempDir,
}

/// What was rendered.
pub struct Rendered {
    /// As it was written, with comments.
    pub text: String,
    /// Each object.
    pub objects: Vec<Value>,
}

impl Chart {
    /// With the Helm of the cache, which is built if it is not there.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn of_this_clone() -> Result<Self> {
        let helm = Program::helm()?.path().to_owned();
        let folder = TempDir::with_prefix("ferrule-chart-").context("make a folder for Helm")?;
        Ok(Self { helm, folder })
    }

    /// Where it is.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/ferrule")
    }

    /// What Helm's linter says in its strictest form.
    ///
    /// # Errors
    /// When it finds something, with what it says.
    pub fn lint(&self, values: &Value) -> Result<String> {
        let file = self.file(values)?;
        let path = Self::path();
        let words = ["lint", "--strict", "--namespace", NAMESPACE].map(OsStr::new);
        let version = ["--kube-version", KUBERNETES].map(OsStr::new);
        let more = [OsStr::new("--values"), file.as_os_str(), path.as_os_str()];
        self.run(words.iter().chain(&version).chain(&more).copied())
    }

    /// The chart with these values, definitions of kinds included.
    ///
    /// # Errors
    /// When Helm refuses the values, with what it says.
    pub fn render(&self, values: &Value) -> Result<Rendered> {
        let file = self.file(values)?;
        let path = Self::path();
        let words =
            ["template", RELEASE, "--include-crds", "--namespace", NAMESPACE].map(OsStr::new);
        let version = ["--kube-version", KUBERNETES].map(OsStr::new);
        let more = [OsStr::new("--values"), file.as_os_str(), path.as_os_str()];
        let text = self.run(words.iter().chain(&version).chain(&more).copied())?;
        let objects =
            serde_saphyr::from_multiple::<Value>(&text).context("read what is rendered")?;
        let objects = objects.into_iter().filter(|object| !object.is_null()).collect();
        Ok(Rendered { text, objects })
    }

    /// A command of Helm's about the release, in this cluster: `install`, `upgrade`, `rollback`, `uninstall`.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub fn command(
        &self,
        kubeconfig: &Path,
        verb: &str,
        words: &[&str],
        values: Option<&Value>,
    ) -> Result<String> {
        let file = values.map(|values| self.file(values)).transpose()?;
        let path = Self::path();
        let mut all: Vec<&OsStr> = vec![OsStr::new(verb), OsStr::new(RELEASE)];
        if let Some(file) = &file {
            all.extend([path.as_os_str(), OsStr::new("--values"), file.as_os_str()]);
        }
        all.extend(words.iter().map(OsStr::new));
        all.extend(["--namespace", NAMESPACE, "--kubeconfig"].map(OsStr::new));
        all.push(kubeconfig.as_os_str());
        self.run(all.into_iter())
    }

    /// Values in a file of their own: JSON is YAML.
    fn file(&self, values: &Value) -> Result<PathBuf> {
        let file = tempfile::Builder::new()
            .suffix(".yaml")
            .tempfile_in(self.folder.path())
            .context("make a file of values")?;
        let (_, path) = file.keep().context("keep a file of values")?;
        fs::write(&path, values.to_string())
            .with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    fn run<'a>(&self, words: impl Iterator<Item = &'a OsStr>) -> Result<String> {
        let home = |name: &str| self.folder.path().join(name);
        let mut helm = Command::new(&self.helm);
        helm.args(words)
            .env("HELM_CACHE_HOME", home("cache"))
            .env("HELM_CONFIG_HOME", home("config"))
            .env("HELM_DATA_HOME", home("data"));
        let Output { status, stdout, stderr } = helm.output().context("run helm")?;
        if !status.success() {
            bail!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

impl Rendered {
    /// Those of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }
}

/// The release's name, as the documentation has it.
pub(crate) const RELEASE: &str = "ferrule";
/// Its namespace.
pub(crate) const NAMESPACE: &str = "kube-system";
/// What Helm is to think of where it asks no server.
const KUBERNETES: &str = "1.30.0";
