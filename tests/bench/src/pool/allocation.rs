//! Time of an in-memory allocation in real time, with few and with many pods.

use config_model::{AttachmentId, CardIndex, DeviceIndex, EniId, Mac, PodKey, PodName, Span, Time};
use ipamd_core::{
    Answer, AttachmentState, CardLimits, Cards, Checkpoint, Core, Effect, Event, Limits, NodeFacts,
    PoolConfig, ReleaseCause, SeenAttachment, SeenEni, Start, Ticket, Witness,
};
use ipnet::{IpNet, Ipv4Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::{Duration, Instant},
};

/// Number of measured allocations.
const ROUNDS: u32 = 20_000;
/// Allocations between two repair passes. At each pass the core receives a set of all pods' addresses. The
/// allocator's cost of dropping the previous set is not to be measured. A node has at most about one pass per
/// second.
const PASS_EVERY: u32 = 200;
const ENIS: u8 = 4;
/// A /28 each: 1024 addresses on each ENI.
const PREFIXES: u8 = 64;

/// Times of allocations with this many pods.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

/// Measures Reserve events on a core that holds this many pods.
pub(super) fn measure(pods: u32) -> Allocation {
    let mut bench = Bench::new();
    for pod in 0..pods {
        bench.reserve(pod);
    }
    let mut took: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let pod = pods + round;
            let took = bench.reserve(pod);
            bench.release(pod);
            if round % PASS_EVERY == 0 {
                bench.see_kernel();
            }
            took
        })
        .collect();
    took.sort();
    let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
    Allocation { p50: at(50), p99: at(99) }
}

struct Bench {
    core: Core,
    now: Time,
    tickets: u64,
    held: BTreeMap<u32, IpAddr>,
}

impl Bench {
    fn new() -> Self {
        let now = Time(1_000_000);
        let config = PoolConfig {
            prefixes: true,
            // The core never grows and never shrinks, so that no call is pending during the measurement.
            max_pods: 1,
            warm_ip_target: Some(100_000),
            cooldown: Span::millis(100),
            ..PoolConfig::default()
        };
        let limits = Limits {
            cards: vec![CardLimits { card: CardIndex(0), enis: ENIS.into() }],
            ipv4_per_eni: u16::from(PREFIXES) + 1,
            ipv6_per_eni: 1,
            prefixes: true,
            trunk: false,
            branch_enis: 0,
        };
        let start = Start { boot_id: "boot".to_owned(), seed: 1 };
        let core = Core::new(config, facts(), limits, Checkpoint::default(), start, now);
        let mut bench = Self { core, now, tickets: 0, held: BTreeMap::new() };
        bench.handle(Event::Tick);
        for witness in [Witness::Imds, Witness::Ec2] {
            let enis = (0..ENIS).map(eni).collect();
            bench.handle(Event::Sighting { witness, started: now, enis });
        }
        bench.see_kernel();
        for at in 0..ENIS {
            bench.handle(Event::EniReady { eni: name(at) });
        }
        bench
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        self.now = self.now + Span(1);
        self.core.on_event(event, self.now)
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Time that the core took to assign an address.
    fn reserve(&mut self, pod: u32) -> Duration {
        let (ticket, key) = (self.ticket(), key(pod));
        let name = PodName { namespace: "default".to_owned(), name: format!("web-{pod}") };
        let give_up_at = self.now + Span::seconds(45);
        let event = Event::Reserve {
            ticket,
            key: key.clone(),
            pod: name,
            cards: Cards::First,
            branch: None,
            give_up_at,
        };
        let started = Instant::now();
        let effects = self.handle(event);
        let took = started.elapsed();
        let address = effects.iter().find_map(|effect| {
            let Effect::Reply { answer: Answer::Reserved { addresses }, .. } = effect else {
                return None;
            };
            addresses.first().map(|first| first.address)
        });
        let address = address.expect("the pool has an address for every pod of the benchmark");
        self.held.insert(pod, address);
        let ticket = self.ticket();
        self.handle(Event::Confirm { ticket, key, host_interface: format!("eni{pod:011x}") });
        took
    }

    fn release(&mut self, pod: u32) {
        let (ticket, key) = (self.ticket(), key(pod));
        self.handle(Event::Release { ticket, key, cause: ReleaseCause::PodDeleted });
        self.held.remove(&pod);
    }

    fn see_kernel(&mut self) {
        self.now = self.now + Span(1);
        let in_use: BTreeSet<IpAddr> = self.held.values().copied().collect();
        self.handle(Event::KernelSeen { started: self.now, in_use });
    }
}

fn key(pod: u32) -> PodKey {
    PodKey {
        network: "aws-cni".to_owned(),
        container_id: format!("sandbox{pod}"),
        ifname: "eth0".to_owned(),
    }
}

fn name(at: u8) -> EniId {
    EniId::new(format!("eni-{at:017x}"))
}

fn facts() -> NodeFacts {
    let instance = ("node.k8s.amazonaws.com/instance_id".to_owned(), "i-1".to_owned());
    NodeFacts {
        instance_id: "i-1".into(),
        primary_eni: name(0),
        vpc: "vpc-1".into(),
        zone: "eu-west-1a".to_owned(),
        subnet: "subnet-1".into(),
        subnet_cidr: Some(subnet()),
        subnet_cidr_v6: None,
        security_groups: vec!["sg-1".into()],
        description: "aws-K8S-i-1".to_owned(),
        tags: BTreeMap::from([instance]),
    }
}

fn subnet() -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16)
}

fn eni(at: u8) -> SeenEni {
    let block = |prefix: u8| {
        let first = u32::from(at) * 1024 + u32::from(prefix) * 16;
        let [_, _, third, fourth] = first.to_be_bytes();
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, fourth), 28))
    };
    SeenEni {
        id: name(at),
        mac: Mac([2, 0, 0, 0, 0, at]),
        subnet: "subnet-1".into(),
        subnet_cidr: Some(subnet()),
        subnet_cidr_v6: None,
        primary_address: Some(Ipv4Addr::new(10, 0, 200, at)),
        ipv6_addresses: Vec::new(),
        blocks: (0..PREFIXES).map(block).collect(),
        attachment: Some(SeenAttachment {
            id: Some(AttachmentId::new(format!("eni-attach-{at}"))),
            instance: "i-1".into(),
            card: CardIndex(0),
            device: DeviceIndex(at.into()),
            state: AttachmentState::Attached,
            delete_on_termination: Some(true),
        }),
        kind: None,
        groups: None,
        tags: Some(facts().tags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmarked_core_serves_a_thousand_pods_without_calls() {
        let mut bench = Bench::new();
        for pod in 0..1000 {
            bench.reserve(pod);
        }
        assert_eq!(bench.held.values().collect::<BTreeSet<_>>().len(), 1000);
        let counts = bench.core.snapshot(bench.now).counts;
        assert_eq!((counts.assigned, counts.calls), (1000, 0));
    }
}
