//! The versions of the CNI specification that the plugin supports.

use std::fmt;

/// A version of the CNI specification, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpecVersion {
    /// 0.3.0: results list interfaces, addresses and routes.
    V0_3_0,
    /// 0.3.1: as 0.3.0.
    V0_3_1,
    /// 0.4.0: adds CHECK, and `prevResult` for DEL.
    V0_4_0,
    /// 1.0.0: addresses no longer name their family.
    V1_0_0,
    /// 1.1.0: interfaces and routes have an MTU.
    V1_1_0,
}

impl SpecVersion {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// The newest one.
    pub const NEWEST: Self = Self::V1_1_0;

    /// The version of an error object if the runtime's version is not supported.
    pub const FALLBACK: Self = Self::V1_0_0;

    /// The version that a `cniVersion` names, if it is one of [`SpecVersion::ALL`].
    pub fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// As a `cniVersion` writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// All of them in one line, for messages.
    pub fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl fmt::Display for SpecVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_versions_are_spoken() {
        for version in SpecVersion::ALL {
            assert_eq!(SpecVersion::of(version.as_str()), Some(version));
        }
        for other in ["", "0.1.0", "0.2.0", "1.0", "1.0.1", "1.2.0", "v1.0.0", " 1.0.0"] {
            assert_eq!(SpecVersion::of(other), None, "{other}");
        }
        assert!(SpecVersion::ALL.is_sorted());
    }
}
