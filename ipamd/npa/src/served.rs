//! The node's configuration, which the agent asks for at its start.

use crate::{PolicyError, wire};
use runtime_socket::{
    dial, origin,
    server::{self, Health, Incoming, ServeError},
};
use std::{future::Future, path::Path, time::Instant};
use tokio::time::timeout_at;
use tonic::{Request, Response, Status};
use wire::{
    config_server_backend_client::ConfigServerBackendClient,
    config_server_backend_server::{ConfigServerBackend, ConfigServerBackendServer},
};

/// The node's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeConfig {
    /// The default for a pod that no policy selects: `none`, `standard` or `strict`.
    pub mode: String,
    /// A pod may have an interface on each network card.
    pub multi_nic: bool,
    /// The node's first IPv4 address.
    pub node_ipv4: String,
    /// The node's IPv6 address.
    pub node_ipv6: String,
    /// The EC2 instance.
    pub instance_id: String,
    /// The AWS region.
    pub region: String,
}

/// Answers the agent until `stop` completes and every connection is closed.
///
/// # Errors
/// When HTTP/2 itself cannot continue; a broken connection ends only itself.
pub async fn serve(
    incoming: Incoming,
    config: NodeConfig,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    server::serve(incoming, ConfigServerBackendServer::new(Answers(config)), health, stop).await
}

/// Asks for the configuration as the agent does.
///
/// # Errors
/// There is no answer by `deadline`.
pub async fn ask(socket: &Path, deadline: Instant) -> Result<NodeConfig, PolicyError> {
    let absent = |error: runtime_socket::DialError| PolicyError::Absent {
        socket: socket.to_owned(),
        why: error.reason(),
    };
    let connection = dial(socket, deadline).await.map_err(absent)?;
    let mut node = ConfigServerBackendClient::with_origin(connection, origin());
    let call = timeout_at(deadline.into(), node.get_network_policy_configs(Request::new(())));
    let reply = match call.await {
        Ok(Ok(reply)) => reply.into_inner(),
        Ok(Err(status)) => {
            let message = status.message().to_owned();
            return Err(PolicyError::Refused { socket: socket.to_owned(), message });
        }
        Err(_) => return Err(PolicyError::TimedOut { socket: socket.to_owned() }),
    };
    Ok(NodeConfig {
        mode: reply.network_policy_mode,
        multi_nic: reply.multi_nic_enabled,
        node_ipv4: reply.node_ipv4,
        node_ipv6: reply.node_ipv6,
        instance_id: reply.instance_id,
        region: reply.region,
    })
}

struct Answers(NodeConfig);

#[tonic::async_trait]
impl ConfigServerBackend for Answers {
    async fn get_network_policy_configs(
        &self,
        _asked: Request<()>,
    ) -> Result<Response<wire::NetworkPolicyAgentConfigReply>, Status> {
        let NodeConfig { mode, multi_nic, node_ipv4, node_ipv6, instance_id, region } =
            self.0.clone();
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
