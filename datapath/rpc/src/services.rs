//! Services for an agent that follows no replica of the controller.

#[cfg(any(feature = "server", feature = "streams"))]
use crate::wire;

/// The name of the daemon's socket, in the folder of the file with the controller's replicas.
pub const SERVICES_SOCKET: &str = "services.sock";

/// The longest message of this stream, in bytes. A slice with a thousand endpoints is a quarter of a megabyte.
#[cfg(any(feature = "server", feature = "streams"))]
const MESSAGE_BYTES: usize = 4 << 20;

#[cfg(feature = "server")]
pub use server::{ServicesSource, ServicesStream, serve_services};

#[cfg(feature = "streams")]
pub use client::{ServicesError, read_services};

#[cfg(feature = "server")]
mod server {
    use super::{
        MESSAGE_BYTES,
        wire::{
            self,
            services_server::{self, ServicesServer},
        },
    };
    use crate::served::version;
    use futures::{Stream, StreamExt as _};
    use runtime_socket::server::{self, Health, Incoming, ServeError};
    use std::{future::Future, pin::Pin, sync::Arc};
    use tokio::sync::Semaphore;
    use tonic::{Request, Response, Status};

    /// Messages of objects that were read, until the caller drops the stream.
    pub type ServicesStream = Pin<Box<dyn Stream<Item = wire::ServicesRead> + Send>>;

    /// A reader of Services and EndpointSlices.
    pub trait ServicesSource: Send + Sync + 'static {
        /// Starts to read. [`serve_services`] fills in the version of each message.
        fn read(&self) -> ServicesStream;
    }

    /// Answers on the socket until `stop` completes and every connection is closed.
    ///
    /// # Errors
    /// When HTTP/2 itself cannot continue; a broken connection ends only itself.
    pub async fn serve_services<S: ServicesSource>(
        incoming: Incoming,
        source: Arc<S>,
        health: &Health,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let endpoint = Endpoint { source, room: Arc::new(Semaphore::new(STREAMS)) };
        let service = ServicesServer::new(endpoint).max_encoding_message_size(MESSAGE_BYTES);
        server::serve(incoming, service, health, stop).await
    }

    struct Endpoint<S> {
        source: Arc<S>,
        room: Arc<Semaphore>,
    }

    #[tonic::async_trait]
    impl<S: ServicesSource> services_server::Services for Endpoint<S> {
        type ReadStream = Pin<Box<dyn Stream<Item = Result<wire::ServicesRead, Status>> + Send>>;

        async fn read(
            &self,
            request: Request<wire::ReadRequest>,
        ) -> Result<Response<Self::ReadStream>, Status> {
            let version = version(request.into_inner().versions)?;
            let room = Arc::clone(&self.room).try_acquire_owned();
            let room = room.map_err(|_| {
                Status::resource_exhausted(format!("{STREAMS} agents read Services already"))
            })?;
            let read = self.source.read().map(move |read| {
                let _room = &room;
                Ok(wire::ServicesRead { version, ..read })
            });
            Ok(Response::new(Box::pin(read)))
        }
    }

    /// The agent of the node, and the one that it replaces.
    const STREAMS: usize = 2;
}

#[cfg(feature = "streams")]
mod client {
    use super::{
        MESSAGE_BYTES,
        wire::{self, services_client::ServicesClient},
    };
    use crate::{streams::connect, versions};
    use runtime_socket::{before, origin};
    use std::{
        path::{Path, PathBuf},
        time::Instant,
    };
    use tonic::Streaming;

    /// The daemon does not serve Services.
    #[derive(Debug, thiserror::Error)]
    #[error("cannot read Services from the daemon at {}: {cause}", socket.display())]
    pub struct ServicesError {
        pub socket: PathBuf,
        pub cause: String,
    }

    /// Reads Services and EndpointSlices: all of them, and then their changes.
    ///
    /// # Errors
    /// The daemon has not answered by `deadline`.
    pub async fn read_services(
        socket: &Path,
        deadline: Instant,
    ) -> Result<Streaming<wire::ServicesRead>, ServicesError> {
        let error = |cause| ServicesError { socket: socket.to_owned(), cause };
        let late = || error("no answer within the deadline".to_owned());
        let channel = before(deadline, connect(socket)).await.ok_or_else(late)?.map_err(error)?;
        let mut client =
            ServicesClient::with_origin(channel, origin()).max_decoding_message_size(MESSAGE_BYTES);
        let asked = wire::ReadRequest { versions: versions() };
        // The stream has no deadline of its own.
        let answer = before(deadline, client.read(asked)).await.ok_or_else(late)?;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| error(format!("{} ({:?})", status.message(), status.code())))
    }
}
