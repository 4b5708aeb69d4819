//! Connections that have not shown a good token yet: few at once, and none for long.

use futures::task::AtomicWaker;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Context,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

/// Limits on connections before their first call with a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// As many at once. More wait, in the order in which they come.
    pub strangers: usize,
    /// Maximum number of places that one source address keeps while others wait. Once all places are taken, an address
    /// above it loses places to others at once, and gets no new ones. An IPv6 address counts as its /64. Nodes behind
    /// one NAT address share this number as well; a refused node retries.
    pub share: usize,
    /// Maximum age of an unauthenticated connection, unless its first token is still being checked.
    pub within: Duration,
    /// Minimum age of a connection before it can be evicted. After it the oldest is closed if there are too many,
    /// unless its token is being checked.
    pub fair: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (within, fair) = (Duration::from_secs(20), Duration::from_secs(5));
        Self { strangers: 1_024, share: 16, within, fair }
    }
}

/// Unauthenticated connections of one port.
#[derive(Debug)]
pub struct PreauthLimiter {
    bounds: Bounds,
    table: Mutex<Table>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// The oldest first.
    all: BTreeMap<u64, Stranger>,
}

#[derive(Debug)]
struct Stranger {
    since: Instant,
    source: IpAddr,
    /// As many of its calls wait for an answer about their token.
    asks: usize,
    /// A token of this connection was invalid, so later tokens give it no additional time.
    refused: bool,
    /// Sends that the connection may stay; a drop closes the connection.
    stays: oneshot::Sender<()>,
}

/// A connection, as calls know it.
#[derive(Clone, Debug)]
pub struct Connection {
    strangers: Arc<PreauthLimiter>,
    number: u64,
    end: Arc<End>,
}

/// The end of a connection that has been let in.
#[derive(Debug, Default)]
struct End {
    is_come: AtomicBool,
    reader: AtomicWaker,
}

/// A connection's place in the limiter; a drop frees it.
#[derive(Debug)]
pub struct Place(pub(crate) Connection);

/// A token is being looked at.
pub(crate) struct Asking(Connection);

/// Returns whether a connection may stay; an error means that it has to go.
pub type Leave = oneshot::Receiver<()>;

impl PreauthLimiter {
    /// Creates a limiter without connections.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, table: Mutex::default(), left: Notify::new() })
    }

    /// Interval of the [sweep](Self::sweep) that closes connections above their maximum age.
    pub(crate) fn every(&self) -> Duration {
        (self.bounds.within / 8).max(Duration::from_millis(10))
    }

    /// Admits a connection; waits while there are too many of others. `None` if its own address has too many.
    pub async fn enter(self: &Arc<Self>, from: IpAddr) -> Option<(Place, Leave)> {
        let source = source(from);
        loop {
            let left = self.left.notified();
            match self.try_enter(source) {
                Ok(entered) => return Some(entered),
                Err(Full::Refused) => return None,
                Err(Full::For(pause)) => tokio::select! {
                    () = left => {}
                    () = sleep(pause) => {}
                },
            }
        }
    }

    /// Sends away who takes too long.
    pub(crate) fn sweep(&self) {
        self.table().sweep(self.bounds.within);
    }

    fn try_enter(self: &Arc<Self>, source: IpAddr) -> Result<(Place, Leave), Full> {
        let Bounds { strangers, share, within, fair } = self.bounds;
        let mut table = self.table();
        table.sweep(within);
        if table.all.len() >= strangers {
            let number = table.goes(source, share, fair)?;
            table.all.remove(&number);
        }
        let number = table.next;
        table.next += 1;
        let (stays, leave) = oneshot::channel();
        let since = Instant::now();
        table.all.insert(number, Stranger { since, source, asks: 0, refused: false, stays });
        let end = Arc::default();
        Ok((Place(Connection { strangers: self.clone(), number, end }), leave))
    }

    fn remove(&self, number: u64) -> Option<Stranger> {
        let removed = self.table().all.remove(&number);
        self.left.notify_one();
        removed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There is no place.
#[derive(Debug, PartialEq, Eq)]
enum Full {
    /// The caller checks again after this time.
    For(Duration),
    /// The address has its share, and more.
    Refused,
}

/// Returns the limited source. For IPv6 this is a network, as a client usually has all addresses of one.
fn source(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Table {
    /// Returns the connection to evict for a new one of this address if all places are taken.
    fn goes(&self, source: IpAddr, share: usize, fair: Duration) -> Result<u64, Full> {
        let idle = || self.all.iter().filter(|(_, stranger)| !stranger.is_heard());
        let mut many = BTreeMap::<IpAddr, usize>::new();
        idle().for_each(|(_, stranger)| *many.entry(stranger.source).or_default() += 1);
        let most = many.iter().max_by_key(|(_, many)| **many).filter(|(_, many)| **many > share);
        let oldest = |of: Option<IpAddr>| {
            idle().find(|(_, stranger)| of.is_none_or(|source| stranger.source == source))
        };
        if let Some((most, _)) = most.filter(|(most, _)| **most != source) {
            return oldest(Some(*most)).map(|(number, _)| *number).ok_or(Full::Refused);
        }
        // No other address has too many. An address with too many evicts others only after their minimum age.
        let first = oldest(most.map(|(most, _)| *most));
        let pause = first.map_or(fair, |(_, one)| fair.saturating_sub(one.since.elapsed()));
        match first {
            Some((number, _)) if pause.is_zero() => Ok(*number),
            // Waiting would keep others out.
            _ if self.has(source) >= share => Err(Full::Refused),
            _ => Err(Full::For(pause)),
        }
    }

    /// Returns the number of connections of an address, those with a pending token check included.
    fn has(&self, source: IpAddr) -> usize {
        self.all.values().filter(|stranger| stranger.source == source).count()
    }

    fn sweep(&mut self, within: Duration) {
        // The oldest come first: most sweeps look at one.
        let late = self.all.iter().take_while(|(_, stranger)| stranger.since.elapsed() >= within);
        let gone: Vec<u64> =
            late.filter(|(_, stranger)| !stranger.is_heard()).map(|(number, _)| *number).collect();
        for number in gone {
            self.all.remove(&number);
        }
    }
}

impl Stranger {
    /// True if the check of its first token is pending, which is a delay of the server.
    fn is_heard(&self) -> bool {
        self.asks > 0 && !self.refused
    }
}

impl Connection {
    /// A call has shown a token; it is not known yet whether it is good.
    pub(crate) fn asks(&self) -> Asking {
        self.count(|asks| asks.saturating_add(1));
        Asking(self.clone())
    }

    /// Records a valid token: the connection is authenticated and leaves the limiter.
    pub(crate) fn is_known(&self) {
        if let Some(stranger) = self.strangers.remove(self.number) {
            // An error means that the connection has ended.
            let _ = stranger.stays.send(());
        }
    }

    /// The token is no good, or could not be looked at.
    pub(crate) fn is_refused(&self) {
        if let Some(stranger) = self.strangers.table().all.get_mut(&self.number) {
            stranger.refused = true;
        }
    }

    /// The connection is to end, with all that is under way on it.
    pub(crate) fn end(&self) {
        self.end.is_come.store(true, Ordering::SeqCst);
        self.end.reader.wake();
    }

    /// True if the connection has to close. Otherwise its reader is woken when that changes.
    pub(crate) fn has_ended(&self, cx: &Context<'_>) -> bool {
        self.end.reader.register(cx.waker());
        self.end.is_come.load(Ordering::SeqCst)
    }

    fn count(&self, to: impl FnOnce(usize) -> usize) {
        if let Some(stranger) = self.strangers.table().all.get_mut(&self.number) {
            stranger.asks = to(stranger.asks);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.count(|asks| asks.saturating_sub(1));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.strangers.remove(self.0.number);
    }
}

#[cfg(test)]
mod tests;
