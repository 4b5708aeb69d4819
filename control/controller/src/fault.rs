//! What the API server refused or did not answer, sorted by what can be done next.

use config_model::causes;
use serde_json::Value;

/// What can be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// It was not reached, or had no time: try again.
    Unreachable,
    /// A right is missing: try again.
    Forbidden,
    /// There is no such object or kind.
    NotFound,
    /// Somebody else was faster: read anew.
    Conflict,
    /// The position is forgotten: list anew.
    Expired,
    /// Anything else: try again.
    Other,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) sort: Sort,
    /// What was asked, and what became of it.
    pub(crate) cause: String,
    /// What a person can do; may be empty.
    pub(crate) next_step: String,
}

const REACH: &str = "check that this replica reaches the API server";

impl Fault {
    /// What `verb` on `resource` came to.
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

    /// What came is not what was asked for.
    pub(crate) fn odd(verb: &str, resource: &str, why: &str) -> Self {
        let cause = format!("cannot {verb} {resource}: {why}");
        Self { sort: Sort::Other, cause, next_step: String::new() }
    }

    /// Of the status that a watch says in the place of an object.
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
    fn a_missing_right_names_verb_and_resource() {
        let fault = Fault::of_code(403, "pods is forbidden", "list", "pods");
        assert_eq!(fault.sort, Sort::Forbidden);
        assert_eq!(fault.next_step, "allow the controller's service account to list pods");
    }

    #[test]
    fn a_position_that_is_forgotten_is_known_from_what_the_watch_says() {
        let status = serde_json::json!({"kind": "Status", "code": 410, "message": "too old"});
        assert_eq!(Fault::of_status(&status, "pods").sort, Sort::Expired);
    }
}
