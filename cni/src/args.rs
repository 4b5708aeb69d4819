//! `CNI_ARGS`: the pod's name and UID.

use crate::fault::{Code, Fault};
use config_model::PodName;

/// The pod's fields of `CNI_ARGS`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodArgs {
    /// Namespace and name, if both are given.
    pub pod: Option<PodName>,
    /// `K8S_POD_UID`
    pub uid: String,
    /// `K8S_POD_INFRA_CONTAINER_ID`
    pub infra_container_id: String,
}

const KNOWN: &str = "IgnoreUnknown, K8S_POD_NAMESPACE, K8S_POD_NAME, \
                     K8S_POD_INFRA_CONTAINER_ID, K8S_POD_UID";

impl PodArgs {
    /// Reads `KEY=VALUE;KEY=VALUE`.
    ///
    /// An unknown argument is an error unless `IgnoreUnknown` is set. No message contains its value: runtimes pass on
    /// arguments of other plugins, secrets included.
    ///
    /// # Errors
    /// Code 4, with the position of the invalid argument.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut args = Self::default();
        let (mut namespace, mut name) = (String::new(), String::new());
        let mut ignore_unknown = false;
        let mut unknown = None;
        for (index, pair) in text.split(';').filter(|pair| !pair.is_empty()).enumerate() {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong(index, "is not of the form KEY=VALUE"));
            };
            match key {
                "IgnoreUnknown" => {
                    ignore_unknown = match value.to_ascii_lowercase().as_str() {
                        "1" | "true" => true,
                        "0" | "false" => false,
                        _ => {
                            return Err(wrong(index, "(IgnoreUnknown) is not true, false, 1 or 0"));
                        }
                    }
                }
                "K8S_POD_NAMESPACE" => value.clone_into(&mut namespace),
                "K8S_POD_NAME" => value.clone_into(&mut name),
                "K8S_POD_INFRA_CONTAINER_ID" => value.clone_into(&mut args.infra_container_id),
                "K8S_POD_UID" => value.clone_into(&mut args.uid),
                _ => unknown = unknown.or(Some(index)),
            }
        }
        if let (Some(index), false) = (unknown, ignore_unknown) {
            return Err(wrong(index, "is not known, and IgnoreUnknown is not set"));
        }
        if !namespace.is_empty() && !name.is_empty() {
            args.pod = Some(PodName { namespace, name });
        }
        Ok(args)
    }

    /// The pod's name. Only DEL works without it.
    ///
    /// # Errors
    /// Code 4 if the runtime did not set it.
    pub fn demand_name(&self) -> Result<&PodName, Fault> {
        self.pod.as_ref().ok_or_else(|| {
            Fault::new(
                Code::InvalidEnvironment,
                "CNI_ARGS lacks K8S_POD_NAMESPACE or K8S_POD_NAME, from which the host interface \
                 is named",
                "Kubernetes runtimes set both; by hand: CNI_ARGS='K8S_POD_NAMESPACE=…;K8S_POD_NAME=…'",
            )
        })
    }
}

fn wrong(index: usize, why: &str) -> Fault {
    Fault::new(
        Code::InvalidEnvironment,
        format!("argument {} of CNI_ARGS {why}", index + 1),
        format!("known are: {KNOWN}"),
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn arguments_are_read_in_any_order() {
        let args = PodArgs::parse(
            "K8S_POD_UID=u;IgnoreUnknown=1;K8S_POD_NAME=web-0;Other=x=y;K8S_POD_NAMESPACE=default;\
             K8S_POD_INFRA_CONTAINER_ID=i;",
        )
        .unwrap();
        assert_eq!(args.demand_name().unwrap().to_string(), "default/web-0");
        assert_eq!((args.uid.as_str(), args.infra_container_id.as_str()), ("u", "i"));
    }

    #[test]
    fn unknown_arguments_count_only_without_ignore_unknown() {
        for allowed in ["Secret=canary;IgnoreUnknown=true", "IgnoreUnknown=TRUE;Secret=canary"] {
            assert!(PodArgs::parse(allowed).is_ok(), "{allowed}");
        }
        for refused in
            ["Secret=canary", "IgnoreUnknown=0;Secret=canary", "canary", "IgnoreUnknown=canary"]
        {
            let fault = PodArgs::parse(refused).unwrap_err();
            assert_eq!(fault.code, Code::InvalidEnvironment, "{refused}");
            assert!(!format!("{fault:?}").contains("canary"), "{refused}");
        }
    }

    #[test]
    fn half_a_name_is_no_name() {
        for text in ["", "K8S_POD_NAME=a", "K8S_POD_NAMESPACE=a;K8S_POD_NAME="] {
            let args = PodArgs::parse(text).unwrap();
            assert_eq!(args.demand_name().unwrap_err().code, Code::InvalidEnvironment, "{text}");
        }
    }
}
