//! Events and verdicts of the programs.

use crate::bytes::{address, part};
use crate::intervals::{BY_SOURCE, CAUSE, LOGGED};
use datapath_plan::{Address, TrafficKey};
use policy_core::Decision;

/// A verdict of a pod's policies, as the programs store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    pub cause: Cause,
    /// The rule asks for a log.
    pub is_logged: bool,
}

/// The cause of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No rule decided.
    Default,
    /// A NetworkPolicy isolates the pod.
    Isolation,
    /// The number of a rule in the map `rules`.
    Rule(u32),
    /// The maps have no verdict; the reason of the drop names the fault.
    Fault,
}

impl Verdict {
    /// Of the value of an interval, or of a fault.
    pub fn of(value: u32) -> Self {
        let decision = match value & DECISION {
            0 => Decision::Allow,
            2 => Decision::Reject,
            _ => Decision::Drop,
        };
        let cause = match (value & FAULT, value >> CAUSE) {
            (0, 0) => Cause::Default,
            (0, 1) => Cause::Isolation,
            (0, rule) => Cause::Rule(rule - 2),
            _ => Cause::Fault,
        };
        Self { decision, cause, is_logged: value & LOGGED != 0 }
    }
}

/// A packet that was dropped, or the first one of a connection that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of the kernel's monotonic clock.
    pub time: u64,
    /// The packet as it was judged: the destination is the final one. Both are 0 for a packet that is not IP.
    pub source: Address,
    pub destination: Address,
    /// Protocol and destination port, or type and code of ICMP, as in interval tables.
    pub key: TrafficKey,
    pub source_port: u16,
    /// The links of both ends; 0 for an end without an endpoint here.
    pub from: u32,
    pub to: u32,
    /// The verdicts of the sender's and of the receiver's policies.
    pub egress: Verdict,
    pub ingress: Verdict,
    /// The length of the packet in bytes.
    pub length: u32,
    /// The number of the reason for a drop. The number of reasons stands for an allowed packet.
    pub reason: u16,
    /// The packet is on the fast path.
    pub is_fast: bool,
}

impl Event {
    /// `struct event`. `None` if the record has another size.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at| u32::from_ne_bytes(part(bytes, at));
        (bytes.len() == EVENT).then(|| Self {
            time: u64::from_ne_bytes(part(bytes, 0)),
            source: address(part(bytes, 8)),
            destination: address(part(bytes, 24)),
            key: TrafficKey(word(40)),
            from: word(44),
            to: word(48),
            egress: Verdict::of(word(52)),
            ingress: Verdict::of(word(56)),
            length: word(60),
            reason: u16::from_ne_bytes(part(bytes, 64)),
            source_port: u16::from_ne_bytes(part(bytes, 66)),
            is_fast: word(68) != 0,
        })
    }

    /// The verdict that denied the packet, or the sender's of an allowed one.
    pub fn denial(&self) -> Verdict {
        if self.egress.decision == Decision::Allow { self.ingress } else { self.egress }
    }
}

/// Use of a rule, of all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Connections that it allowed.
    pub flows: u64,
    /// Packets that it denied.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// The time of the last use: nanoseconds of the kernel's monotonic clock.
    pub last: u64,
}

/// A row of the map `uses`, of one processor.
pub type UseValue = [u8; 32];

impl Use {
    /// Adds the row of one processor.
    pub fn add(&mut self, row: &UseValue) {
        let [flows, packets, bytes, last] =
            [0, 8, 16, 24].map(|at| u64::from_ne_bytes(part(row, at)));
        self.flows = self.flows.saturating_add(flows);
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        self.last = self.last.max(last);
    }
}

/// Bits of a verdict: the decision.
const DECISION: u32 = 3;
/// Bit of a verdict that no table has.
const FAULT: u32 = 1 << 29;
/// The size of an event in bytes.
const EVENT: usize = 72;

const _: () = assert!(FAULT < BY_SOURCE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_its_fields_and_one_size() {
        let mut bytes = Vec::new();
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(1_u128.to_be_bytes());
        bytes.extend(2_u128.to_be_bytes());
        for word in [6 << 16 | 80, 3, 4, 0, 2 | LOGGED | 9 << CAUSE, 60] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(5_u16.to_ne_bytes());
        bytes.extend(40_000_u16.to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        let event = Event::from_bytes(&bytes).expect("an event");
        assert_eq!((event.time, event.from, event.to, event.length), (7, 3, 4, 60));
        assert_eq!((event.reason, event.source_port, event.is_fast), (5, 40_000, true));
        let rejected =
            Verdict { decision: Decision::Reject, cause: Cause::Rule(7), is_logged: true };
        assert_eq!(event.denial(), rejected);
        assert_eq!(Event::from_bytes(&bytes[1..]), None);
    }

    #[test]
    fn a_fault_is_no_rule() {
        let fault = Verdict::of(FAULT | 28 << CAUSE | 1);
        assert_eq!((fault.decision, fault.cause), (Decision::Drop, Cause::Fault));
    }
}
