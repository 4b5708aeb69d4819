//! An HTTP server whose answers a test chooses, also invalid ones.

use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Ends when it is dropped.
pub(crate) struct Stub {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Stub {
    /// Serves what `respond` makes of method, path and body: the bytes of an answer. Each
    /// connection takes one request.
    pub(crate) async fn serve(
        respond: impl Fn(&str, &str, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let respond = Arc::new(respond);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let respond = Arc::clone(&respond);
                tokio::spawn(async move { answer(stream, &*respond).await });
            }
        });
        Self { address, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A whole answer.
    pub(crate) fn answer(status: u16, body: &str) -> String {
        format!(
            "HTTP/1.1 {status} Status\r\nconnection: close\r\n\
             x-aws-ec2-metadata-token-ttl-seconds: 600\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

async fn answer(
    mut stream: TcpStream,
    respond: &(dyn Fn(&str, &str, &str) -> String + Send + Sync),
) {
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split("content-length:").nth(1);
            let length = length.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                let mut words = head.split_whitespace();
                let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
                let _ = stream.write_all(respond(method, path, body).as_bytes()).await;
                return;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => read.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}
