use std::fmt;

/// The first two numbers of a kernel's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    pub major: u32,
    pub minor: u32,
}

impl KernelVersion {
    /// The oldest kernel with the features that the eBPF programs use.
    pub const OLDEST_FOR_EBPF: Self = Self { major: 6, minor: 1 };
    /// The oldest kernel with TCX links.
    pub const OLDEST_WITH_TCX: Self = Self { major: 6, minor: 6 };

    /// Reads a release as `uname -r` prints it, such as `6.1.0-18-amd64`. `None` if it does not start with two numbers.
    pub fn of_release(release: &str) -> Option<Self> {
        let (major, rest) = release.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: number(major)?, minor: number(&rest[..end])? })
    }
}

/// Unlike `parse` this refuses a sign.
fn number(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_starts_with_its_version() {
        for (release, major, minor) in [
            ("5.15.0-1051-aws", 5, 15),
            ("6.1.0-18-amd64", 6, 1),
            ("6.6", 6, 6),
            ("6.12.118+deb13-cloud-amd64", 6, 12),
            ("6.1-rc3", 6, 1),
            ("7.0~rc1", 7, 0),
        ] {
            let version = KernelVersion { major, minor };
            assert_eq!(KernelVersion::of_release(release), Some(version), "{release}");
            assert!(release.starts_with(&version.to_string()));
        }
        for release in ["", "6", "6.", "6.x", ".1", "v6.1", "+6.1", "6.+1", "99999999999.1"] {
            assert_eq!(KernelVersion::of_release(release), None, "{release}");
        }
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let of = |release| KernelVersion::of_release(release);
        assert!(of("5.15") < of("6.1") && of("6.1") < of("6.6") && of("6.6") < of("6.12"));
    }
}
