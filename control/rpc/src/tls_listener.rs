//! Listener for nodes, with TLS on every connection.

use runtime_limiter::{Bounds, Connection, Leave, Place, PreauthLimiter};
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, RwLock},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use tracing::debug;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// The serving certificate, which may be replaced at any time.
#[derive(Debug, Default)]
pub struct Certificates(RwLock<Option<Arc<CertifiedKey>>>);

impl Certificates {
    /// Replaces the certificate for new connections.
    pub fn show(&self, key: CertifiedKey) {
        *runtime_lock::write(&self.0) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        runtime_lock::read(&self.0).clone()
    }
}

/// A connection after its TLS handshake.
#[derive(Debug)]
pub struct SecuredStream {
    tls: TlsStream<TcpStream>,
    from: SocketAddr,
    place: Place,
    stay: Stay,
}

/// State of a connection in the pre-auth limiter.
#[derive(Debug)]
enum Stay {
    /// The connection has not certificates a valid token yet.
    Unauthenticated(Leave),
    Authenticated,
    Evicted,
}

impl Stay {
    fn poll(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Self::Unauthenticated(leave) = self {
            match Pin::new(leave).poll(cx) {
                Poll::Ready(Ok(())) => *self = Self::Authenticated,
                Poll::Ready(Err(_)) => *self = Self::Evicted,
                Poll::Pending => {}
            }
        }
        match self {
            Self::Unauthenticated(_) | Self::Authenticated => Ok(()),
            Self::Evicted => Err(io::Error::new(io::ErrorKind::TimedOut, "no valid token in time")),
        }
    }
}

/// Accepts connections. A peer that is slow, does not speak TLS, or shows no valid token does not delay
/// others for long.
///
/// # Errors
/// Fails if the TLS configuration is invalid.
pub fn listen(
    listener: TcpListener,
    certificates: Arc<Certificates>,
) -> io::Result<ReceiverStream<io::Result<SecuredStream>>> {
    listen_within(listener, certificates, Bounds::default())
}

/// Like [`listen`], with other limits for unauthenticated connections.
///
/// # Errors
/// Fails if the TLS configuration is invalid.
pub fn listen_within(
    listener: TcpListener,
    certificates: Arc<Certificates>,
    bounds: Bounds,
) -> io::Result<ReceiverStream<io::Result<SecuredStream>>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let mut config = config.with_no_client_auth().with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Nodes connect rarely and stay: sessions to resume would be memory for nothing.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (sender, streams) = mpsc::channel(16);
    tokio::spawn(accept(listener, acceptor, bounds, sender));
    Ok(ReceiverStream::new(streams))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    bounds: Bounds,
    sender: mpsc::Sender<io::Result<SecuredStream>>,
) {
    let preauth = PreauthLimiter::new(bounds);
    let mut sweep = interval(preauth.every());
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = sweep.tick() => {
                preauth.sweep();
                continue;
            }
            () = sender.closed() => return,
        };
        let (tcp, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example, no file descriptor is free: other connections may end meanwhile.
                debug!(%error, "cannot accept connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some((place, mut leave)) = preauth.enter(from.ip()).await else {
            debug!(%from, "connection refused: too many connections from its address");
            continue;
        };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let handshake = tokio::select! {
                done = timeout(HANDSHAKE, acceptor.accept(tcp)) => done,
                // The limiter evicts this connection.
                _ = &mut leave => return,
            };
            match handshake {
                Ok(Ok(tls)) => {
                    let secured =
                        SecuredStream { tls, from, place, stay: Stay::Unauthenticated(leave) };
                    // An error means that the server has stopped.
                    let _ = sender.send(Ok(secured)).await;
                }
                Ok(Err(error)) => debug!(%from, %error, "TLS handshake failed"),
                Err(_) => debug!(%from, "TLS handshake timed out"),
            }
        });
    }
}

impl Connected for SecuredStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.place.connection().clone()
    }
}

impl SecuredStream {
    /// Checked before each read and write. A peer that takes no data can block reads of its connection, and one that
    /// sends none can block writes. One task polls both, so one of them wakes it.
    fn may_stay(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let stays = self.stay.poll(cx).and_then(|()| match self.place.connection().has_ended(cx) {
            true => {
                let why = "a stream on it has read no data in time";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            false => Ok(()),
        });
        stays.inspect_err(|error| debug!(from = %self.from, %error, "connection closed"))
    }
}

impl AsyncRead for SecuredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.may_stay(cx)?;
        Pin::new(&mut self.tls).poll_read(cx, buf)
    }
}

impl AsyncWrite for SecuredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.may_stay(cx)?;
        Pin::new(&mut self.tls).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.may_stay(cx)?;
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
