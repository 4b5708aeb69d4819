//! What the agent asks of a node when it starts.

use super::{PolicyError, why, wire};
use crate::{
    client::connection,
    server::{Health, Incoming, ServeError, serve_only},
};
use std::{future::Future, path::Path, time::Instant};
use tokio::time::timeout_at;
use tonic::{Request, Response, Status};
use wire::{
    config_server_backend_client::ConfigServerBackendClient,
    config_server_backend_server::{ConfigServerBackend, ConfigServerBackendServer},
};

/// How the node is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What holds for a pod that no policy names: `standard` or `strict`.
    pub mode: String,
    /// Whether a pod may have an interface on each network card.
    pub multi_nic: bool,
    /// The node's first IPv4 address.
    pub node_ipv4: String,
    /// The node's IPv6 address.
    pub node_ipv6: String,
    /// The instance.
    pub instance_id: String,
    /// Where it is.
    pub region: String,
}

/// Answers the agent until `stop` completes and every connection has closed.
///
/// # Errors
/// When HTTP/2 itself cannot go on; a broken connection ends only itself.
pub async fn serve(
    incoming: Incoming,
    terms: Terms,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_only(incoming, ConfigServerBackendServer::new(Answers(terms)), health, stop).await
}

/// Asks as the agent does.
///
/// # Errors
/// Nobody answers by `deadline`.
pub async fn ask(socket: &Path, deadline: Instant) -> Result<Terms, PolicyError> {
    let connection = connection::open(socket, deadline)
        .await
        .map_err(|error| PolicyError::Absent { socket: socket.to_owned(), why: why(&error) })?;
    let mut node = ConfigServerBackendClient::with_origin(connection, connection::origin());
    let call = timeout_at(deadline.into(), node.get_network_policy_configs(Request::new(())));
    let told = match call.await {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => {
            let said = status.message().to_owned();
            return Err(PolicyError::Refused { socket: socket.to_owned(), said });
        }
        Err(_) => return Err(PolicyError::TimedOut { socket: socket.to_owned() }),
    };
    Ok(Terms {
        mode: told.network_policy_mode,
        multi_nic: told.multi_nic_enabled,
        node_ipv4: told.node_ipv4,
        node_ipv6: told.node_ipv6,
        instance_id: told.instance_id,
        region: told.region,
    })
}

struct Answers(Terms);

#[tonic::async_trait]
impl ConfigServerBackend for Answers {
    async fn get_network_policy_configs(
        &self,
        _asked: Request<()>,
    ) -> Result<Response<wire::NetworkPolicyAgentConfigReply>, Status> {
        let Terms { mode, multi_nic, node_ipv4, node_ipv6, instance_id, region } = self.0.clone();
        Ok(Response::new(wire::NetworkPolicyAgentConfigReply {
            network_policy_mode: mode,
            multi_nic_enabled: multi_nic,
            node_ipv4,
            node_ipv6,
            instance_id,
            region,
        }))
    }
}
