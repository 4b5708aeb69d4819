//! Interval tables over protocols, ports and ICMP types.

use crate::rules::Verdict;
use policy_core::Segment;
use policy_objects::{PortRange, Protocol};
use std::ops::Range;

/// Protocol and destination port, or ICMP type and code, as one number: `protocol << 16 | port` and
/// `1 << 16 | type << 8 | code`. ICMPv6 counts as ICMP. All other protocols are 0: no rule distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficKey(pub u32);

/// The end of all keys.
const END: u32 = 1 << 24;
const ICMP: u8 = 1;

impl TrafficKey {
    /// The key of a packet's segment, and its source port; 0 if the protocol has no ports.
    pub fn of(segment: Segment) -> (Self, u16) {
        match segment {
            Segment::Ports { protocol, source, destination } => {
                (Self(base(number_of(protocol)) + u32::from(destination)), source)
            }
            Segment::Icmp { kind, code } => {
                (Self(base(ICMP) + (u32::from(kind) << 8) + u32::from(code)), 0)
            }
            Segment::Other(_) => (Self(0), 0),
        }
    }

    /// The keys of a protocol's destination ports.
    pub(crate) fn ports(protocol: Protocol, ports: PortRange) -> Range<u32> {
        let base = base(number_of(protocol));
        base + u32::from(ports.first)..base + u32::from(ports.last) + 1
    }

    /// The keys of ICMP types and codes; `None` stands for each.
    pub(crate) fn icmp(kind: Option<u8>, code: Option<u8>) -> Vec<Range<u32>> {
        let base = base(ICMP);
        let one = |kind: u8| match code {
            Some(code) => {
                let key = base + (u32::from(kind) << 8) + u32::from(code);
                key..key + 1
            }
            None => {
                let first = base + (u32::from(kind) << 8);
                first..first + 0x100
            }
        };
        match (kind, code) {
            (None, _) => (0..=u8::MAX).map(one).collect(),
            (Some(kind), _) => [one(kind)].into(),
        }
    }

    /// All keys.
    pub(crate) fn all() -> Range<u32> {
        0..END
    }
}

fn base(protocol: u8) -> u32 {
    u32::from(protocol) << 16
}

/// The protocol's number within IP.
fn number_of(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// A total function from keys and source ports to verdicts: entries by the first key of their interval, sorted. The
/// first interval starts at 0, and neighbors differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IntervalTable(Vec<(TrafficKey, Entry)>);

/// The value of an interval.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// The verdict for every source port.
    Verdict(Verdict),
    /// Verdicts by the first source port of their interval, sorted. The first interval starts at 0.
    BySource(Vec<(u16, Verdict)>),
}

impl IntervalTable {
    /// The verdict of a packet.
    pub fn verdict(&self, key: TrafficKey, source: u16) -> Verdict {
        let after = self.0.partition_point(|(start, _)| *start <= key);
        match after.checked_sub(1).and_then(|at| self.0.get(at)) {
            Some((_, Entry::Verdict(verdict))) => *verdict,
            Some((_, Entry::BySource(ports))) => {
                let after = ports.partition_point(|(start, _)| *start <= source);
                let found = after.checked_sub(1).and_then(|at| ports.get(at));
                found.map_or(Verdict::DEFAULT, |(_, verdict)| *verdict)
            }
            None => Verdict::DEFAULT,
        }
    }

    /// True if no rule decides about any packet.
    pub fn is_default(&self) -> bool {
        matches!(self.0.as_slice(), [(_, Entry::Verdict(Verdict::DEFAULT))])
    }

    /// The intervals.
    pub fn entries(&self) -> &[(TrafficKey, Entry)] {
        &self.0
    }
}

/// The state of a key and a source port while rules are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// No rule has decided. The bits are the walks that a Pass has ended.
    Open(u32),
    Decided(Verdict),
}

/// The states of all keys and source ports: intervals of keys, each with intervals of source ports.
#[derive(Debug)]
pub(crate) struct Board(Vec<(u32, Vec<(u16, Cell)>)>);

impl Default for Board {
    fn default() -> Self {
        Self(vec![(0, vec![(0, Cell::Open(0))])])
    }
}

impl Board {
    /// Sets the verdict of everything in the ranges that no rule has decided and whose walk has not ended.
    pub(crate) fn decide(
        &mut self,
        keys: &Range<u32>,
        sources: Option<PortRange>,
        walk: u32,
        verdict: Verdict,
    ) {
        self.change(keys, sources, |cell| match cell {
            Cell::Open(passed) if passed & walk == 0 => Cell::Decided(verdict),
            Cell::Open(_) | Cell::Decided(_) => cell,
        });
    }

    /// Ends a walk for everything in the ranges that no rule has decided.
    pub(crate) fn pass(&mut self, keys: &Range<u32>, sources: Option<PortRange>, walk: u32) {
        self.change(keys, sources, |cell| match cell {
            Cell::Open(passed) => Cell::Open(passed | walk),
            Cell::Decided(_) => cell,
        });
    }

    fn change(
        &mut self,
        keys: &Range<u32>,
        sources: Option<PortRange>,
        change: impl Fn(Cell) -> Cell,
    ) {
        let from = split(&mut self.0, keys.start);
        let to = if keys.end >= END { self.0.len() } else { split(&mut self.0, keys.end) };
        for (_, cells) in &mut self.0[from..to] {
            let from = sources.map_or(0, |range| split(cells, range.first));
            let end = sources.and_then(|range| range.last.checked_add(1));
            let to = end.map_or(cells.len(), |end| split(cells, end));
            cells[from..to].iter_mut().for_each(|(_, cell)| *cell = change(*cell));
        }
    }

    /// The table: what no rule has decided has the default.
    pub(crate) fn into_table(self) -> IntervalTable {
        let mut entries: Vec<(TrafficKey, Entry)> = Vec::new();
        for (start, cells) in self.0 {
            let mut ports: Vec<(u16, Verdict)> = Vec::new();
            for (first, cell) in cells {
                let verdict = match cell {
                    Cell::Open(_) => Verdict::DEFAULT,
                    Cell::Decided(verdict) => verdict,
                };
                if ports.last().is_none_or(|(_, last)| *last != verdict) {
                    ports.push((first, verdict));
                }
            }
            let entry = match ports.as_slice() {
                [(_, verdict)] => Entry::Verdict(*verdict),
                _ => Entry::BySource(ports),
            };
            if entries.last().is_none_or(|(_, last)| *last != entry) {
                entries.push((TrafficKey(start), entry));
            }
        }
        IntervalTable(entries)
    }
}

/// Makes an interval start here, and returns its position.
fn split<K: Ord + Copy, V: Clone>(intervals: &mut Vec<(K, V)>, start: K) -> usize {
    let at = intervals.partition_point(|(first, _)| *first < start);
    if intervals.get(at).is_none_or(|(first, _)| *first != start) {
        // The first interval starts at the lowest key, so there is one before.
        let before = intervals[at.saturating_sub(1)].1.clone();
        intervals.insert(at, (start, before));
    }
    at
}
