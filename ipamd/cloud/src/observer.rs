//! The receiver of a report about each call, for metrics.

use std::time::Duration;

/// The service of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The EC2 API. Each report is one request.
    Ec2,
    /// The instance metadata service. A missing path is not an error.
    Imds,
}

/// A completed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport<'a> {
    pub service: Service,
    /// EC2's name of the action; for IMDS, the name in amazon-vpc-cni's metrics.
    pub action: &'static str,
    pub duration: Duration,
    /// The HTTP status of the answer; `None` without an answer.
    pub status: Option<u16>,
    /// The error code; `None` if the call succeeded.
    pub error: Option<&'a str>,
}

/// Receives a report after each call. A closure that takes a report is an observer.
pub trait Observer: Send + Sync + 'static {
    fn called(&self, report: &CallReport<'_>);
}

impl<F: Fn(&CallReport<'_>) + Send + Sync + 'static> Observer for F {
    fn called(&self, report: &CallReport<'_>) {
        self(report);
    }
}
