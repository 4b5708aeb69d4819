//! Who is told of each call: metrics.

use std::time::Duration;

/// Which service was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The EC2 API. Each report is one request.
    Ec2,
    /// The instance metadata service. A path that is absent is no error.
    Imds,
}

/// One call that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallReport<'a> {
    /// Who was asked.
    pub service: Service,
    /// EC2's name of the action; for IMDS, the name that amazon-vpc-cni uses in its metrics.
    pub action: &'static str,
    /// How long it took.
    pub duration: Duration,
    /// The HTTP status of the answer, if there was one.
    pub status: Option<u16>,
    /// The error's code, if it failed.
    pub error: Option<&'a str>,
}

/// Told of each call when it has ended. Any closure that takes a report is one.
pub trait Observer: Send + Sync + 'static {
    /// A call has ended.
    fn called(&self, report: &CallReport<'_>);
}

impl<F: Fn(&CallReport<'_>) + Send + Sync + 'static> Observer for F {
    fn called(&self, report: &CallReport<'_>) {
        self(report);
    }
}
