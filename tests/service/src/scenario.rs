//! Generators of random worlds and of the events that change them. They use few names, addresses and ports, so that
//! Services conflict and slices share endpoints.

mod objects;
mod packets;

pub use packets::packets;

use crate::text;
use objects::{node, service, slice};
use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use service_core::{Index, NodeView, World};
use service_objects::{ObjectName, Service, Slice};
use std::{fmt, sync::Arc};

/// A world whose `Debug` is its text.
#[derive(Clone, PartialEq)]
pub struct Scenario(pub World);

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n{}", text::show_world(&self.0))
    }
}

/// A change of a world. The removed object does not need to exist.
#[derive(Clone, PartialEq)]
pub enum Event {
    Service(Box<Service>),
    NoService(ObjectName),
    Slice(Box<Slice>),
    NoSlice(ObjectName),
    Node(NodeView),
}

impl Event {
    pub fn apply(&self, world: &mut World) {
        match self {
            Self::Service(service) => {
                world.services.insert(service.name.clone(), Arc::new((**service).clone()));
            }
            Self::NoService(name) => {
                world.services.remove(name);
            }
            Self::Slice(slice) => {
                world.slices.insert(slice.name.clone(), Arc::new((**slice).clone()));
            }
            Self::NoSlice(name) => {
                world.slices.remove(name);
            }
            Self::Node(node) => world.node.clone_from(node),
        }
    }

    pub fn send(&self, index: &mut Index) {
        match self {
            Self::Service(service) => index.set_service(Arc::new((**service).clone())),
            Self::NoService(name) => index.remove_service(name),
            Self::Slice(slice) => index.set_slice(Arc::new((**slice).clone())),
            Self::NoSlice(name) => index.remove_slice(name),
            Self::Node(node) => index.set_node(node.clone()),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => write!(f, "\n{}", text::show_service(service)),
            Self::NoService(name) => write!(f, "\nremoved service {name}"),
            Self::Slice(slice) => write!(f, "\n{}", text::show_slice(slice)),
            Self::NoSlice(name) => write!(f, "\nremoved slice {name}"),
            Self::Node(node) => write!(f, "\n{}", text::show_node(node)),
        }
    }
}

/// Any world.
pub fn world() -> impl Strategy<Value = Scenario> {
    (node(), vec(service(), 1..=6), vec(slice(), 0..=8), hints()).prop_map(
        |(node, services, mut slices, hints)| {
            slices.iter_mut().for_each(|slice| hints.apply(slice));
            let services = services.into_iter().map(|service| (service.name.clone(), service));
            let slices = slices.into_iter().map(|slice| (slice.name.clone(), slice));
            Scenario(World {
                node,
                services: services.map(|(name, service)| (name, Arc::new(service))).collect(),
                slices: slices.map(|(name, slice)| (name, Arc::new(slice))).collect(),
            })
        },
    )
}

/// The world of a seed, for other tests.
pub fn random(seed: u64) -> Scenario {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    world().new_tree(&mut runner).expect("a strategy that rejects no value").current()
}

/// Changes of a world. They often replace an object, and often return to an earlier state.
pub fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => service().prop_map(|service| Event::Service(Box::new(service))),
        1 => service().prop_map(|service| Event::NoService(service.name)),
        6 => (slice(), hints()).prop_map(|(mut slice, hints)| {
            hints.apply(&mut slice);
            Event::Slice(Box::new(slice))
        }),
        2 => slice().prop_map(|slice| Event::NoSlice(slice.name)),
        1 => node().prop_map(Event::Node),
    ];
    (vec(event, 1..=10), any::<bool>()).prop_map(|(mut events, is_repeated)| {
        if is_repeated {
            events.extend_from_within(..events.len() / 2);
        }
        events
    })
}

/// The hints of a world's endpoints. Hints decide only if each ready endpoint has some.
#[derive(Clone, Copy, Debug)]
enum Hints {
    None,
    AllForZones,
    AllForNodes,
    AllForBoth,
    /// Some endpoints have hints.
    Any,
}

fn hints() -> impl Strategy<Value = Hints> {
    prop_oneof![
        Just(Hints::Any),
        Just(Hints::None),
        Just(Hints::AllForZones),
        Just(Hints::AllForNodes),
        Just(Hints::AllForBoth),
    ]
}

impl Hints {
    fn apply(self, slice: &mut Slice) {
        let fill = |hints: &mut Vec<String>, is_filled: bool, name: &str| {
            if !is_filled {
                hints.clear();
            } else if hints.is_empty() {
                hints.push(name.to_owned());
            }
        };
        let (zones, nodes) = match self {
            Self::Any => return,
            Self::None => (false, false),
            Self::AllForZones => (true, false),
            Self::AllForNodes => (false, true),
            Self::AllForBoth => (true, true),
        };
        for endpoint in &mut slice.endpoints {
            fill(&mut endpoint.zone_hints, zones, "c");
            fill(&mut endpoint.node_hints, nodes, "n3");
        }
    }
}
