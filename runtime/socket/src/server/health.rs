//! Health by names, because they call for different medicine.

use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

/// What the daemon reports of itself by gRPC's own health protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthName {
    /// The loop answers. When it does not, a restart helps.
    Live,
    /// The pool can serve. When it cannot, say because a subnet is full, a restart does not help.
    Ready,
    /// A policy agent is served.
    PolicyAgent,
}

impl HealthName {
    /// The service's name in the health protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ready => "ready",
            Self::PolicyAgent => "policy-agent",
        }
    }
}

/// What the daemon says of itself. Clones share it.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Neither live nor ready yet, and without a policy agent.
    pub async fn starting() -> Self {
        let health = Self { reporter: HealthReporter::new() };
        health.set(HealthName::Live, false).await;
        health.set(HealthName::Ready, false).await;
        health.set(HealthName::PolicyAgent, false).await;
        health
    }

    /// Reports one kind of health from now on; who watches is told.
    pub async fn set(&self, name: HealthName, good: bool) {
        let status = if good { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.reporter.set_service_status(name.as_str(), status).await;
    }

    pub(super) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}
