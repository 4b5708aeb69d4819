//! The kernels on which the programs run.

use crate::{LoadError, Method};
use config_model::KernelVersion;

/// Fails if a kernel of this release cannot run the programs, or has no TCX where the method needs it.
pub(crate) fn require(release: &str, method: Method) -> Result<(), LoadError> {
    let version = KernelVersion::of_release(release);
    let has = |oldest| version.is_some_and(|version| version >= oldest);
    let release = || release.to_owned();
    if !has(KernelVersion::OLDEST_FOR_EBPF) {
        Err(LoadError::Kernel { release: release() })
    } else if method == Method::Tcx && !has(KernelVersion::OLDEST_WITH_TCX) {
        Err(LoadError::NoTcx { release: release() })
    } else {
        Ok(())
    }
}

/// The release of the running kernel, as `uname -r` prints it.
pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(release: &str, method: Method) -> String {
        require(release, method).map_err(|error| error.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn old_kernels_are_refused_by_name_with_the_next_step() {
        for release in ["5.15.0-1051-aws", "5.10.0", "6.0.12", "2.6.78", ""] {
            for method in [Method::Filters, Method::Tcx] {
                let why = why(release, method);
                let start = format!("cannot load the eBPF programs: kernel {release} ");
                assert!(why.starts_with(&start), "{why}");
                assert!(why.contains("kernel 6.1 or later") && why.contains("policy.backend=none"));
            }
        }
        for release in ["6.1.0-56-cloud-amd64", "6.5"] {
            assert_eq!(why(release, Method::Filters), "");
            let why = why(release, Method::Tcx);
            assert!(why.contains("6.6") && why.contains("ENABLE_BANDWIDTH_PLUGIN"), "{why}");
        }
        for release in ["6.6.0", "6.12.118+deb13-cloud-amd64", "7.0"] {
            assert_eq!(why(release, Method::Tcx), "", "{release}");
        }
    }
}
