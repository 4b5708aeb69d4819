//! A node's connection to a replica: TLS, keepalive and the token of each request.

use crate::{Trust, generated::distribution_client::DistributionClient};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use thiserror::Error;
use tokio::{net::TcpStream, time::timeout};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

/// Timeout of the connection setup.
const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a request, and of the first reply on a stream.
pub(crate) const REPLY: Duration = Duration::from_secs(10);
/// Maximum size of a received message.
const MESSAGE_BYTES: usize = 16 << 20;
/// Keepalive interval of a silent connection. The connection is closed after the same time without a reply.
const ALIVE: Duration = Duration::from_secs(15);

/// Reason why a stream did not start, or ended.
#[derive(Debug, Error)]
pub enum FollowError {
    /// The replica was not reached.
    #[error("cannot reach the replica at {at}: {why}")]
    Unreachable {
        /// Address of the replica.
        at: SocketAddr,
        /// Cause of the failure.
        why: String,
    },
    /// The replica refused the stream or broke it off.
    #[error("the replica at {at}: {status}")]
    Refused {
        /// Address of the replica.
        at: SocketAddr,
        /// Status that the replica returned.
        status: Box<Status>,
    },
    /// The replica has read less of the cluster than the node holds.
    #[error("the replica at {at} has read less than this node holds")]
    Behind {
        /// Address of the replica.
        at: SocketAddr,
        /// Resource version up to which the replica has read each kind.
        reached: BTreeMap<String, u64>,
    },
    /// The replica sent an unexpected message, or none.
    #[error("the replica at {at} {what}")]
    Odd {
        /// Address of the replica.
        at: SocketAddr,
        /// Description of the violation.
        what: &'static str,
    },
    /// The token cannot be a header.
    #[error("cannot send the token: it has characters that are invalid in a header")]
    Token,
}

pub(crate) async fn connect(
    at: SocketAddr,
    trust: &Trust,
) -> Result<DistributionClient<Channel>, FollowError> {
    let trust = trust.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let trust = trust.clone();
        async move {
            let tcp = TcpStream::connect(at).await?;
            tcp.set_nodelay(true)?;
            trust.wrap(tcp).await.map(TokioIo::new)
        }
    });
    // TLS verifies the name in `trust`. The name of this endpoint is not resolved.
    let endpoint = Endpoint::from_static("http://controller")
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(ALIVE)
        .keep_alive_timeout(ALIVE)
        .keep_alive_while_idle(true);
    let unreachable = |why: String| FollowError::Unreachable { at, why };
    let connecting = timeout(CONNECT, endpoint.connect_with_connector(connector)).await;
    let channel = connecting.map_err(|_| unreachable(format!("no answer in {CONNECT:?}")))?;
    let channel = channel.map_err(|error| unreachable(config_model::causes(&error)))?;
    Ok(DistributionClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
}

pub(crate) fn bearer(token: &str) -> Result<MetadataValue<Ascii>, FollowError> {
    let bearer = MetadataValue::try_from(format!("Bearer {token}"));
    let mut token = bearer.map_err(|_| FollowError::Token)?;
    token.set_sensitive(true);
    Ok(token)
}

pub(crate) fn with_token<T>(message: T, token: &MetadataValue<Ascii>) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", token.clone());
    request.set_timeout(REPLY);
    request
}
