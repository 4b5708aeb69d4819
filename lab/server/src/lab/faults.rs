//! Faults: the operator's words in the model's.

use super::{Lab, LabError};
use crate::{
    control::{FaultSpec, FaultView},
    live::ReplyLoss,
};
use config_model::{EniId, Span};
use lab_cloud::{Action, Ec2Error, Fault, FaultId};
use serde_json::json;

impl Lab {
    pub(crate) fn set_fault(&self, spec: FaultSpec) -> Result<Vec<FaultView>, LabError> {
        match spec {
            FaultSpec::Detach { eni } => {
                self.cloud.with(|cloud, now| cloud.pull_eni(now, &EniId::new(eni)))?;
            }
            FaultSpec::LoseReplies { action, every } => {
                let action = parse(action)?;
                self.cloud.lose_replies(Some(ReplyLoss { action, every, calls: 0 }));
            }
            model @ (FaultSpec::Throttle { .. }
            | FaultSpec::Error { .. }
            | FaultSpec::Latency { .. }
            | FaultSpec::ImdsLag { .. }
            | FaultSpec::ImdsStatus { .. }
            | FaultSpec::ReadLag { .. }
            | FaultSpec::ForgetTermination { .. }
            | FaultSpec::AttachNever) => {
                let fault = fault(model)?;
                self.cloud.with(|cloud, now| cloud.set_fault(now, fault));
            }
        }
        Ok(self.faults())
    }

    /// The faults that are set.
    pub(crate) fn faults(&self) -> Vec<FaultView> {
        let set = self.cloud.with(|cloud, _| cloud.faults());
        let mut views: Vec<FaultView> = set.iter().map(|(id, fault)| view(*id, fault)).collect();
        if let Some(lossy) = self.cloud.lossy() {
            let fault = json!({
                "kind": LOSE_REPLIES, "action": lossy.action, "every": lossy.every,
            });
            views.push(FaultView { id: LOSE_REPLIES.to_owned(), fault });
        }
        views
    }

    /// Clears faults by id or kind, or all.
    pub(crate) fn clear_faults(&self, which: Option<&str>) -> Result<Vec<FaultView>, LabError> {
        let Some(which) = which else {
            self.cloud.lose_replies(None);
            self.cloud.with(lab_cloud::Cloud::clear_faults);
            return Ok(self.faults());
        };
        let chosen: Vec<FaultView> = self.faults().into_iter().filter(|f| is(f, which)).collect();
        if chosen.is_empty() {
            return Err(LabError::BadFault(format!("no fault {which} is set")));
        }
        for fault in chosen {
            match fault.id.strip_prefix("fault-").and_then(|number| number.parse().ok()) {
                Some(number) => {
                    self.cloud.with(|cloud, now| cloud.clear_fault(now, FaultId(number)));
                }
                None => self.cloud.lose_replies(None),
            }
        }
        Ok(self.faults())
    }
}

fn is(fault: &FaultView, which: &str) -> bool {
    let kind = fault.fault["kind"].as_str().unwrap_or_default();
    // `throttle` is short for `throttle-every-nth`, as `fault set` has it.
    fault.id == which || kind == which || kind.starts_with(&format!("{which}-"))
}

fn view(id: FaultId, fault: &Fault) -> FaultView {
    let fault = serde_json::to_value(fault).unwrap_or_default();
    FaultView { id: id.to_string(), fault }
}

fn fault(spec: FaultSpec) -> Result<Fault, LabError> {
    Ok(match spec {
        FaultSpec::Throttle { action, every } => {
            Fault::ThrottleEveryNth { action: parse(action)?, nth: every }
        }
        FaultSpec::Error { code, action, times } => {
            Fault::Error { action: parse(action)?, error: error(code), times }
        }
        FaultSpec::Latency { action, delay_ms } => {
            Fault::Latency { action: parse(action)?, latency: Span(delay_ms) }
        }
        FaultSpec::ImdsLag { lag_ms } => Fault::ImdsLag { lag: Span(lag_ms) },
        FaultSpec::ImdsStatus { status } => Fault::ImdsStatus { instance: None, status },
        FaultSpec::ReadLag { lag_ms } => Fault::ReadLag { lag: Span(lag_ms) },
        FaultSpec::ForgetTermination { times } => Fault::ForgetDeleteOnTermination { times },
        FaultSpec::AttachNever => Fault::AttachNeverCompletes { instance: None },
        FaultSpec::Detach { .. } | FaultSpec::LoseReplies { .. } => {
            return Err(LabError::BadFault("this fault is not the model's".to_owned()));
        }
    })
}

/// EC2's error with the status that goes with its code.
fn error(code: String) -> Ec2Error {
    let status = match code.as_str() {
        "RequestLimitExceeded" | "Unavailable" | "ServiceUnavailable" => 503,
        "InternalError" | "InternalFailure" => 500,
        "UnauthorizedOperation" => 403,
        "AuthFailure" => 401,
        _ => 400,
    };
    Ec2Error::new(code, "A fault of the lab.").with_status(status)
}

fn parse(action: Option<String>) -> Result<Option<Action>, LabError> {
    let Some(name) = action else { return Ok(None) };
    name.parse().map(Some).map_err(|_: Ec2Error| {
        let known: Vec<&str> = Action::ALL.iter().map(|action| action.name()).collect();
        LabError::BadFault(format!("there is no action {name}; there are: {}", known.join(", ")))
    })
}

const LOSE_REPLIES: &str = "lose-replies";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_status_that_ec2_gives_it() {
        assert_eq!(error("UnauthorizedOperation".to_owned()).http_status, 403);
        assert_eq!(error("RequestLimitExceeded".to_owned()).http_status, 503);
        assert_eq!(error("InsufficientFreeAddressesInSubnet".to_owned()).http_status, 400);
    }

    #[test]
    fn an_action_that_ec2_does_not_have_is_refused() {
        assert!(parse(Some("MakeCoffee".to_owned())).is_err());
        let known = parse(Some("CreateTags".to_owned())).ok().flatten();
        assert_eq!(known, Some(Action::CreateTags));
    }
}
