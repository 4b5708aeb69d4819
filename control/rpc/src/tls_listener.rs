//! Listener for nodes, with TLS on every connection.

use crate::preauth::{Bounds, Connection, Leave, Place, PreauthLimiter};
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
    sync::{Arc, PoisonError, RwLock},
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

/// The certificate that is shown, which may be another from one connection to the next.
#[derive(Debug, Default)]
pub struct Certificates(RwLock<Option<Arc<CertifiedKey>>>);

impl Certificates {
    /// Shows this one from now on.
    pub fn show(&self, key: CertifiedKey) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A connection whose peer has seen our certificate.
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
    /// The connection has not shown a valid token yet.
    Asked(Leave),
    Granted,
    Denied,
}

impl Stay {
    fn poll(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Self::Asked(leave) = self {
            match Pin::new(leave).poll(cx) {
                Poll::Ready(Ok(())) => *self = Self::Granted,
                Poll::Ready(Err(_)) => *self = Self::Denied,
                Poll::Pending => {}
            }
        }
        match self {
            Self::Asked(_) | Self::Granted => Ok(()),
            Self::Denied => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "no good token was shown in time"))
            }
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
    shown: Arc<Certificates>,
) -> io::Result<ReceiverStream<io::Result<SecuredStream>>> {
    listen_within(listener, shown, Bounds::default())
}

/// Like [`listen`], with other limits for unauthenticated connections.
///
/// # Errors
/// Fails if the TLS configuration is invalid.
pub fn listen_within(
    listener: TcpListener,
    shown: Arc<Certificates>,
    bounds: Bounds,
) -> io::Result<ReceiverStream<io::Result<SecuredStream>>> {
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
    tokio::spawn(accept(listener, acceptor, bounds, inside));
    Ok(ReceiverStream::new(through))
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    bounds: Bounds,
    inside: mpsc::Sender<io::Result<SecuredStream>>,
) {
    let strangers = PreauthLimiter::new(bounds);
    let mut sweep = interval(strangers.every());
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = sweep.tick() => {
                strangers.sweep();
                continue;
            }
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
        let Some((place, mut leave)) = strangers.enter(from.ip()).await else {
            debug!(%from, "a connection is not taken: there are too many of its address");
            continue;
        };
        let (acceptor, inside) = (acceptor.clone(), inside.clone());
        tokio::spawn(async move {
            let _ = tcp.set_nodelay(true);
            let made = tokio::select! {
                made = timeout(HANDSHAKE, acceptor.accept(tcp)) => made,
                // There are too many.
                _ = &mut leave => return,
            };
            match made {
                Ok(Ok(tls)) => {
                    let secured = SecuredStream { tls, from, place, stay: Stay::Asked(leave) };
                    // An error means that the server has stopped.
                    let _ = inside.send(Ok(secured)).await;
                }
                Ok(Err(error)) => debug!(%from, %error, "no TLS was made"),
                Err(_) => debug!(%from, "no TLS was made in time"),
            }
        });
    }
}

impl Connected for SecuredStream {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.place.0.clone()
    }
}

impl SecuredStream {
    /// Checked before each read and write. A peer that takes no data can block reads of its connection, and one that
    /// sends none can block writes. One task polls both, so one of them wakes it.
    fn may_stay(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let stays = self.stay.poll(cx).and_then(|()| match self.place.0.has_ended(cx) {
            true => {
                let why = "a stream on it took nothing for long";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            false => Ok(()),
        });
        stays.inspect_err(|error| debug!(from = %self.from, %error, "a connection is ended"))
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
