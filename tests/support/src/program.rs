//! Programs under test.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// A program of the workspace that a test runs.
pub struct Program {
    variable: &'static str,
    package: &'static str,
    name: &'static str,
    path: OnceLock<PathBuf>,
}

impl Program {
    /// `variable` names the environment variable with the path of an existing build.
    #[must_use]
    pub const fn new(variable: &'static str, package: &'static str, name: &'static str) -> Self {
        Self { variable, package, name, path: OnceLock::new() }
    }

    /// Returns the path in the variable, or that of a build in the target folder of this test.
    ///
    /// # Panics
    /// If the program does not build.
    pub fn path(&self) -> &Path {
        self.path.get_or_init(|| match env::var_os(self.variable) {
            Some(given) => given.into(),
            None => self.build(),
        })
    }

    fn build(&self) -> PathBuf {
        // <target>/<profile>/deps/TEST-0123
        let test = env::current_exe().expect("the path of this test");
        let profile = test.ancestors().nth(2).expect("a folder of the profile");
        let target = profile.parent().expect("a target folder");
        let built = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
            .args(["build", "--locked", "--quiet", "-p", self.package, "--bin", self.name])
            .args(profile.ends_with("release").then_some("--release"))
            .arg("--target-dir")
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo starts");
        assert!(built.success(), "{} does not build", self.name);
        profile.join(self.name)
    }
}
