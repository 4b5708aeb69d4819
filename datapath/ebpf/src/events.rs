//! Events of the programs.

use crate::reasons::REASONS;
use aya::maps::{MapData, RingBuf};
use datapath_abi::{Cause, Event, Held, Verdict};
use datapath_node::{Flow, RuleId, Tuple};
use datapath_plan::{Address, RuleName};
use policy_core::Decision;
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv6Addr},
    os::fd::AsFd as _,
    time::{Duration, SystemTime},
};
use tokio::io::{Interest, unix::AsyncFd};

/// The names of the rules, by their digests.
pub(crate) type RuleNames = BTreeMap<u64, RuleName>;

/// The ring of events. `None` if it cannot be used.
pub struct Events(pub(crate) Option<RingBuf<MapData>>);

impl Events {
    /// The next event that the programs have sent. `None` if there is none.
    #[expect(clippy::should_implement_trait, reason = "later calls can return events again")]
    pub fn next(&mut self) -> Option<Event> {
        let ring = self.0.as_mut()?;
        loop {
            let record = ring.next()?;
            // A record of another size is of another release.
            if let Some(event) = Event::from_bytes(&record) {
                return Some(event);
            }
        }
    }

    /// Waits for the next event. It can be dropped at any time.
    pub(crate) async fn wait(&mut self) -> Event {
        loop {
            if let Some(event) = self.next() {
                return event;
            }
            let Some(ring) = &self.0 else { return std::future::pending().await };
            if let Err(error) = readable(ring).await {
                let why = error.to_string();
                tracing::error!(why, "cannot wait for events of packets: none are reported");
                self.0 = None;
            }
        }
    }
}

async fn readable(ring: &RingBuf<MapData>) -> io::Result<()> {
    #[expect(deprecated, reason = "the descriptor is open for as long as it is registered")]
    let waiting = AsyncFd::with_interest(ring.as_fd(), Interest::READABLE)?;
    waiting.readable().await?.retain_ready();
    Ok(())
}

/// The name of a reason; `None` for an allowed packet.
fn reason(number: u16) -> Option<&'static str> {
    REASONS.get(usize::from(number)).copied()
}

/// An event with the names of its pods and rules.
pub(crate) fn flow(event: &Event, held: &Held, names: &RuleNames) -> Flow {
    let reason = reason(event.reason);
    let verdicts = match reason {
        Some(_) => [Some(event.denial()), None],
        None => [Some(event.egress), Some(event.ingress)],
    };
    let verdicts = verdicts.into_iter().flatten();
    let pod = |link: u32| held.endpoints.get(&link).map(|endpoint| endpoint.uid.clone());
    let [_, protocol, high, low] = event.key.0.to_be_bytes();
    let port = u16::from_be_bytes([high, low]);
    let ports = (protocol != ICMP && protocol != 0).then_some((event.source_port, port));
    let is_ip = event.destination.0 != 0 || event.source.0 != 0;
    let tuple = Tuple {
        source: ip(event.source),
        destination: ip(event.destination),
        protocol,
        source_port: ports.map(|(source, _)| source),
        destination_port: ports.map(|(_, destination)| destination),
    };
    Flow {
        at: wall(event.time),
        source_pod: pod(event.from),
        destination_pod: pod(event.to),
        tuple: is_ip.then_some(tuple),
        icmp: (protocol == ICMP).then_some((high, low)),
        decision: match (reason, event.denial().decision) {
            (None, _) => Decision::Allow,
            (Some(_), Decision::Reject) => Decision::Reject,
            (Some(_), Decision::Allow | Decision::Drop) => Decision::Drop,
        },
        reason,
        is_logged: verdicts.clone().any(|verdict| verdict.is_logged),
        rules: verdicts.filter_map(|verdict| rule(verdict, held, names)).collect(),
        length: event.length,
        is_fast: event.is_fast,
    }
}

/// The rule of a verdict.
pub(crate) fn rule(verdict: Verdict, held: &Held, names: &RuleNames) -> Option<RuleId> {
    let Cause::Rule(number) = verdict.cause else { return None };
    held.rules.get(&number).and_then(|digest| names.get(digest)).map(id)
}

/// A rule as the agent names it.
pub(crate) fn id(name: &RuleName) -> RuleId {
    RuleId { policy: name.policy.clone(), direction: name.direction, index: name.index }
}

/// The address in its own family.
fn ip(address: Address) -> IpAddr {
    Ipv6Addr::from_bits(address.0).to_canonical()
}

/// The time of day for nanoseconds of the kernel's monotonic clock.
pub(crate) fn wall(time: u64) -> SystemTime {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    );
    SystemTime::now() - now.saturating_sub(Duration::from_nanos(time))
}

const ICMP: u8 = 1;
