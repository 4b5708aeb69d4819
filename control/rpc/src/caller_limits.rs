//! Limits on the calls of one node. A node with a valid token must not slow other nodes.

use crate::Caller;
use runtime_limiter::{Connection, WeakConnection};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tonic::Status;

/// Maximum number of calls of one node that wait for an answer.
const CALLS: usize = 16;
/// Maximum number of connections of one node. An agent has one, and one more while it changes to another replica's
/// stream or after a connection that died without notice.
const CONNECTIONS: usize = 4;
/// Nodes without a connection and without a call for this time are forgotten. Their buckets are full by then.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Follow,
    Announce,
    Report,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Announce => "announce",
            Self::Report => "report",
        }
    }

    /// Maximum number of calls at once, and calls per second after that.
    fn rate(self) -> (f64, f64) {
        match self {
            // A node that loses its replica tries again every few seconds.
            Self::Follow => (20.0, 1.0),
            // A node starts up to 110 pods at once.
            Self::Announce => (250.0, 50.0),
            // The agent collects changes for 200 ms.
            Self::Report => (20.0, 5.0),
        }
    }
}

/// The calls of each node.
#[derive(Debug, Default)]
pub(crate) struct CallerLimits(Mutex<Nodes>);

#[derive(Debug, Default)]
struct Nodes {
    by_name: BTreeMap<String, NodeCalls>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct NodeCalls {
    waiting: usize,
    used: Instant,
    /// The oldest first.
    connections: Vec<WeakConnection>,
    follow: Bucket,
    announce: Bucket,
    report: Bucket,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

/// A call that is being answered; a drop ends it.
#[derive(Debug)]
pub(crate) struct Permit {
    limits: Arc<CallerLimits>,
    node: String,
}

impl CallerLimits {
    /// Keeps the connection, and closes the oldest ones of a node with too many.
    pub(crate) fn keep(&self, caller: &Caller, connection: &Connection, now: Instant) {
        let connection_ref = connection.downgrade();
        // A call of a connection that was closed a moment ago.
        if !connection_ref.is_open() {
            return;
        }
        let mut nodes = self.nodes();
        let node = nodes.by_name.entry(caller.node.clone()).or_insert_with(|| NodeCalls::new(now));
        if node.connections.iter().any(|kept| kept.is(connection)) {
            return;
        }
        node.connections.retain(WeakConnection::is_open);
        node.connections.push(connection_ref);
        let too_many = node.connections.len().saturating_sub(CONNECTIONS);
        for oldest in node.connections.drain(..too_many) {
            tracing::warn!(
                node = caller.node,
                limit = CONNECTIONS,
                "closed the oldest connection of a node: it has more connections than the limit; look for a second \
                 ferrule-agent on the node"
            );
            oldest.end();
        }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// Returns the status for a node with too many calls.
    pub(crate) fn admit(
        self: &Arc<Self>,
        caller: &Caller,
        method: Method,
        now: Instant,
    ) -> Result<Permit, Status> {
        let mut nodes = self.nodes();
        nodes.sweep(now);
        let node = nodes.by_name.entry(caller.node.clone()).or_insert_with(|| NodeCalls::new(now));
        node.used = now;
        if node.waiting >= CALLS {
            return Err(Status::resource_exhausted(format!(
                "cannot accept call {} of node {}: {CALLS} calls of the node wait for an answer; retry after an answer",
                method.name(),
                caller.node
            )));
        }
        let (most, per_second) = method.rate();
        let bucket = match method {
            Method::Follow => &mut node.follow,
            Method::Announce => &mut node.announce,
            Method::Report => &mut node.report,
        };
        if !bucket.take(most, per_second, now) {
            return Err(Status::resource_exhausted(format!(
                "cannot accept call {} of node {}: the node exceeds the limit of {per_second} such calls a second; \
                 retry after a second",
                method.name(),
                caller.node
            )));
        }
        node.waiting += 1;
        Ok(Permit { limits: self.clone(), node: caller.node.clone() })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        runtime_lock::lock(&self.0)
    }
}

impl Nodes {
    fn sweep(&mut self, now: Instant) {
        let swept = *self.swept.get_or_insert(now);
        if now.saturating_duration_since(swept) < IDLE {
            return;
        }
        self.swept = Some(now);
        self.by_name.retain(|_, node| {
            node.waiting > 0
                || now.saturating_duration_since(node.used) < IDLE
                || node.connections.iter().any(WeakConnection::is_open)
        });
    }
}

impl NodeCalls {
    fn new(now: Instant) -> Self {
        let full = |method: Method| Bucket { tokens: method.rate().0, filled: now };
        let (follow, announce, report) =
            (full(Method::Follow), full(Method::Announce), full(Method::Report));
        Self { waiting: 0, used: now, connections: Vec::new(), follow, announce, report }
    }
}

impl Bucket {
    fn take(&mut self, most: f64, per_second: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        (self.tokens, self.filled) = ((self.tokens + passed * per_second).min(most), now);
        let is_enough = self.tokens >= 1.0;
        self.tokens -= if is_enough { 1.0 } else { 0.0 };
        is_enough
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(node) = self.limits.nodes().by_name.get_mut(&self.node) {
            node.waiting = node.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn of(node: &str) -> Caller {
        Caller { node: node.to_owned(), ..Caller::default() }
    }

    #[test]
    fn a_node_with_many_announcements_waits_and_others_do_not() {
        let (limits, start) = (Arc::<CallerLimits>::default(), Instant::now());
        let announce = |node: &str, at| limits.admit(&of(node), Method::Announce, at).is_ok();
        let served = (0..1_000).filter(|_| announce("greedy", start)).count();
        assert_eq!(served, 250);
        let refused = limits.admit(&of("greedy"), Method::Announce, start).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            refused.message(),
            "cannot accept call announce of node greedy: the node exceeds the limit of 50 such calls a second; retry \
             after a second"
        );
        assert!(announce("other", start));
        assert!(limits.admit(&of("greedy"), Method::Report, start).is_ok(), "another method");
        let later = start + Duration::from_secs(1);
        let served = (0..1_000).filter(|_| announce("greedy", later)).count();
        assert_eq!(served, 50);
    }

    #[test]
    fn calls_in_progress_are_bounded_and_an_answer_makes_room() {
        let (limits, now) = (Arc::<CallerLimits>::default(), Instant::now());
        let admit = || limits.admit(&of("n1"), Method::Announce, now);
        let mut permits: Vec<Permit> = (0..CALLS).map(|_| admit().unwrap()).collect();
        let refused = admit().unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert_eq!(
            refused.message(),
            "cannot accept call announce of node n1: 16 calls of the node wait for an answer; retry after an answer"
        );
        permits.pop();
        assert!(admit().is_ok());
    }

    #[test]
    fn nodes_without_calls_are_forgotten() {
        let (limits, now) = (Arc::<CallerLimits>::default(), Instant::now());
        for node in 0..100 {
            drop(limits.admit(&of(&format!("n{node}")), Method::Follow, now));
        }
        let waits = limits.admit(&of("waits"), Method::Follow, now).unwrap();
        drop(limits.admit(&of("new"), Method::Follow, now + 2 * IDLE));
        let left: Vec<String> = limits.nodes().by_name.keys().cloned().collect();
        assert_eq!(left, ["new", "waits"]);
        drop(waits);
    }
}
