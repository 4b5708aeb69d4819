//! Limits on the connections of a port: on their number in all and of one address, and on their age.
//!
//! A port with authentication removes a connection from the limiter once the client has shown a valid token.

use futures::task::AtomicWaker;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
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
    /// Maximum number of unauthenticated connections. Further ones wait in their order.
    pub preauth: usize,
    /// Maximum number of places that one source address keeps while others wait. Once all places are taken, an address
    /// above it loses places to others at once, and gets no new ones. Nodes behind
    /// one NAT address share this number as well; a refused node retries.
    pub share: usize,
    /// Length of the IPv6 prefix that counts as one address. A subnet of a VPC is a /64, and a prefix of an ENI a /80.
    pub v6_prefix: u8,
    /// Maximum age of an unauthenticated connection, unless its first token is still being checked.
    pub within: Duration,
    /// Minimum age of a connection before it can be evicted. After it the oldest is closed if there are too many,
    /// unless its token is being checked.
    pub fair: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        let (within, fair) = (Duration::from_secs(20), Duration::from_secs(5));
        Self { preauth: 1_024, share: 16, v6_prefix: 80, within, fair }
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
    all: BTreeMap<u64, Unauthenticated>,
}

#[derive(Debug)]
struct Unauthenticated {
    since: Instant,
    source: IpAddr,
    /// Number of its calls whose token is being reviewed.
    reviews: usize,
    /// A token of this connection was invalid, so later tokens give it no additional time.
    refused: bool,
    /// Sends that the connection may stay; a drop closes the connection.
    stays: oneshot::Sender<()>,
}

/// Handle of a connection for its calls.
#[derive(Clone, Debug)]
pub struct Connection {
    preauth: Arc<PreauthLimiter>,
    number: u64,
    end: Arc<End>,
}

/// A handle that does not keep the connection's state.
#[derive(Clone, Debug)]
pub struct WeakConnection(Weak<End>);

impl WeakConnection {
    /// False if the connection has ended or was asked to end.
    pub fn is_open(&self) -> bool {
        self.0.upgrade().is_some_and(|end| !end.is_requested.load(Ordering::SeqCst))
    }

    pub fn is(&self, connection: &Connection) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&connection.end)
    }

    /// Closes the connection with all of its calls.
    pub fn end(&self) {
        if let Some(end) = self.0.upgrade() {
            end.request();
        }
    }
}

/// Request to end a connection.
#[derive(Debug, Default)]
struct End {
    is_requested: AtomicBool,
    reader: AtomicWaker,
}

impl End {
    fn request(&self) {
        self.is_requested.store(true, Ordering::SeqCst);
        self.reader.wake();
    }
}

/// A connection's place in the limiter; a drop frees it.
#[derive(Debug)]
pub struct Place(Connection);

impl Place {
    /// The handle for the calls of the connection.
    pub fn connection(&self) -> &Connection {
        &self.0
    }
}

/// A pending review of a token; a drop ends it.
#[derive(Debug)]
pub struct Review(Connection);

/// Returns whether a connection may stay; an error means that it has to go.
pub type Leave = oneshot::Receiver<()>;

impl PreauthLimiter {
    /// Creates a limiter without connections.
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, table: Mutex::default(), left: Notify::new() })
    }

    /// Interval of the [sweep](Self::sweep) that closes connections above their maximum age.
    pub fn every(&self) -> Duration {
        (self.bounds.within / 8).max(Duration::from_millis(10))
    }

    /// Admits a connection; waits while there are too many of others. `None` if its own address has too many.
    pub async fn enter(self: &Arc<Self>, from: IpAddr) -> Option<(Place, Leave)> {
        let source = source(from, self.bounds.v6_prefix);
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

    /// Closes connections above their maximum age.
    pub fn sweep(&self) {
        self.table().sweep(self.bounds.within);
    }

    fn try_enter(self: &Arc<Self>, source: IpAddr) -> Result<(Place, Leave), Full> {
        let Bounds { preauth, share, v6_prefix: _, within, fair } = self.bounds;
        let mut table = self.table();
        table.sweep(within);
        if table.all.len() >= preauth {
            let number = table.evicted(source, share, fair)?;
            table.all.remove(&number);
        }
        let number = table.next;
        table.next += 1;
        let (stays, leave) = oneshot::channel();
        let since = Instant::now();
        table
            .all
            .insert(number, Unauthenticated { since, source, reviews: 0, refused: false, stays });
        let end = Arc::default();
        Ok((Place(Connection { preauth: self.clone(), number, end }), leave))
    }

    fn remove(&self, number: u64) -> Option<Unauthenticated> {
        let removed = self.table().all.remove(&number);
        self.left.notify_one();
        removed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        runtime_lock::lock(&self.table)
    }
}

/// Reason why there is no place.
#[derive(Debug, PartialEq, Eq)]
enum Full {
    /// The caller checks again after this time.
    For(Duration),
    /// The address has its share or more.
    Refused,
}

/// Returns the limited source. For IPv6 this can be a network, if a client has all addresses of one.
fn source(from: IpAddr, v6_prefix: u8) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(v6_prefix.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Table {
    /// Returns the connection to evict for a new one of this address if all places are taken.
    fn evicted(&self, source: IpAddr, share: usize, fair: Duration) -> Result<u64, Full> {
        let idle = || self.all.iter().filter(|(_, connection)| !connection.is_in_review());
        let mut many = BTreeMap::<IpAddr, usize>::new();
        idle().for_each(|(_, connection)| *many.entry(connection.source).or_default() += 1);
        let most = many.iter().max_by_key(|(_, many)| **many).filter(|(_, many)| **many > share);
        let oldest = |of: Option<IpAddr>| {
            idle().find(|(_, connection)| of.is_none_or(|source| connection.source == source))
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
        self.all.values().filter(|connection| connection.source == source).count()
    }

    fn sweep(&mut self, within: Duration) {
        // The oldest come first: most sweeps look at one.
        let late =
            self.all.iter().take_while(|(_, connection)| connection.since.elapsed() >= within);
        let gone: Vec<u64> = late
            .filter(|(_, connection)| !connection.is_in_review())
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            self.all.remove(&number);
        }
    }
}

impl Unauthenticated {
    /// True if the check of its first token is pending, which is a delay of the server.
    fn is_in_review(&self) -> bool {
        self.reviews > 0 && !self.refused
    }
}

impl Connection {
    /// Starts the review of a call's token.
    pub fn review(&self) -> Review {
        self.count(|reviews| reviews.saturating_add(1));
        Review(self.clone())
    }

    /// Records a valid token: the connection is authenticated and leaves the limiter.
    pub fn authenticated(&self) {
        if let Some(connection) = self.preauth.remove(self.number) {
            // An error means that the connection has ended.
            let _ = connection.stays.send(());
        }
    }

    /// Records an invalid token, or a failed review.
    pub fn refused(&self) {
        if let Some(connection) = self.preauth.table().all.get_mut(&self.number) {
            connection.refused = true;
        }
    }

    /// Closes the connection with all of its calls.
    pub fn end(&self) {
        self.end.request();
    }

    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.end))
    }

    /// True if the connection has to close. Otherwise its reader is woken when that changes.
    pub fn has_ended(&self, cx: &Context<'_>) -> bool {
        self.end.reader.register(cx.waker());
        self.end.is_requested.load(Ordering::SeqCst)
    }

    fn count(&self, to: impl FnOnce(usize) -> usize) {
        if let Some(connection) = self.preauth.table().all.get_mut(&self.number) {
            connection.reviews = to(connection.reviews);
        }
    }
}

impl Drop for Review {
    fn drop(&mut self) {
        self.0.count(|reviews| reviews.saturating_sub(1));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.preauth.remove(self.0.number);
    }
}

#[cfg(test)]
mod tests;
