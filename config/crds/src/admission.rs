//! Admission policies for the accounts of the daemon and of the controller: the sources of chart and manifests.

use crate::{CONTROLLER_ACCOUNT, NAMESPACE, SERVICE_ACCOUNT};

/// Taint of new nodes that the daemon removes, by default.
const STARTUP_TAINT: &str = "ferrule.io/not-ready";

/// Limits the daemon's account to its own node. The chart fills the parameters `${…}`.
pub(crate) const NODE_SCOPE: &str = include_str!("admission/node_scope.yaml");
/// Limits the content of the objects that the controller's account writes. The chart fills the parameters `${…}`.
pub(crate) const CONTROLLER_SCOPE: &str = include_str!("admission/controller_scope.yaml");

/// Returns the policy of the daemon's account with the names of the manifests.
pub(crate) fn node_scope() -> String {
    fill(NODE_SCOPE, SERVICE_ACCOUNT)
}

/// Returns the policy of the controller's account with the names of the manifests.
pub(crate) fn controller_scope() -> String {
    fill(CONTROLLER_SCOPE, CONTROLLER_ACCOUNT)
}

fn fill(source: &str, account: &str) -> String {
    source
        .replace("${NAME}", account)
        .replace("${ACCOUNT}", account)
        .replace("${NAMESPACE}", NAMESPACE)
        .replace("${TAINT}", STARTUP_TAINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_is_filled() {
        for text in [node_scope(), controller_scope()] {
            assert!(!text.contains("${"), "{text}");
            assert!(text.contains(
                "request.userInfo.username == 'system:serviceaccount:kube-system:ferrule-"
            ));
        }
    }
}
