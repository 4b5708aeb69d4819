//! Tests against a real kernel in namespaces of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Returns the program under test: `FERRULE_CLI`, or a build in the target folder of this test.
pub fn ferrule() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = env::var_os("FERRULE_CLI") {
            return given.into();
        }
        // <target>/<profile>/deps/TEST-0123
        let test = env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap();
        let release = profile.ends_with("release");
        let built = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
            .args(["build", "--quiet", "-p", "cli", "--bin", "ferrule"])
            .args(release.then_some("--release"))
            .arg("--target-dir")
            .arg(profile.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "cannot build the program");
        profile.join("ferrule")
    })
}

pub fn ip(words: &str) {
    run("ip", words);
}

#[track_caller]
pub fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {printed}");
}
