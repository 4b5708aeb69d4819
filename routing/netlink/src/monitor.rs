//! Word that something changed.

use crate::KernelError;
use futures::StreamExt as _;
use rtnetlink::MulticastGroup;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::{sync::Notify, task::JoinHandle};

/// Tells that some link, address, route, rule or setting of the namespace changed.
///
/// An event says only that it is time to look: a link going down empties a table without a word
/// about its routes, and events get lost when there are many. So they are not kept, counted or
/// read; however many there were, they are one change.
pub struct Monitor {
    changed: Arc<Notify>,
    ended: Arc<AtomicBool>,
    tasks: [JoinHandle<()>; 2],
}

const GROUPS: [MulticastGroup; 9] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv4Rule,
    MulticastGroup::Ipv4Netconf,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv6Route,
    MulticastGroup::Ipv6Rule,
    MulticastGroup::Ipv6Netconf,
];

impl Monitor {
    /// Begins to listen in the calling thread's network namespace, within a tokio runtime.
    ///
    /// # Errors
    /// The kernel gives no socket.
    pub fn open() -> Result<Self, KernelError> {
        let (connection, handle, mut events) =
            rtnetlink::new_multicast_connection(&GROUPS).map_err(KernelError::Open)?;
        let changed = Arc::new(Notify::new());
        let ended = Arc::new(AtomicBool::new(false));
        let (wake, end) = (Arc::clone(&changed), Arc::clone(&ended));
        let listen = async move {
            // The connection lives as long as someone could ask something over it.
            let _handle = handle;
            // Lost events arrive as a message of their own (ENOBUFS), which is as good as any.
            while events.next().await.is_some() {
                wake.notify_one();
            }
            end.store(true, Ordering::Release);
            wake.notify_one();
        };
        Ok(Self { changed, ended, tasks: [tokio::spawn(connection), tokio::spawn(listen)] })
    }

    /// Waits until something has changed since the last call; `false` if listening has ended, and
    /// a new monitor is needed.
    pub async fn changed(&mut self) -> bool {
        if !self.ended.load(Ordering::Acquire) {
            self.changed.notified().await;
        }
        !self.ended.load(Ordering::Acquire)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
