//! Helm and its rendered objects.

use anyhow::{Context as _, Result, bail};
use lab_kubernetes::Program;
use serde_json::{Value, json};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use tempfile::TempDir;

/// The chart of this clone, with Helm.
pub struct Chart {
    helm: PathBuf,
    /// Helm's files, and the files of values.
    folder: TempDir,
}

/// The output of a rendering.
pub struct Rendered {
    /// The text, with comments.
    pub text: String,
    pub objects: Vec<Value>,
}

impl Chart {
    /// Uses the Helm of the cache, and builds it if necessary.
    ///
    /// # Errors
    /// If Helm cannot be built.
    pub fn of_this_clone() -> Result<Self> {
        let helm = Program::helm()?.path().to_owned();
        let folder =
            TempDir::with_prefix("ferrule-chart-").context("cannot create a folder for Helm")?;
        Ok(Self { helm, folder })
    }

    /// Returns the chart's folder.
    pub fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/ferrule")
    }

    /// Runs `helm lint --strict` and returns its output.
    ///
    /// # Errors
    /// If the linter fails, with its output.
    pub fn lint(&self, values: &Value) -> Result<String> {
        let file = self.file(values)?;
        let path = Self::path();
        let words = ["lint", "--strict", "--namespace", NAMESPACE].map(OsStr::new);
        let version = ["--kube-version", KUBERNETES].map(OsStr::new);
        let more = [OsStr::new("--values"), file.as_os_str(), path.as_os_str()];
        self.run(words.iter().chain(&version).chain(&more).copied())
    }

    /// Renders the chart with these values, including CustomResourceDefinitions.
    ///
    /// # Errors
    /// If Helm refuses the values, with its output.
    pub fn render(&self, values: &Value) -> Result<Rendered> {
        self.render_in(NAMESPACE, values)
    }

    /// Renders the chart with these values for a release in this namespace.
    ///
    /// # Errors
    /// As [`Chart::render`].
    pub fn render_in(&self, namespace: &str, values: &Value) -> Result<Rendered> {
        let file = self.file(values)?;
        let path = Self::path();
        let words =
            ["template", RELEASE, "--include-crds", "--namespace", namespace].map(OsStr::new);
        let version = ["--kube-version", KUBERNETES].map(OsStr::new);
        let more = [OsStr::new("--values"), file.as_os_str(), path.as_os_str()];
        let text = self.run(words.iter().chain(&version).chain(&more).copied())?;
        let objects = serde_saphyr::from_multiple::<Value>(&text)
            .context("cannot parse the rendered text")?;
        let objects = objects.into_iter().filter(|object| !object.is_null()).collect();
        Ok(Rendered { text, objects })
    }

    /// Returns the notes that `helm install` prints with these values. No cluster is needed.
    ///
    /// # Errors
    /// If Helm refuses the values, with its output.
    pub fn notes(&self, values: &Value) -> Result<String> {
        let printed = self.command(
            Path::new("/nonexistent"),
            "install",
            &["--dry-run=client", "--hide-secret"],
            Some(values),
        )?;
        let (_, notes) = printed.split_once("NOTES:").context("Helm printed no notes")?;
        Ok(notes.to_owned())
    }

    /// Runs a Helm command for the release in this cluster: `install`, `upgrade`, `rollback` or `uninstall`.
    ///
    /// # Errors
    /// If the command fails, with its output.
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

    /// Writes the values to a file. JSON is valid YAML. Values without `image` get one, because the chart has no default.
    fn file(&self, values: &Value) -> Result<PathBuf> {
        let mut values = values.clone();
        if values["image"].is_null() {
            values["image"] = json!({ "override": IMAGE });
        }
        let file = tempfile::Builder::new()
            .suffix(".yaml")
            .tempfile_in(self.folder.path())
            .context("cannot create a file of values")?;
        let (_, path) = file.keep().context("cannot keep a file of values")?;
        fs::write(&path, values.to_string())
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    fn run<'a>(&self, words: impl Iterator<Item = &'a OsStr>) -> Result<String> {
        let home = |name: &str| self.folder.path().join(name);
        let mut helm = Command::new(&self.helm);
        helm.args(words)
            .env("HELM_CACHE_HOME", home("cache"))
            .env("HELM_CONFIG_HOME", home("config"))
            .env("HELM_DATA_HOME", home("data"));
        let Output { status, stdout, stderr } = helm.output().context("cannot run helm")?;
        if !status.success() {
            bail!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        }
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }
}

impl Rendered {
    /// Returns the objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }
}

/// The image of values that name none. No registry has it.
pub const IMAGE: &str = "registry.example/ferrule:1";
/// The release's name in the documentation.
pub(crate) const RELEASE: &str = "ferrule";
pub(crate) const NAMESPACE: &str = "kube-system";
/// The Kubernetes version for Helm commands without a cluster.
const KUBERNETES: &str = "1.30.0";
