//! Path of this machine's API server into the VPC: a proxy on a unix socket.
//!
//! The proxy connects for the API server, from the address that nodes know.

use lab_fabric::Fabric;
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpSocket, TcpStream, UnixListener, UnixStream},
    task::JoinSet,
};

/// Connects each client that sends `CONNECT ADDRESS:PORT`, until the task ends.
pub(crate) async fn serve(listener: UnixListener, fabric: Fabric, from: Ipv4Addr) {
    let fabric = Arc::new(fabric);
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((asking, _)) => {
                let fabric = Arc::clone(&fabric);
                connections.spawn(async move {
                    if let Err(err) = one(asking, &fabric, from).await {
                        tracing::debug!(%err, "a connection into the VPC ended");
                    }
                });
            }
            Err(err) => {
                tracing::warn!(%err, "a connection was not accepted");
                tokio::time::sleep(crate::forward::PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn one(mut asking: UnixStream, fabric: &Fabric, from: Ipv4Addr) -> io::Result<()> {
    let head = head(&mut asking).await?;
    let Some(to) = target(&head) else {
        return asking.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    };
    match connect(fabric, from, to).await {
        Ok(mut there) => {
            asking.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            copy_bidirectional(&mut asking, &mut there).await.map(drop)
        }
        Err(err) => {
            let answer = format!("HTTP/1.1 502 Bad Gateway\r\n\r\n{to}: {err}\n");
            asking.write_all(answer.as_bytes()).await
        }
    }
}

async fn connect(fabric: &Fabric, from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = tokio::task::block_in_place(|| fabric.inside_vpc(TcpSocket::new_v4));
    let socket = socket.map_err(io::Error::other)??;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The head of a request, byte by byte: what follows it is the other side's.
async fn head(asking: &mut UnixStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > LONGEST_HEAD {
            return Err(io::Error::other("the head of a request is too long"));
        }
        head.push(asking.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn target(head: &str) -> Option<SocketAddr> {
    let mut words = head.lines().next()?.split(' ');
    if words.next()? != "CONNECT" {
        return None;
    }
    words.next()?.parse().ok()
}

const LONGEST_HEAD: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_to_an_address_is_made() {
        let node = SocketAddr::from(([10, 0, 0, 7], 10250));
        assert_eq!(target("CONNECT 10.0.0.7:10250 HTTP/1.1\r\nHost: x\r\n\r\n"), Some(node));
        assert_eq!(target("GET 10.0.0.7:10250 HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target("CONNECT node:10250 HTTP/1.1\r\n\r\n"), None);
        assert_eq!(target(""), None);
    }
}
