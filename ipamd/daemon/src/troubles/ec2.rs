//! The problems that EC2's last answers reveal.

use super::{Found, notice, trouble};
use ipamd_core::{BudgetView, Remedy, is_denial};

/// The reason why an action is not called, if any.
pub(super) fn of(budget: &BudgetView) -> Option<Found> {
    let action = budget.action;
    let object = format!("ec2:{action}");
    match &budget.fault {
        Some((said, Remedy::NotifyOperator)) if is_denial(said) => {
            Some(trouble("denied", &object, &**said, format!("allow {object} to the node's role")))
        }
        Some((said, Remedy::NotifyOperator)) => Some(trouble(
            "refused",
            &object,
            &**said,
            "fix the cause that EC2 names; the daemon retries",
        )),
        Some((said, Remedy::LimitReached)) => {
            Some(trouble("limit_reached", &object, &**said, QUOTA))
        }
        _ if budget.rate_milli_per_second < budget.ceiling_milli_per_second => {
            let [rate, of] =
                [budget.rate_milli_per_second, budget.ceiling_milli_per_second].map(per_second);
            let cause = format!("EC2 throttles it: the budget is {rate} of {of} calls per second");
            Some(notice("throttled", &object, &cause, THROTTLED))
        }
        Some((said, Remedy::Unknown | Remedy::RetryAfter { .. })) => {
            Some(notice("call_failed", &object, said, "the daemon retries"))
        }
        Some((_, Remedy::TryElsewhere | Remedy::Gone)) | None => None,
    }
}

fn per_second(milli: u64) -> String {
    let text = format!("{}.{:03}", milli / 1000, milli % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const QUOTA: &str = "ask AWS for a higher quota, or lower the warm targets of the nodes";
const THROTTLED: &str =
    "find the busiest caller of the account in CloudTrail, or ask AWS for a higher rate";

#[cfg(test)]
mod tests {
    use super::*;
    use ipamd_core::Action;
    use std::sync::Arc;

    fn budget(rate: u64, fault: Option<(&str, Remedy)>) -> BudgetView {
        BudgetView {
            action: Action::Assign,
            milli_tokens: 0,
            rate_milli_per_second: rate,
            ceiling_milli_per_second: 2000,
            burst: 4,
            fault: fault.map(|(said, remedy)| (Arc::from(said), remedy)),
        }
    }

    #[test]
    fn a_missing_rbac_permission_is_reported_by_name() {
        let said = "UnauthorizedOperation: You are not authorized";
        let found = of(&budget(2000, Some((said, Remedy::NotifyOperator)))).expect("a trouble");
        assert_eq!((found.kind, found.object.as_str()), ("denied", "ec2:AssignPrivateIpAddresses"));
        assert_eq!(found.next_step, "allow ec2:AssignPrivateIpAddresses to the node's role");
        let said = "InvalidParameterValue: odd";
        let found = of(&budget(2000, Some((said, Remedy::NotifyOperator)))).expect("a trouble");
        assert_eq!(found.kind, "refused");
    }

    #[test]
    fn throttling_shows_the_rest_of_the_rate() {
        let throttled = Some(("RequestLimitExceeded: x", Remedy::RetryAfter { wait: None }));
        let found = of(&budget(250, throttled)).expect("a notice");
        let wanted = "EC2 throttles it: the budget is 0.25 of 2 calls per second";
        assert_eq!((found.kind, found.cause.as_str()), ("throttled", wanted));
        assert_eq!(of(&budget(2000, None)), None);
    }
}
