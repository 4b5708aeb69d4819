//! Failed requests, by the possible next step.

use config_model::causes;

/// The possible next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The API server was unreachable or overloaded: retry.
    Unreachable,
    /// A permission is missing: retry rarely.
    Forbidden,
    /// The object or the kind does not exist.
    NotFound,
    /// Another writer was first: read again.
    Conflict,
    /// The object is not in the state that the request assumes.
    Invalid,
    /// The resource version of the watch has expired: list again.
    Expired,
    /// Any other failure: retry.
    Other,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// The error of the API server or of the connection.
    pub(crate) cause: String,
    /// The next step for a person.
    pub(crate) next_step: String,
}

impl Fault {
    pub(crate) fn of(error: &kube::Error, verb: &str, resource: &str) -> Self {
        if let kube::Error::Api(status) = error {
            return Self::of_status(status, verb, resource);
        }
        let unreached = matches!(
            error,
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_)
        );
        let kind = if unreached { Kind::Unreachable } else { Kind::Other };
        let cause = format!("cannot {verb} {resource}: {}", causes(error));
        Self { kind, cause, next_step: REACH.to_owned() }
    }

    pub(crate) fn of_status(status: &kube::core::Status, verb: &str, resource: &str) -> Self {
        let kind = match status.code {
            401 | 403 => Kind::Forbidden,
            404 => Kind::NotFound,
            409 => Kind::Conflict,
            410 => Kind::Expired,
            422 => Kind::Invalid,
            429 | 500 | 502..=504 => Kind::Unreachable,
            _ => Kind::Other,
        };
        let next_step = match status.code {
            401 => "check that the daemon's service account exists and its token is mounted".into(),
            403 => format!("allow the daemon's service account to {verb} {resource}"),
            404 => format!("check that {resource} are installed"),
            _ => String::new(),
        };
        let cause = format!("cannot {verb} {resource}: {}", status.message);
        Self { kind, cause, next_step }
    }

    /// A request without an answer in time.
    pub(crate) fn late(verb: &str, resource: &str) -> Self {
        let cause = format!("cannot {verb} {resource}: no answer in time");
        Self { kind: Kind::Unreachable, cause, next_step: REACH.to_owned() }
    }
}

const REACH: &str = "check that the node reaches the API server";

pub(crate) fn of_watch(error: &kube::runtime::watcher::Error, resource: &str) -> Fault {
    use kube::runtime::watcher::Error;
    match error {
        Error::InitialListFailed(cause) => Fault::of(cause, "list", resource),
        Error::WatchStartFailed(cause) | Error::WatchFailed(cause) => {
            Fault::of(cause, "watch", resource)
        }
        Error::WatchError(status) => Fault::of_status(status, "watch", resource),
        Error::NoResourceVersion => Fault {
            kind: Kind::Other,
            cause: format!("cannot watch {resource}: {}", causes(error)),
            next_step: String::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_missing_permission_names_verb_and_resource() {
        let status = Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let fault = Fault::of_status(&status, "list", "pods");
        assert_eq!(fault.kind, Kind::Forbidden);
        assert_eq!(fault.next_step, "allow the daemon's service account to list pods");
        assert_eq!(fault.cause, "cannot list pods: pods is forbidden");
    }
}
