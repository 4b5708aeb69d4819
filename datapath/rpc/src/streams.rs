//! Calls whose answer is a stream. The plugin's own HTTP/2 gives a response once it is complete, so these use another.

use crate::{AgentAt, AgentError, versions, wire};
use hyper_util::rt::TokioIo;
use runtime_socket::{MAX_MESSAGE_BYTES, before, origin};
use std::{path::Path, time::Instant};
use tokio::net::UnixStream;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint, Uri},
};
use wire::agent_client::AgentClient;

/// Connects to a socket. The error is the cause.
pub(crate) async fn connect(socket: &Path) -> Result<Channel, String> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let connecting = UnixStream::connect(socket.clone());
        async move { connecting.await.map(TokioIo::new) }
    });
    let connected = Endpoint::from(origin()).connect_with_connector(connector).await;
    connected.map_err(|error| config_model::causes(&error))
}

impl AgentAt {
    /// Packets that were dropped and connections that were allowed. With `follow` the stream ends with the agent.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn flows(
        &self,
        allowed: bool,
        follow: bool,
        deadline: Instant,
    ) -> Result<Streaming<wire::Flow>, AgentError> {
        let socket = self.socket.clone();
        let channel = match before(deadline, connect(&socket)).await {
            Some(Ok(channel)) => channel,
            Some(Err(why)) => return Err(AgentError::Absent { socket, why }),
            None => return Err(AgentError::TimedOut { socket }),
        };
        let mut agent = AgentClient::with_origin(channel, origin())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let asked = wire::FlowsRequest { versions: versions(), allowed, follow };
        // The stream has no deadline of its own.
        self.answer(deadline, agent.flows(asked)).await
    }
}
