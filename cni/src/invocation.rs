//! The validated `CNI_*` variables.

use crate::{
    args::PodArgs,
    fault::{Code, Fault},
    version::SpecVersion,
};
use std::{ffi::OsString, path::PathBuf};

/// A supported verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Add an interface to a pod.
    Add,
    /// Remove it.
    Del,
    /// Compare it with the state after ADD.
    Check,
    /// Report whether an ADD would succeed.
    Status,
    /// Remove attachments that the runtime no longer knows.
    Gc,
    /// Report the supported versions.
    Version,
}

impl Verb {
    /// The supported verbs, for messages.
    pub const SERVED: &str = "ADD, DEL, CHECK, STATUS, GC, VERSION";

    /// The value of `CNI_COMMAND`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// The first version of the specification that has it.
    pub const fn since(self) -> SpecVersion {
        match self {
            Self::Add | Self::Del | Self::Version => SpecVersion::V0_3_0,
            Self::Check => SpecVersion::V0_4_0,
            Self::Status | Self::Gc => SpecVersion::V1_1_0,
        }
    }

    fn of(text: &str) -> Result<Self, Fault> {
        match text {
            "ADD" => Ok(Self::Add),
            "DEL" => Ok(Self::Del),
            "CHECK" => Ok(Self::Check),
            "STATUS" => Ok(Self::Status),
            "GC" => Ok(Self::Gc),
            "VERSION" => Ok(Self::Version),
            _ => Err(Fault::new(
                Code::InvalidEnvironment,
                "CNI_COMMAND names no verb of the CNI specification",
                format!("ferrule-cni serves {}, in capitals", Self::SERVED),
            )),
        }
    }
}

/// The variables that go with ADD, DEL and CHECK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The sandbox.
    pub container_id: String,
    /// The interface's name in the pod.
    pub ifname: String,
    /// The pod's network namespace; DEL may come without.
    pub netns: Option<PathBuf>,
    /// True if the plugin may work in its own namespace.
    pub netns_override: bool,
    /// The pod's fields of `CNI_ARGS`.
    pub pod: PodArgs,
}

/// The verb of `CNI_COMMAND`; `None` without that variable.
///
/// # Errors
/// Code 4 if the verb is not supported.
pub fn verb(var: &impl Fn(&str) -> Option<OsString>) -> Result<Option<Verb>, Fault> {
    match var("CNI_COMMAND").filter(|text| !text.is_empty()) {
        None => Ok(None),
        Some(text) => Verb::of(&text.to_string_lossy()).map(Some),
    }
}

impl Attachment {
    /// Reads the variables that go with `verb`.
    ///
    /// # Errors
    /// Code 4, with every missing variable or the invalid one.
    pub fn of(verb: Verb, var: &impl Fn(&str) -> Option<OsString>) -> Result<Self, Fault> {
        let given = |name: &str| var(name).filter(|text| !text.is_empty());
        let mut needed = vec!["CNI_CONTAINERID", "CNI_IFNAME"];
        if verb != Verb::Del {
            needed.push("CNI_NETNS");
        }
        let missing: Vec<&str> = needed.into_iter().filter(|name| given(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(Fault::new(
                Code::InvalidEnvironment,
                format!(
                    "{} needs {}, which the runtime left out",
                    verb.as_str(),
                    missing.join(", ")
                ),
                "the container runtime must set every variable of the CNI specification",
            ));
        }
        let text = |name: &str| -> Result<String, Fault> {
            given(name).unwrap_or_default().into_string().map_err(|_| {
                Fault::new(
                    Code::InvalidEnvironment,
                    format!("{name} is not UTF-8"),
                    "the container runtime must set it as the CNI specification requires",
                )
            })
        };
        let pod = PodArgs::parse(&text("CNI_ARGS")?)?;
        if verb == Verb::Add {
            pod.demand_name()?;
        }
        Ok(Self {
            container_id: text("CNI_CONTAINERID")?,
            ifname: text("CNI_IFNAME")?,
            netns: given("CNI_NETNS").map(PathBuf::from),
            netns_override: given("CNI_NETNS_OVERRIDE").is_some_and(|text| is_true(&text)),
            pod,
        })
    }
}

fn is_true(text: &OsString) -> bool {
    text == "1" || text.eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn env<'a>(vars: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + use<'a> {
        move |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
    }

    const ARGS: (&str, &str) = ("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b");

    #[test]
    fn no_command_is_not_an_error_but_an_unknown_one_is() {
        assert_eq!(verb(&env(&[])).unwrap(), None);
        assert_eq!(verb(&env(&[("CNI_COMMAND", "DEL")])).unwrap(), Some(Verb::Del));
        for other in ["add", "DELETE", "STATUS ", "gc"] {
            let fault = verb(&env(&[("CNI_COMMAND", other)])).unwrap_err();
            assert_eq!(fault.code, Code::InvalidEnvironment, "{other}");
            assert!(fault.details.contains("ADD, DEL, CHECK, STATUS, GC, VERSION"), "{other}");
        }
    }

    #[test]
    fn every_missing_variable_is_named() {
        let fault = Attachment::of(Verb::Add, &env(&[ARGS, ("CNI_NETNS", "")])).unwrap_err();
        assert_eq!(fault.code, Code::InvalidEnvironment);
        for name in ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"] {
            assert!(fault.message.contains(name), "{name}");
        }
    }

    #[test]
    fn del_needs_neither_namespace_nor_pod() {
        let vars = [("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "")];
        let attachment = Attachment::of(Verb::Del, &env(&vars)).unwrap();
        assert_eq!((attachment.netns, attachment.pod), (None, PodArgs::default()));
    }

    #[test]
    fn add_needs_a_pod_name() {
        let vars = [("CNI_CONTAINERID", "c"), ("CNI_IFNAME", "eth0"), ("CNI_NETNS", "/n")];
        let fault = Attachment::of(Verb::Add, &env(&vars)).unwrap_err();
        assert_eq!(fault.code, Code::InvalidEnvironment);
        assert!(fault.message.contains("K8S_POD_NAME"));
    }
}
