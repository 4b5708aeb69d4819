//! Failed SDK calls as faults of the core.
//!
//! The decisive question is whether EC2 may have acted: only a request that certainly never left counts as not
//! executed.

use crate::error_chain::{chain_text, find};
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::DispatchFailure};
use config_model::Span;
use hyper_util::client::legacy::Error as HttpError;
use ipamd_core::{CloudFault, Ec2ErrorResponse, Remedy};
use std::error::Error;

/// The error type of one of EC2's actions.
pub(super) trait Ec2Error: ProvideErrorMetadata + Error + Send + Sync + 'static {}

impl<E: ProvideErrorMetadata + Error + Send + Sync + 'static> Ec2Error for E {}

/// The fault, and the HTTP status if there was an answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: CloudFault,
    pub(super) status: Option<u16>,
}

impl Failure {
    pub(super) fn of<E: Ec2Error>(action: &'static str, error: &SdkError<E, HttpResponse>) -> Self {
        let status = error.raw_response().map(|answer| answer.status().as_u16());
        let fault = match error {
            SdkError::ServiceError(said) => Ec2ErrorResponse {
                action,
                code: said.err().code(),
                message: said.err().message().unwrap_or_default(),
                status: said.raw().status().as_u16(),
                retry_after: retry_after(said.raw()),
            }
            .fault(),
            SdkError::ConstructionFailure(_) => {
                fault("Construction", error, Remedy::NotifyOperator)
            }
            SdkError::TimeoutError(_) => fault("Timeout", error, Remedy::Unknown),
            SdkError::DispatchFailure(cause) => dispatch(cause, error),
            SdkError::ResponseError(_) => fault("Unreadable", error, Remedy::Unknown),
            _ => fault("Unexpected", error, Remedy::Unknown),
        };
        Self { fault, status }
    }
}

/// EC2 reported success without the result: it may have acted.
pub(super) fn incomplete(action: &'static str, lacks: &str) -> CloudFault {
    CloudFault {
        code: "Incomplete".to_owned(),
        message: format!("the answer to {action} lacks {lacks} or has an unexpected value"),
        remedy: Remedy::Unknown,
    }
}

/// The request was not sent, or its answer did not arrive.
fn dispatch(cause: &DispatchFailure, error: &(dyn Error + 'static)) -> CloudFault {
    let again = Remedy::RetryAfter { wait: None };
    match find::<CredentialsError>(error) {
        Some(CredentialsError::CredentialsNotLoaded(_)) => {
            return fault("NoCredentials", error, Remedy::NotifyOperator);
        }
        Some(_) => return fault("Credentials", error, again),
        None => {}
    }
    if find::<HttpError>(error).is_some_and(HttpError::is_connect) {
        fault("Connect", error, again)
    } else if cause.is_timeout() {
        fault("Timeout", error, Remedy::Unknown)
    } else if cause.is_user() {
        fault("Dispatch", error, Remedy::NotifyOperator)
    } else {
        fault("Dispatch", error, Remedy::Unknown)
    }
}

fn fault(code: &str, error: &(dyn Error + 'static), remedy: Remedy) -> CloudFault {
    CloudFault { code: code.to_owned(), message: chain_text(error), remedy }
}

fn retry_after(answer: &HttpResponse) -> Option<Span> {
    answer.headers().get("retry-after")?.parse().ok().map(Span::seconds)
}
