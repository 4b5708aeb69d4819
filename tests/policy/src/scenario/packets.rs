//! Generator of packets. A packet is drawn independently of the world and resolved in it, so that both
//! shrink.

use super::{
    Scenario,
    objects::NODES,
    parts::{LOOPBACK, OUTSIDE, SERVICE_ADDRESSES, address},
};
use crate::naive::{Origin, Packet, Segment, State};
use policy_objects::{Object, Pod, Protocol};
use proptest::{option, prelude::*, sample::select};
use std::{fmt, net::IpAddr};

/// A packet before it is resolved in a world.
#[derive(Clone)]
pub struct Sketch {
    from: End,
    to: End,
    origin_is_source: bool,
    service: Option<&'static str>,
    segment: Segment,
    state: State,
    six: bool,
}

#[derive(Clone, Debug)]
enum End {
    /// The pod at this index, modulo the number of pods.
    Pod(usize),
    /// The sending pod itself.
    Itself,
    Node(usize),
    Outside(&'static str),
    Service(&'static str),
}

impl End {
    fn pod(&self) -> Option<usize> {
        if let Self::Pod(number) = self { Some(*number) } else { None }
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, service, segment, state, .. } = self;
        let text = format!("{state:?} {segment:?} from {from:?} to {to:?} for {service:?}");
        f.write_str(&text)
    }
}

/// Any packet.
pub fn sketch() -> impl Strategy<Value = Sketch> {
    let from = prop_oneof![
        8 => (0_usize..8).prop_map(End::Pod),
        2 => (0_usize..2).prop_map(End::Node),
        2 => select(OUTSIDE).prop_map(End::Outside),
    ];
    let to = prop_oneof![
        15 => (0_usize..8).prop_map(End::Pod),
        2 => Just(End::Itself),
        3 => (0_usize..2).prop_map(End::Node),
        6 => select(OUTSIDE).prop_map(End::Outside),
        1 => select(SERVICE_ADDRESSES).prop_map(End::Service),
        1 => select(LOOPBACK).prop_map(End::Outside),
    ];
    let state = prop_oneof![
        12 => Just(State::New),
        2 => Just(State::Established),
        1 => Just(State::Reply),
        1 => Just(State::Related),
    ];
    let service = option::weighted(0.3, select(SERVICE_ADDRESSES));
    (from, to, prop::bool::weighted(0.9), service, segment(), state, prop::bool::weighted(0.25))
        .prop_map(|(from, to, origin_is_source, service, segment, state, six)| Sketch {
            from,
            to,
            origin_is_source,
            service,
            segment,
            state,
            six,
        })
}

fn segment() -> impl Strategy<Value = Segment> {
    let protocol = prop_oneof![
        7 => Just(Protocol::Tcp),
        2 => Just(Protocol::Udp),
        1 => Just(Protocol::Sctp),
    ];
    let numbers = (select(vec![80_u16, 5000, 33_000]), select(vec![80_u16, 80, 80, 53, 82, 8080]));
    prop_oneof![
        8 => (protocol, numbers).prop_map(|(protocol, (from, to))| Segment::Ports(protocol, from, to)),
        2 => (select(vec![8_u8, 128, 3]), 0_u8..2).prop_map(|(kind, code)| Segment::Icmp(kind, code)),
        1 => Just(Segment::Other(47)),
    ]
}

impl Sketch {
    /// Resolves the packet in a world. `None` if no such packet can exist.
    pub fn packet(&self, world: &Scenario) -> Option<Packet> {
        let pods = world
            .objects
            .iter()
            .filter_map(|object| if let Object::Pod(pod) = object { Some(pod) } else { None });
        let pods = pods.collect::<Vec<_>>();
        let source = self.address(&pods, &self.from);
        let destination = self.address(&pods, &self.to);
        // A pod without an address in its status sends from an address that no object has.
        let unassigned = if self.six { address("fd00::99") } else { address("10.0.0.99") };
        let (source, destination) = (source.unwrap_or(unassigned), destination?);
        if source.is_ipv4() != destination.is_ipv4() {
            return None;
        }
        let origin = match &self.from {
            End::Pod(number) if self.origin_is_source => {
                let meta = &pods.get(number % pods.len().max(1))?.meta;
                Origin::Pod(meta.namespace.clone(), meta.name.clone())
            }
            End::Node(number) if self.origin_is_source => Origin::Node(NODES[*number].0.to_owned()),
            End::Pod(_) | End::Node(_) | End::Itself | End::Outside(_) | End::Service(_) => {
                Origin::Forwarded
            }
        };
        let service = self.service.map(address).filter(|vip| vip.is_ipv4() == source.is_ipv4());
        let (segment, state) = (self.segment, self.state);
        Some(Packet { origin, source, destination, service, segment, state })
    }

    fn address(&self, pods: &[&Pod], end: &End) -> Option<IpAddr> {
        let family = |address: &&IpAddr| address.is_ipv6() == self.six;
        let of_pod = |number: usize| {
            let pod = pods.get(number % pods.len().max(1))?;
            pod.addresses.iter().find(family).or(pod.addresses.first()).copied()
        };
        match end {
            End::Pod(number) => of_pod(*number),
            End::Itself => self.from.pod().and_then(of_pod),
            End::Node(number) => {
                let mut addresses = NODES[*number].1.iter().copied().map(address);
                addresses.find(|address| family(&address))
            }
            End::Outside(text) | End::Service(text) => Some(address(text)),
        }
    }
}
