//! A TCP port of the VPC that stands for one of this machine.

use std::{net::SocketAddr, time::Duration};
use tokio::{
    io,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Forwards every connection of the listener until the task ends. The bytes are unchanged, so TLS is end to end.
pub(crate) async fn serve(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((from, peer)) => {
                connections.spawn(async move {
                    if let Err(err) = forward(from, to).await {
                        tracing::debug!(%err, %peer, %to, "a forwarded connection ended");
                    }
                });
            }
            Err(err) => {
                tracing::warn!(%err, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(mut from: TcpStream, to: SocketAddr) -> io::Result<()> {
    let mut to = TcpStream::connect(to).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    io::copy_bidirectional(&mut from, &mut to).await?;
    Ok(())
}

/// When no connection can be accepted, the next one cannot either for a while.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn local() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_the_end_too() {
        let (machine, to) = local().await;
        let (vpc, at) = local().await;
        let server = tokio::spawn(serve(vpc, to));
        let mut node = TcpStream::connect(at).await.unwrap();
        node.write_all(b"question").await.unwrap();
        let (mut there, _) = machine.accept().await.unwrap();
        let mut received = [0; 8];
        there.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"question");
        there.write_all(b"answer").await.unwrap();
        drop(there);
        let mut answer = String::new();
        node.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        server.abort();
    }
}
