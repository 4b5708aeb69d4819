//! Kinds of health by name: each requires a different action.

use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

/// A kind of health that a server reports over gRPC's health protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthName {
    /// The event loop answers. If it does not, a restart helps.
    Live,
    /// The process can serve. If it cannot, for example because a subnet is full, a restart does not help.
    Ready,
    /// The daemon serves aws-network-policy-agent.
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

/// The health that a server reports. Clones share it.
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

    /// Sets one kind of health. Watchers receive the change.
    pub async fn set(&self, name: HealthName, good: bool) {
        let status = if good { ServingStatus::Serving } else { ServingStatus::NotServing };
        self.reporter.set_service_status(name.as_str(), status).await;
    }

    pub(super) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}
