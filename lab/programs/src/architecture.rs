//! The CPU architecture of this machine.

/// Returns the name as OCI and Go write it.
pub(crate) fn here() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
