//! Stands between the adapter and the API server, and can be shut.

use std::net::SocketAddr;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

/// Forwards to a port of 127.0.0.1 while it is open.
pub(crate) struct Forwarder {
    address: SocketAddr,
    open: watch::Sender<bool>,
    task: AbortHandle,
}

impl Forwarder {
    pub(crate) async fn to(port: u16, open: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (open, state) = watch::channel(open);
        let task = tokio::spawn(forward(listener, port, state)).abort_handle();
        Self { address, open, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Lets connections through.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// Ends all connections, and each new one as soon as it is made.
    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, port: u16, open: watch::Receiver<bool>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let mut open = open.clone();
        if !*open.borrow() {
            continue;
        }
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
            tokio::select! {
                _ = copy_bidirectional(&mut near, &mut far) => {}
                _ = open.wait_for(|open| !*open) => {}
            }
        });
    }
}
