//! Notification of changes.

use crate::KernelError;
use futures::StreamExt as _;
use rtnetlink::MulticastGroup;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::{sync::Notify, task::JoinHandle};

/// Reports that a link, address, route, rule or setting of the namespace changed.
///
/// An event only triggers an observation. A link that goes down empties a table without events for its routes, and the
/// kernel drops events if there are many. So events are not stored, counted or parsed.
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
    /// Subscribes in the calling thread's network namespace, within a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> Result<Self, KernelError> {
        let (connection, handle, mut events) =
            rtnetlink::new_multicast_connection(&GROUPS).map_err(KernelError::Open)?;
        let changed = Arc::new(Notify::new());
        let ended = Arc::new(AtomicBool::new(false));
        let (wake, end) = (Arc::clone(&changed), Arc::clone(&ended));
        let listen = async move {
            // The connection ends with its last handle.
            let _handle = handle;
            // Lost events arrive as a message of their own (ENOBUFS), which counts as an event.
            while events.next().await.is_some() {
                wake.notify_one();
            }
            end.store(true, Ordering::Release);
            wake.notify_one();
        };
        Ok(Self { changed, ended, tasks: [tokio::spawn(connection), tokio::spawn(listen)] })
    }

    /// Waits for a change since the last call. Returns `false` if the subscription has ended and a new monitor is
    /// needed.
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
