//! Connections that are older than the enforcement of their pods.
//!
//! The programs judge a TCP packet without a row in `flows` in both directions, because the packet does not name the
//! initiator of its connection. The kernel's connection tracking has the initiator.

use crate::{LoadError, Programs};
use config_model::causes;
use datapath_abi::{Ends, Flow, FlowKey, Held, Own, Pod, Target};
use datapath_conntrack::{Connection, TcpState, Tuple, dump_if};
use datapath_plan::Address;
use rustix::time::{ClockId, clock_gettime};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

/// Gathers rows for the connections of pods that no program guards yet.
pub(crate) struct Existing<'a> {
    unguarded: BTreeSet<u32>,
    /// The link of each pod's address.
    links: BTreeMap<Address, u32>,
    own: &'a Own,
    target: &'a Target,
    limit: usize,
}

/// The rows so far. The kernel can repeat a connection.
#[derive(Debug, Default)]
struct Found {
    rows: BTreeMap<FlowKey, Flow>,
    /// The kernel tracks connections, whosever they are.
    is_tracked: bool,
    /// There are more connections than rows.
    is_cut: bool,
}

impl<'a> Existing<'a> {
    /// `pods` are the links of all pods, and `unguarded` those among them that have no programs. At most `limit` rows are
    /// added.
    pub(crate) fn of(
        unguarded: BTreeSet<u32>,
        pods: &BTreeMap<u32, Pod>,
        own: &'a Own,
        target: &'a Target,
        limit: usize,
    ) -> Self {
        let addresses = |(link, pod): (&u32, &Pod)| {
            let link = *link;
            [pod.v4, pod.v6].into_iter().flatten().map(move |address| (address, link))
        };
        let links = pods.iter().flat_map(addresses).collect();
        Self { unguarded, links, own, target, limit }
    }

    /// Reads the connections and adds their rows. Returns false if the kernel tracks no connections. A connection that
    /// cannot be read or added is logged, and the programs judge it without a row.
    ///
    /// # Errors
    /// Only that of a test that ends the process here.
    pub(crate) fn add(self, programs: &mut Programs, held: &Held) -> Result<bool, LoadError> {
        if self.unguarded.is_empty() {
            return Ok(true);
        }
        let now = Now { seen: monotonic(), generation: other_than(held.generation) };
        let found = RefCell::new(Found::default());
        // The rows bound the memory, so no connection is kept.
        let dumped = dump_if(|connection| {
            self.take(connection, now, &mut found.borrow_mut());
            false
        });
        let found = found.into_inner();
        let mut is_tracked = found.is_tracked;
        match dumped {
            Ok(Some(table)) => {
                let left_out = table.left_out;
                is_tracked |= left_out.other_zones + left_out.unreadable > 0;
                if let Some(cause) = left_out.cause {
                    let (unreadable, why) = (left_out.unreadable, causes(&cause));
                    tracing::warn!(unreadable, why, "cannot read connections: {CONSEQUENCE}");
                }
            }
            Ok(None) => {}
            Err(error) => {
                is_tracked = true;
                tracing::warn!(why = causes(&error), "cannot read connections: {CONSEQUENCE}");
            }
        }
        if found.is_cut {
            let limit = self.limit;
            tracing::warn!(limit, "cannot add all connections: {CONSEQUENCE}");
        }
        match write(&found.rows, programs, held) {
            Err(LoadError::Stopped) => return Err(LoadError::Stopped),
            Err(error) => {
                tracing::warn!(why = causes(&error), "cannot add connections: {CONSEQUENCE}");
            }
            Ok(0) => {}
            Ok(added) => tracing::info!(added, "added connections that pods had before"),
        }
        Ok(is_tracked)
    }

    fn take(&self, connection: &Connection, now: Now, found: &mut Found) {
        found.is_tracked = true;
        let Some((key, flow)) = self.row(connection, now) else { return };
        if found.rows.len() < self.limit || found.rows.contains_key(&key) {
            found.rows.insert(key, flow);
        } else {
            found.is_cut = true;
        }
    }

    /// The row of a connection; `None` if it is not open or needs none.
    fn row(&self, connection: &Connection, now: Now) -> Option<(FlowKey, Flow)> {
        let Connection { protocol, original, reply, .. } = connection;
        let protocol = *protocol;
        let is_open = connection.is_answered
            // The kernel does not report the state of a connection in a flow table. It is established.
            && (protocol != TCP || matches!(connection.tcp_state, None | Some(TcpState::Established)));
        let link = |address| self.links.get(&Address::from(address)).copied();
        let (initiator, responder) = (link(original.source), link(reply.source));
        let mut ends = [initiator, responder].into_iter().flatten();
        if !is_open || !ends.any(|link| self.unguarded.contains(&link)) {
            return None;
        }
        // No row is about packets of a pod to its own node: the programs judge both directions alone.
        if responder.is_none() && self.is_own(reply.source) {
            return None;
        }
        let sent = ends_of(protocol, original)?;
        let received = ends_of(protocol, reply)?;
        let received = Ends {
            source: received.destination,
            source_port: received.destination_port,
            destination: received.source,
            destination_port: received.source_port,
            ..received
        };
        let as_seen = if initiator.is_some() { sent } else { received };
        let service = initiator.and_then(|_| self.target.services.get(&sent.destination));
        let key = match (protocol, original.icmp) {
            (TCP | UDP | SCTP, _) => {
                u32::from(protocol) << 16 | u32::from(received.destination_port)
            }
            (_, Some(icmp)) => {
                u32::from(ICMP) << 16 | u32::from(icmp.kind) << 8 | u32::from(icmp.code)
            }
            (_, None) => 0,
        };
        let flow = Flow {
            seen: now.seen,
            service: service.copied().unwrap_or(0),
            source: as_seen.source,
            destination: received.destination,
            key,
            source_port: as_seen.source_port,
            generation: now.generation,
            initiator: initiator.unwrap_or(0),
            responder: responder.unwrap_or(0),
            is_from_low: as_seen.is_from_low(),
            is_from_node: initiator.is_none() && self.is_own(original.source),
        };
        Some((as_seen.key(), flow))
    }

    fn is_own(&self, address: std::net::IpAddr) -> bool {
        self.own.addresses.contains(&address.into())
    }
}

/// The values that all rows have in common.
#[derive(Clone, Copy)]
struct Now {
    seen: u64,
    generation: u32,
}

/// The ends of a tuple as the programs read them from a packet. `None` for ICMP without a connection.
fn ends_of(protocol: u8, tuple: &Tuple) -> Option<Ends> {
    let has_ports = match (protocol, tuple.icmp) {
        (TCP | UDP | SCTP, _) => true,
        (ICMP, Some(icmp)) if matches!(icmp.kind, ECHO | ECHO_REPLY) => true,
        (ICMPV6, Some(icmp)) if matches!(icmp.kind, ECHO_V6 | ECHO_REPLY_V6) => true,
        (ICMP | ICMPV6, _) => return None,
        _ => false,
    };
    let port = |port| if has_ports { port } else { 0 };
    Some(Ends {
        protocol,
        source: tuple.source.into(),
        destination: tuple.destination.into(),
        source_port: port(tuple.source_port),
        destination_port: port(tuple.destination_port),
    })
}

/// Adds the rows, and counts them in the shares of their pods. Returns their number.
fn write(
    rows: &BTreeMap<FlowKey, Flow>,
    programs: &mut Programs,
    held: &Held,
) -> Result<usize, LoadError> {
    let mut shares: BTreeMap<u32, u64> = BTreeMap::new();
    let mut added = 0;
    let mut result = Ok(());
    for (key, flow) in rows {
        match programs.add_flow(key, flow) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(error) => {
                result = Err(error);
                break;
            }
        }
        added += 1;
        // A hairpin has one pod.
        let links = BTreeSet::from([flow.initiator, flow.responder]);
        for endpoint in links.iter().filter_map(|link| held.endpoints.get(link)) {
            *shares.entry(endpoint.slot).or_default() += 1;
        }
    }
    for (slot, flows) in shares {
        programs.charge(slot, flows)?;
    }
    result.map(|()| added)
}

/// A generation that is not in force, so the next packet of each connection is judged in its original direction.
fn other_than(generation: u64) -> u32 {
    let [a, b, c, d, ..] = generation.wrapping_sub(1).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Nanoseconds of the kernel's monotonic clock, which the programs use.
pub(crate) fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |number| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

const CONSEQUENCE: &str = "those that pods have now are cut unless policies allow both directions";

// linux/in.h
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
// linux/icmp.h and linux/icmpv6.h
const ECHO_REPLY: u8 = 0;
const ECHO: u8 = 8;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;

#[cfg(test)]
mod tests;
