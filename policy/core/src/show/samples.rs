//! One packet of each sort that the policies distinguish.

use super::{ask::SOURCE_PORT, kinds};
use crate::{Decision, Origin, Packet, Segment, State, Traffic, Transport, World, decide};
use policy_objects::{Pod, Protocol, TargetPort};
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// A sort of packets of which all are judged alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sample {
    /// Ports from the first to the last.
    Ports(Protocol, u16, u16),
    /// Echo request, of either family.
    Echo,
    /// Another type and code of ICMP that a rule is about.
    Icmp(u8, u8),
    /// A protocol that no rule can be about.
    Other,
}

/// The sorts, in order. Senders' ports are not distinguished: the sample uses a usual source port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples(Vec<Sample>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    passes: Vec<bool>,
    text: String,
}

impl Samples {
    /// The sorts that the policies of these worlds distinguish.
    pub fn of(worlds: &[&World]) -> Self {
        let mut cuts: BTreeMap<Protocol, BTreeSet<u32>> =
            PROTOCOLS.map(|protocol| (protocol, BTreeSet::from([1, LAST + 1]))).into();
        let mut icmp = BTreeSet::new();
        for world in worlds {
            let rules = world.policies().flat_map(|policy| &policy.rules);
            for transport in rules.flat_map(|rule| transports(&rule.traffic)) {
                cut(world, transport, &mut cuts, &mut icmp);
            }
        }
        let mut samples = Vec::new();
        for (protocol, cuts) in cuts {
            let cuts: Vec<u32> = cuts.into_iter().collect();
            samples.extend(cuts.windows(2).filter_map(|ends| {
                let (first, last) = (*ends.first()?, ends.get(1)? - 1);
                Some(Sample::Ports(protocol, first.try_into().ok()?, last.try_into().ok()?))
            }));
        }
        samples.push(Sample::Echo);
        samples.extend(icmp.into_iter().map(|(kind, code)| Sample::Icmp(kind, code)));
        samples.push(Sample::Other);
        Self(samples)
    }

    /// These ports alone.
    pub fn only(ports: &[(Protocol, u16)]) -> Self {
        Self(ports.iter().map(|(protocol, port)| Sample::Ports(*protocol, *port, *port)).collect())
    }

    /// Sorts that pass from one pod to another, in each family of addresses that both have; `None`
    /// if they have no common family.
    pub fn ask(&self, world: &World, from: &Pod, to: &Pod) -> Option<Allowed> {
        let family = |v4: bool| {
            let of =
                |pod: &Pod| pod.addresses.iter().copied().find(|address| address.is_ipv4() == v4);
            let ends = (of(from)?, of(to)?);
            Some((v4, self.ask_between(world, from, ends)))
        };
        let families: Vec<(bool, Vec<bool>)> =
            [true, false].into_iter().filter_map(family).collect();
        let (_, first) = families.first()?;
        if families.iter().all(|(_, passes)| passes == first) {
            return Some(Allowed { passes: first.clone(), text: self.text(first) });
        }
        let title = |v4: bool| if v4 { "IPv4" } else { "IPv6" };
        let text =
            |(v4, passes): &(bool, Vec<bool>)| format!("{}: {}", title(*v4), self.text(passes));
        let text = crate::text::joined(families.iter().map(text), "; ");
        Some(Allowed {
            passes: families.into_iter().flat_map(|(_, passes)| passes).collect(),
            text,
        })
    }

    fn ask_between(
        &self,
        world: &World,
        from: &Pod,
        (source, destination): (IpAddr, IpAddr),
    ) -> Vec<bool> {
        let passes = |sample: &Sample| {
            let packet = Packet {
                origin: Origin::Pod(super::ask::named(from)),
                source,
                destination,
                service: None,
                segment: sample.segment(destination),
                state: State::New,
            };
            decide(world, &packet) == Decision::Allow
        };
        self.0.iter().map(passes).collect()
    }

    /// `all`, `none`, or what passes; of many ports those that do not pass if these are fewer words.
    fn text(&self, passes: &[bool]) -> String {
        if passes.iter().all(|passes| *passes) {
            return "all".to_owned();
        }
        if !passes.contains(&true) {
            return "none".to_owned();
        }
        let allowed = self.words(passes, true);
        let denied = self.words(passes, false);
        if denied.len() < allowed.len() { format!("all but {denied}") } else { allowed }
    }

    fn words(&self, passes: &[bool], wanted: bool) -> String {
        let mut runs: Vec<Sample> = Vec::new();
        for (sample, _) in self.0.iter().zip(passes).filter(|(_, passes)| **passes == wanted) {
            match (runs.last_mut(), sample) {
                (Some(Sample::Ports(before, _, end)), Sample::Ports(protocol, first, last))
                    if before == protocol && u32::from(*end) + 1 == u32::from(*first) =>
                {
                    *end = *last;
                }
                _ => runs.push(*sample),
            }
        }
        let words: Vec<String> = runs.iter().map(Sample::to_string).collect();
        words.join(", ")
    }
}

impl Allowed {
    /// Everything passes.
    pub fn is_all(&self) -> bool {
        self.passes.iter().all(|passes| *passes)
    }

    /// True if a port passes in any family; `samples` are those that were evaluated.
    pub fn has(&self, protocol: Protocol, port: u16, samples: &Samples) -> bool {
        samples.0.iter().cycle().zip(&self.passes).any(|(sample, passes)| match sample {
            Sample::Ports(of, first, last) => {
                *passes && *of == protocol && (*first..=*last).contains(&port)
            }
            Sample::Echo | Sample::Icmp(..) | Sample::Other => false,
        })
    }

    /// True if no sort passes.
    pub fn is_none(&self) -> bool {
        !self.passes.contains(&true)
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Allowed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Sample {
    fn segment(self, destination: IpAddr) -> Segment {
        match self {
            Self::Ports(protocol, first, _) => {
                Segment::Ports { protocol, source: SOURCE_PORT, destination: first }
            }
            Self::Echo => {
                Segment::Icmp { kind: if destination.is_ipv4() { 8 } else { 128 }, code: 0 }
            }
            Self::Icmp(kind, code) => Segment::Icmp { kind, code },
            Self::Other => Segment::Other(EXPERIMENTAL),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(protocol, 1, u16::MAX) => write!(f, "{}", crate::text::protocol(*protocol)),
            Self::Ports(protocol, first, last) if first == last => {
                write!(f, "{} {first}", crate::text::protocol(*protocol))
            }
            Self::Ports(protocol, first, last) => {
                write!(f, "{} {first}-{last}", crate::text::protocol(*protocol))
            }
            Self::Echo => f.write_str("ICMP echo"),
            Self::Icmp(kind, code) => write!(f, "ICMP {kind}:{code}"),
            Self::Other => f.write_str("other protocols"),
        }
    }
}

fn transports(traffic: &Traffic) -> &[Transport] {
    match traffic {
        Traffic::Any => &[],
        Traffic::Of(transports) => transports,
    }
}

/// Adds the ends of the ranges of a transport.
fn cut(
    world: &World,
    transport: &Transport,
    cuts: &mut BTreeMap<Protocol, BTreeSet<u32>>,
    icmp: &mut BTreeSet<(u8, u8)>,
) {
    let mut around = |protocol: Protocol, first: u16, last: u16| {
        // Port 0 is not a valid port.
        let ends = [u32::from(first).max(1), u32::from(last) + 1];
        cuts.entry(protocol).or_default().extend(ends);
    };
    let mut names = |name: &str, wanted: Option<Protocol>| {
        let ports = kinds::pods(world).flat_map(|pod| &pod.ports);
        for port in ports.filter(|port| port.name == name) {
            if wanted.is_none_or(|wanted| wanted == port.protocol) {
                around(port.protocol, port.port, port.port);
            }
        }
    };
    match transport {
        Transport::Ports { port: None, .. } => {}
        Transport::Ports { protocol, port: Some(TargetPort::Named(name)), .. } => {
            names(name, Some(*protocol));
        }
        Transport::Ports { protocol, port: Some(TargetPort::Numbers(range)), .. } => {
            around(*protocol, range.first, range.last);
        }
        Transport::Named(name) => names(name, None),
        Transport::Icmp { kind, code } => {
            icmp.extend(kind.map(|kind| (kind, code.unwrap_or(0))));
        }
    }
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
const LAST: u32 = 65535;
/// For experiments, by RFC 3692.
const EXPERIMENTAL: u8 = 253;
