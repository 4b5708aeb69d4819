//! Failed requests to the API server, sorted by the next step.

use config_model::causes;
use serde_json::Value;
use std::{future::Future, time::Duration};
use tokio::time::timeout;

/// Class of a fault, which decides about the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The API server was not reached or overloaded; retry.
    Unreachable,
    /// A right is missing; retry.
    Forbidden,
    /// There is no such object or kind.
    NotFound,
    /// Another client has changed the object; read it again.
    Conflict,
    /// The resource version is too old; list again.
    Expired,
    /// Any other fault; retry.
    Other,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) sort: Sort,
    /// The failed action with its cause.
    pub(crate) cause: String,
    /// An operator's next step; may be empty.
    pub(crate) next_step: String,
}

const REACH: &str = "check that this replica reaches the API server";
const CREATE: &str = "create the object: upgrade the release of the chart, or apply config/manifests/rbac-controller*.yaml";

/// Waits for the answer to a request, at most for `limit`.
///
/// # Errors
/// The fault of the request, or that there was no answer in time.
pub(crate) async fn answer_within<T>(
    limit: Duration,
    verb: &str,
    resource: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Fault> {
    match timeout(limit, request).await {
        Ok(answer) => answer.map_err(|error| Fault::of(&error, verb, resource)),
        Err(_) => Err(Fault::late(verb, resource)),
    }
}

impl Fault {
    /// Classifies the error of a request.
    pub(crate) fn of(error: &kube::Error, verb: &str, resource: &str) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::of_code(status.code, &status.message, verb, resource);
        }
        Self::unreachable(verb, resource, &causes(error))
    }

    pub(crate) fn unreachable(verb: &str, resource: &str, why: &str) -> Self {
        let cause = format!("cannot {verb} {resource}: {why}");
        Self { sort: Sort::Unreachable, cause, next_step: REACH.to_owned() }
    }

    pub(crate) fn late(verb: &str, resource: &str) -> Self {
        Self::unreachable(verb, resource, "no answer in time")
    }

    /// An object that this replica fills and does not create. `object` is its kind, namespace and name.
    pub(crate) fn missing(verb: &str, object: &str) -> Self {
        let cause = format!("cannot {verb} {object}: it does not exist");
        Self { sort: Sort::NotFound, cause, next_step: CREATE.to_owned() }
    }

    /// Replaces the fault of an absent object.
    pub(crate) fn or_missing(self, verb: &str, object: &str) -> Self {
        if self.sort == Sort::NotFound { Self::missing(verb, object) } else { self }
    }

    /// An answer that cannot be used.
    pub(crate) fn odd(verb: &str, resource: &str, why: &str) -> Self {
        let cause = format!("cannot {verb} {resource}: {why}");
        Self { sort: Sort::Other, cause, next_step: String::new() }
    }

    /// Reads the status that a watch sends in place of an object.
    pub(crate) fn of_status(status: &Value, resource: &str) -> Self {
        let code = status.get("code").and_then(Value::as_u64);
        let code = code.and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        let message = status.get("message").and_then(Value::as_str).unwrap_or("no reason given");
        Self::of_code(code, message, "watch", resource)
    }

    fn of_code(code: u16, message: &str, verb: &str, resource: &str) -> Self {
        let sort = match code {
            401 | 403 => Sort::Forbidden,
            404 => Sort::NotFound,
            409 => Sort::Conflict,
            410 => Sort::Expired,
            429 | 500 | 502..=504 => Sort::Unreachable,
            _ => Sort::Other,
        };
        let next_step = match code {
            401 => {
                "check that the controller's service account exists and its token is mounted".into()
            }
            403 => format!("allow the controller's service account to {verb} {resource}"),
            _ => String::new(),
        };
        Self { sort, cause: format!("cannot {verb} {resource}: {message}"), next_step }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_names_verb_and_resource() {
        let fault = Fault::of_code(403, "pods is forbidden", "list", "pods");
        assert_eq!(fault.sort, Sort::Forbidden);
        assert_eq!(fault.next_step, "allow the controller's service account to list pods");
    }

    #[test]
    fn an_expired_resource_version_is_read_from_the_status_of_the_watch() {
        let status = serde_json::json!({"kind": "Status", "code": 410, "message": "too old"});
        assert_eq!(Fault::of_status(&status, "pods").sort, Sort::Expired);
    }
}
