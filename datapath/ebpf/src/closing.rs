//! Connected UDP sockets of the node's processes whose backend was removed.
//!
//! The programs of `datapath/bpf/sockets.h` choose a backend when a socket connects, and no later call changes it. So the
//! kernel closes such a socket, and its process connects again.

use crate::{LoadError, Programs, grace::GRACE};
use config_model::causes;
use datapath_sockets::{Connected, DiagError, Sockets};
use service_abi::{Mirror, SocketKey};
use std::{net::SocketAddr, time::Duration};
use tokio::time::Instant;

/// The passes over the sockets of the node. Each one lists all sockets, so a batch of removed backends costs one pass. A
/// second one finds sockets whose calls of connect were under way.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// The last removal of backends. `None` if no socket can have a removed backend.
    removed: Option<Instant>,
    /// The next pass.
    due: Option<Instant>,
    last: Option<Instant>,
    /// The last fault, which is logged once.
    fault: Option<String>,
}

/// The sockets of one pass.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pass {
    closed: usize,
    /// Sockets that have another peer now or are gone, or whose addresses another socket has.
    skipped: usize,
    /// Sockets beyond [`MOST`].
    left: usize,
}

impl Closing {
    /// Starts with the sockets of the backends that were removed before this time.
    pub(crate) fn begin(&mut self, removed: Instant) {
        self.removed = Some(removed);
        let first = removed + GRACE;
        let first = self.last.map_or(first, |last| first.max(last + PAUSE));
        self.due = Some(self.due.map_or(first, |due| due.min(first)));
    }

    /// The time of the next pass.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.due
    }

    /// Closes the sockets of backends that are gone, if a pass is due. The mirror has the content of the maps.
    pub(crate) fn step(&mut self, now: Instant, programs: &Programs, mirror: &Mirror) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let result = pass(programs, mirror);
        self.log(&result);
        self.settle(now, &result);
    }

    /// Plans the next pass.
    fn settle(&mut self, now: Instant, result: &Result<Pass, LoadError>) {
        self.last = Some(now);
        let age = self.removed.map_or(MOST_AGE, |removed| now.saturating_duration_since(removed));
        let next = match result {
            // The kernel's configuration does not change.
            Err(LoadError::Sockets(error)) if error.is_unsupported() => None,
            Err(_) => Some(EVERY),
            Ok(Pass { left: 1.., .. }) => Some(PAUSE),
            Ok(Pass { closed: 1.., .. }) => Some(EVERY),
            Ok(Pass { skipped: 1.., .. }) => (age < MOST_AGE).then_some(EVERY),
            Ok(_) => EVERY.checked_sub(age).filter(|rest| !rest.is_zero()),
        };
        self.due = next.map(|after| now + after);
        if self.due.is_none() {
            self.removed = None;
        }
    }

    fn log(&mut self, result: &Result<Pass, LoadError>) {
        let (closed, fault) = match result {
            Ok(pass) => (pass.closed, None),
            Err(error) => (0, Some(causes(error))),
        };
        if closed > 0 {
            tracing::info!(closed, "closed UDP sockets whose backends were removed");
        }
        match (&fault, &self.fault) {
            (Some(why), last) if last.as_ref() != Some(why) => {
                tracing::warn!(why, "cannot close UDP sockets whose backends were removed");
            }
            (Some(_) | None, _) => {}
        }
        // A pass without sockets to close does not show that the kernel can close them.
        if fault.is_some() || closed > 0 {
            self.fault = fault;
        }
    }
}

/// Closes at most [`MOST`] sockets.
fn pass(programs: &Programs, mirror: &Mirror) -> Result<Pass, LoadError> {
    let mut sockets = Sockets::open()?;
    let has_backend = |at| mirror.has_backend(at);
    let found = sockets.connected(|socket| is_without_backend(socket, has_backend))?;
    let stale = stale(&found, has_backend, |key| programs.has_asked(key))?;
    close(&stale, |socket| sockets.close(socket))
}

/// The sockets that a Service led to a backend, which is gone. A socket without a row reached its peer without a Service.
fn stale(
    sockets: &[Connected],
    has_backend: impl Fn(SocketAddr) -> bool,
    has_asked: impl Fn(&SocketKey) -> Result<bool, LoadError>,
) -> Result<Vec<Connected>, LoadError> {
    let mut stale = Vec::new();
    for socket in sockets.iter().filter(|socket| is_without_backend(socket, &has_backend)) {
        if has_asked(&SocketKey::of_udp(socket.cookie, socket.canonical_peer()))? {
            stale.push(*socket);
        }
    }
    Ok(stale)
}

fn is_without_backend(socket: &Connected, has_backend: impl Fn(SocketAddr) -> bool) -> bool {
    !has_backend(socket.canonical_peer())
}

/// A socket that the kernel refuses to close does not keep the others. Another fault ends the pass.
fn close(
    stale: &[Connected],
    mut close: impl FnMut(&Connected) -> Result<bool, DiagError>,
) -> Result<Pass, LoadError> {
    let mut pass = Pass { left: stale.len().saturating_sub(MOST), ..Pass::default() };
    let mut refused = None;
    for socket in stale.iter().take(MOST) {
        match close(socket) {
            Ok(true) => pass.closed += 1,
            Ok(false) => pass.skipped += 1,
            Err(error @ DiagError::CloseRefused(_)) => refused = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    refused.map_or(Ok(pass), |error| Err(error.into()))
}

/// The sockets that one pass closes. Each one takes a call of the kernel, which waits for the calls of its process.
const MOST: usize = 1024;
/// The shortest time between two passes, if backends are removed all the time.
const PAUSE: Duration = Duration::from_millis(100);
/// The time until the next attempt, and until the last look after a removal.
const EVERY: Duration = Duration::from_secs(1);
/// The time after which sockets stay whose addresses other sockets have.
const MOST_AGE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;
