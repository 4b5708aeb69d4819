//! Constructor of problems.

use view_node::{Severity, Trouble};

pub(crate) fn trouble(kind: &str, object: &str, cause: &str, next_step: &str) -> Trouble {
    Trouble {
        kind: kind.to_owned(),
        severity: Severity::Trouble,
        since: None,
        object: object.to_owned(),
        cause: cause.to_owned(),
        next_step: next_step.to_owned(),
    }
}
