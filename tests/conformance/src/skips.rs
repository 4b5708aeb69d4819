//! The tests that the lane skips.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Kubernetes' end-to-end tests of network policy.
    Kubernetes,
    /// Kubernetes' conformance tests of the network.
    KubernetesConformance,
    /// Kubernetes' end-to-end tests of Services.
    KubernetesServices,
    /// The conformance tests of network-policy-api.
    PolicyApi,
}

/// A protocol that a kernel can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Protocol {
    Sctp,
}

/// The protocols of this machine's kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub has_sctp: bool,
}

/// A test that the lane skips.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Skip {
    suite: Suite,
    test: String,
    /// `None` if the test is skipped on every kernel.
    kernel_without: Option<Protocol>,
    reason: String,
}

impl Skip {
    fn applies(&self, suite: Suite, kernel: Kernel) -> bool {
        let lacks = match self.kernel_without {
            None => true,
            Some(Protocol::Sctp) => !kernel.has_sctp,
        };
        self.suite == suite && lacks
    }
}

/// Returns the tests of a suite that are to be skipped on this kernel, with the reasons.
///
/// # Errors
/// If `skips.yaml` is invalid.
pub fn skips(
    suite: Suite,
    kernel: Kernel,
) -> Result<BTreeMap<String, String>, serde_saphyr::Error> {
    let all: Vec<Skip> = serde_saphyr::from_str(include_str!("../skips.yaml"))?;
    let applying = all.into_iter().filter(|skip| skip.applies(suite, kernel));
    Ok(applying.map(|skip| (skip.test, skip.reason)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skip_has_a_reason() {
        let all: Vec<Skip> = serde_saphyr::from_str(include_str!("../skips.yaml")).expect("YAML");
        assert!(!all.is_empty() && all.iter().all(|skip| !skip.reason.trim().is_empty()));
    }

    #[test]
    fn a_skip_for_a_missing_protocol_needs_a_kernel_without_it() {
        let with = skips(Suite::Kubernetes, Kernel { has_sctp: true }).expect("YAML");
        let without = skips(Suite::Kubernetes, Kernel { has_sctp: false }).expect("YAML");
        assert_eq!((with.len(), without.len()), (0, 3));
    }
}
