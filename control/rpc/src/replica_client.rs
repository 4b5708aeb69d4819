//! Single questions to a replica that a node need not follow: announcements go to all of them, reports to one.

use crate::{
    FollowError, Trust,
    connection::{bearer, connect, with_token},
    generated::distribution_client::DistributionClient,
};
use control_wire::proto::{AnnounceRequest, ReportRequest};
use std::net::SocketAddr;
use tonic::{Status, transport::Channel};

/// A connection to a replica. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplicaClient {
    client: DistributionClient<Channel>,
}

impl ReplicaClient {
    /// Connects to a replica.
    ///
    /// # Errors
    /// Fails if the replica cannot be reached, or has no certificate of the authority.
    pub async fn open(at: SocketAddr, trust: &Trust) -> Result<Self, FollowError> {
        connect(at, trust).await.map(Self::of)
    }

    pub(crate) fn of(client: DistributionClient<Channel>) -> Self {
        Self { client }
    }

    /// Announces a pod's address to this replica.
    ///
    /// # Errors
    /// Fails if the replica refuses the announcement or cannot be reached.
    pub async fn announce(&self, token: &str, announce: AnnounceRequest) -> Result<(), Status> {
        let token = bearer(token).map_err(|error| Status::internal(error.to_string()))?;
        self.client.clone().announce(with_token(announce, &token)).await.map(drop)
    }

    /// Reports the state of policies to this replica.
    ///
    /// # Errors
    /// Fails if the replica refuses the report or cannot be reached.
    pub async fn report(&self, token: &str, report: ReportRequest) -> Result<(), Status> {
        let token = bearer(token).map_err(|error| Status::internal(error.to_string()))?;
        self.client.clone().report(with_token(report, &token)).await.map(drop)
    }
}
