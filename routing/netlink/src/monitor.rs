//! Notification of changes.

use crate::KernelError;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rtnetlink::MulticastGroup;
use rustix::io::Errno;
use std::{io, os::fd::AsFd as _, time::Duration};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, sleep_until},
};

/// Reports that a link, address, route, rule or setting of the namespace changed.
///
/// An event only triggers an observation. A link that goes down empties a table without events for its routes, and the
/// kernel drops events if there are many. So events are not stored, counted or parsed.
pub struct Monitor {
    socket: Socket,
    /// The next read is not before this time, and nothing waits for the socket until then. One ADD causes a score of
    /// events within a millisecond, and each would wake the process while the plugin works.
    gathering: Option<Instant>,
    buffer: Vec<u8>,
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

const FILTER_GROUPS: [MulticastGroup; 4] = [
    MulticastGroup::Link,
    MulticastGroup::Tc,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
];

const ROUTE_GROUPS: [MulticastGroup; 2] = [MulticastGroup::Ipv4Route, MulticastGroup::Ipv6Route];

const GATHER: Duration = Duration::from_millis(5);
/// The other tasks of the thread wait while these are read.
const QUEUED_MAX: usize = 1024;
/// Events are discarded, so the buffer may be shorter than an event.
const BUFFER: usize = 64;

impl Monitor {
    /// Subscribes in the calling thread's network namespace, within a tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn open() -> Result<Self, KernelError> {
        Self::of(&GROUPS)
    }

    /// Subscribes to changes of links, their addresses and their filters only, and to those of routes if `has_routes`.
    ///
    /// # Errors
    /// The kernel refuses a socket.
    pub fn of_filters(has_routes: bool) -> Result<Self, KernelError> {
        match has_routes {
            true => Self::of(&[&FILTER_GROUPS[..], &ROUTE_GROUPS].concat()),
            false => Self::of(&FILTER_GROUPS),
        }
    }

    fn of(groups: &[MulticastGroup]) -> Result<Self, KernelError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_non_blocking(true)?;
            socket.bind_auto()?;
            for group in groups {
                socket.add_membership(*group as u32)?;
            }
            Ok(socket)
        };
        let socket = open().map_err(KernelError::Open)?;
        Ok(Self { socket, gathering: None, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Waits for a change since the last call. Returns `false` if the subscription has ended and a new monitor is
    /// needed.
    pub async fn changed(&mut self) -> bool {
        if let Some(until) = self.gathering.take() {
            sleep_until(until).await;
        }
        let events = self.read_some().await;
        self.gathering = Some(Instant::now() + GATHER);
        // Events that the kernel dropped, because there were too many, are a change as well.
        let are_lost =
            |cause: &io::Error| cause.raw_os_error() == Some(Errno::NOBUFS.raw_os_error());
        events.as_ref().err().is_none_or(are_lost)
    }

    /// Reads the queued events; waits for the first if there are none.
    async fn read_some(&mut self) -> io::Result<()> {
        while self.read_queued()? == 0 {
            #[expect(deprecated, reason = "the descriptor is open for as long as it is registered")]
            let waiting =
                AsyncFd::with_interest(self.socket.as_fd(), Interest::READABLE | Interest::ERROR)?;
            waiting.ready(Interest::READABLE | Interest::ERROR).await?.retain_ready();
        }
        Ok(())
    }

    /// Reads the events that are queued; returns their number.
    fn read_queued(&mut self) -> io::Result<usize> {
        for count in 0..QUEUED_MAX {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(cause) => return Err(cause),
            }
        }
        Ok(QUEUED_MAX)
    }
}
