//! Where nodes come in: TLS before anything else.

use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::debug;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How many may be under way.
const HANDSHAKES: usize = 256;

/// The certificate that is shown, which may be another from one connection to the next.
#[derive(Debug, Default)]
pub struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows this one from now on.
    pub fn show(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A connection whose peer has seen our certificate.
#[derive(Debug)]
pub struct Secured {
    tls: TlsStream<TcpStream>,
    from: SocketAddr,
}

/// Lets connections in, as they are made. A peer that is slow or speaks no TLS keeps nobody else waiting.
///
/// # Errors
/// If there is no such configuration of TLS.
pub fn door(
    listener: TcpListener,
    shown: Arc<Shown>,
) -> io::Result<ReceiverStream<io::Result<Secured>>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Nodes connect rarely and stay: sessions to resume would be memory for nothing.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (inside, through) = mpsc::channel(16);
    tokio::spawn(accept(listener, acceptor, inside));
    Ok(ReceiverStream::new(through))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    inside: mpsc::Sender<io::Result<Secured>>,
) {
    let room = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = inside.closed() => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, for one: others may end meanwhile.
                debug!(%error, "a connection cannot be taken");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let (acceptor, inside) = (acceptor.clone(), inside.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let _ = tcp.set_nodelay(true);
            match timeout(HANDSHAKE, acceptor.accept(tcp)).await {
                Ok(Ok(tls)) => drop(inside.send(Ok(Secured { tls, from })).await),
                Ok(Err(error)) => debug!(%from, %error, "no TLS was made"),
                Err(_) => debug!(%from, "no TLS was made in time"),
            }
        });
    }
}

impl Connected for Secured {
    type ConnectInfo = SocketAddr;

    fn connect_info(&self) -> SocketAddr {
        self.from
    }
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}
