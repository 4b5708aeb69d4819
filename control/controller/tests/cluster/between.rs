//! A forwarder between a replica and the API server that fails as networks do.

use std::net::SocketAddr;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A forwarder; a drop ends all of its connections.
pub(crate) struct Between {
    pub(crate) at: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// True if connections are forwarded. Otherwise existing and new ones are closed.
    open: bool,
    cuts: u64,
    stalls: u64,
}

impl Between {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(State { open: true, cuts: 0, stalls: 0 });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, port, seen.clone()));
            }
        });
        Self { at, state }
    }

    /// Returns its URL in place of the API server's.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.at)
    }

    pub(crate) fn open(&self) {
        self.state.send_modify(|state| state.open = true);
    }

    pub(crate) fn shut(&self) {
        self.state.send_modify(|state| state.open = false);
    }

    /// Closes the existing connections in the middle of their data.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Stops forwarding on the existing connections without closing them.
    pub(crate) fn stall(&self) {
        self.state.send_modify(|state| state.stalls += 1);
    }
}

async fn carry(mut near: TcpStream, port: u16, mut state: watch::Receiver<State>) {
    let State { open, cuts, stalls } = *state.borrow_and_update();
    if !open {
        return;
    }
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut stalled, mut ends) = (state.clone(), state.clone());
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        () = until(&mut state, |state| !state.open || state.cuts != cuts) => {}
        () = until(&mut stalled, |state| state.stalls != stalls) => {
            // Both sockets stay open, and no task reads from them.
            until(&mut ends, |state| !state.open || state.cuts != cuts).await;
        }
    }
}

/// Waits until the condition is true, or its sender is gone.
async fn until(state: &mut watch::Receiver<State>, so: impl Fn(&State) -> bool) {
    let _ = state.wait_for(so).await.is_ok();
}
