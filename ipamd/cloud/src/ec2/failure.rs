//! What the SDK says of a call that failed, in our words.
//!
//! The question that matters is whether EC2 may have acted: only what surely never left counts as
//! not done.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::DispatchFailure};
use config_model::Span;
use hyper_util::client::legacy::Error as HttpError;
use ipamd_core::{CloudFault, Ec2ErrorResponse, Remedy};
use std::error::Error;

/// An error type of one of EC2's actions.
pub(super) trait Ec2Error: ProvideErrorMetadata + Error + Send + Sync + 'static {}

impl<E: ProvideErrorMetadata + Error + Send + Sync + 'static> Ec2Error for E {}

/// A failed call: the fault, and the HTTP status if there was an answer.
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
            SdkError::ConstructionFailure(_) => fault("Construction", error, Remedy::TellOperator),
            SdkError::TimeoutError(_) => fault("Timeout", error, Remedy::Unknown),
            SdkError::DispatchFailure(cause) => dispatch(cause, error),
            SdkError::ResponseError(_) => fault("Unreadable", error, Remedy::Unknown),
            _ => fault("Unexpected", error, Remedy::Unknown),
        };
        Self { fault, status }
    }
}

/// EC2 answered with success and left out what the answer is for: it may have acted.
pub(super) fn incomplete(action: &'static str, lacks: &str) -> CloudFault {
    CloudFault {
        code: "Incomplete".to_owned(),
        message: format!("the answer to {action} lacks {lacks}, or holds something else there"),
        remedy: Remedy::Unknown,
    }
}

/// The request found no way out, or its answer none back.
fn dispatch(cause: &DispatchFailure, error: &(dyn Error + 'static)) -> CloudFault {
    let again = Remedy::RetryAfter { wait: None };
    match find::<CredentialsError>(error) {
        Some(CredentialsError::CredentialsNotLoaded(_)) => {
            return fault("NoCredentials", error, Remedy::TellOperator);
        }
        Some(_) => return fault("Credentials", error, again),
        None => {}
    }
    if find::<HttpError>(error).is_some_and(HttpError::is_connect) {
        fault("Connect", error, again)
    } else if cause.is_timeout() {
        fault("Timeout", error, Remedy::Unknown)
    } else if cause.is_user() {
        fault("Dispatch", error, Remedy::TellOperator)
    } else {
        fault("Dispatch", error, Remedy::Unknown)
    }
}

fn fault(code: &str, error: &(dyn Error + 'static), remedy: Remedy) -> CloudFault {
    CloudFault { code: code.to_owned(), message: told(error), remedy }
}

/// The chain of causes by their texts. Never by `Debug`, which shows whole requests.
pub(crate) fn told(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// The first cause of this type.
pub(crate) fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| (*cause).source())
}

fn retry_after(answer: &HttpResponse) -> Option<Span> {
    answer.headers().get("retry-after")?.parse().ok().map(Span::seconds)
}
