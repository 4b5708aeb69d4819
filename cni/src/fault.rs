//! The error of a verb: the error object of the CNI specification and its codes.

use crate::version::SpecVersion;
use serde::Serialize;
use std::fmt;

/// The codes that this plugin answers with. This table is the only place that fixes them.
///
/// | code | kind | when |
/// |---|---|---|
/// | 1 | `IncompatibleVersion` | `cniVersion` is not supported, or has no such verb |
/// | 4 | `InvalidEnvironment` | a `CNI_*` variable or an argument of `CNI_ARGS` is missing or wrong; an unknown verb |
/// | 5 | `Io` | the standard input cannot be read, or a tombstone cannot be written |
/// | 6 | `Undecodable` | the network configuration is not JSON |
/// | 7 | `InvalidConfig` | a field of the network configuration is missing or invalid |
/// | 8 | `InvalidNamespace` | the network namespace is missing, or is the plugin's own |
/// | 11 | `TryAgainLater` | the daemon is down, hangs or is of another version; or it has no address yet, or GC could not finish |
/// | 50 | `Unavailable` | STATUS: an ADD would fail now |
/// | 51 | `Impaired` | STATUS: an ADD would fail now, and pods that run are impaired |
/// | 100 | `Exhausted` | the subnet, the ENIs or the instance type have no room left |
/// | 101 | `CheckFailed` | CHECK found something other than what ADD made |
/// | 102 | `KernelRefused` | the kernel refused a step, such as an interface name that is taken |
/// | 103 | `PolicyAgent` | aws-network-policy-agent did not acknowledge the pod |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// 1
    IncompatibleVersion,
    /// 4
    InvalidEnvironment,
    /// 5
    Io,
    /// 6
    Undecodable,
    /// 7
    InvalidConfig,
    /// 8
    InvalidNamespace,
    /// 11
    TryAgainLater,
    /// 50
    Unavailable,
    /// 51
    Impaired,
    /// 100
    Exhausted,
    /// 101
    CheckFailed,
    /// 102
    KernelRefused,
    /// 103
    PolicyAgent,
}

impl Code {
    /// The number in the error object.
    pub const fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Undecodable => 6,
            Self::InvalidConfig => 7,
            Self::InvalidNamespace => 8,
            Self::TryAgainLater => 11,
            Self::Unavailable => 50,
            Self::Impaired => 51,
            Self::Exhausted => 100,
            Self::CheckFailed => 101,
            Self::KernelRefused => 102,
            Self::PolicyAgent => 103,
        }
    }
}

/// The failure of a verb: the object, the cause and the next step.
///
/// Neither text contains a value of `runtimeConfig`, of an unknown argument or of raw input: runtimes copy both into
/// logs and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub code: Code,
    /// The object and the cause.
    pub message: String,
    /// The next step.
    pub details: String,
}

impl Fault {
    /// A fault with its cause and the next step.
    pub fn new(code: Code, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: next_step.into() }
    }

    /// The error object of the specification, for standard output.
    pub fn to_json(&self, version: SpecVersion) -> Vec<u8> {
        let object = ErrorObject {
            cni_version: version.as_str(),
            code: self.code.number(),
            msg: &self.message,
            details: &self.details,
        };
        serde_json::to_vec(&object).expect("strings and numbers always encode")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.message, self.code.number())
    }
}

impl std::error::Error for Fault {}

#[derive(Serialize)]
struct ErrorObject<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'a str,
    code: u32,
    msg: &'a str,
    details: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_object_has_the_four_fields_of_the_specification() {
        let fault = Fault::new(Code::TryAgainLater, "no address", "wait");
        assert_eq!(
            String::from_utf8_lossy(&fault.to_json(SpecVersion::V0_4_0)),
            r#"{"cniVersion":"0.4.0","code":11,"msg":"no address","details":"wait"}"#
        );
    }
}
