//! A packet and its ends.

use super::Exemption;
use crate::{Direction, Origin, Packet, World, world::is_known};
use policy_objects::Pod;
use std::net::IpAddr;

/// The packet and who is at its ends.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World,
    pub(super) packet: &'a Packet,
    /// The pod that made it, if policy knows it.
    pub(super) sender: Option<&'a Pod>,
    /// The node that made it.
    pub(super) node: Option<&'a str>,
    /// The pod that has the destination.
    pub(super) receiver: Option<&'a Pod>,
    /// True if the verdict needs the reasons why rules did not decide.
    pub(super) explains: bool,
}

/// One end of a packet, where a pod's policies judge it.
pub(super) struct End<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) pod: &'a Pod,
    pub(super) direction: Direction,
    /// Reason why NetworkPolicies do not judge it.
    pub(super) exempt: Option<Exemption>,
}

impl<'a> Scene<'a> {
    pub(super) fn of(world: &'a World, packet: &'a Packet) -> Self {
        let (sender, node) = match &packet.origin {
            Origin::Pod(name) => match world.pod(name) {
                Some(pod) if pod.host_network => (None, Some(pod.node.as_str())),
                pod => (pod.filter(|pod| is_known(pod)), None),
            },
            Origin::Node(name) => (None, Some(name.as_str())),
            Origin::Forwarded => (None, None),
        };
        Self {
            world,
            packet,
            sender,
            node,
            // A packet to a loopback address never leaves the pod.
            receiver: sender
                .filter(|_| packet.destination.is_loopback())
                .or_else(|| world.owner(packet.destination)),
            explains: true,
        }
    }

    pub(super) fn is_to_node(&self, name: &str) -> bool {
        let has = |address: &IpAddr| address.to_canonical() == self.packet.destination;
        self.world.node(name).is_some_and(|node| node.addresses.iter().any(has))
    }

    pub(super) fn is_to_itself(&self) -> bool {
        let both = self.sender.zip(self.receiver);
        both.is_some_and(|(Pod { meta: sender, .. }, Pod { meta: receiver, .. })| {
            sender.namespace == receiver.namespace && sender.name == receiver.name
        })
    }
}

impl<'a> End<'a> {
    pub(super) fn of(scene: &'a Scene<'a>, pod: &'a Pod, direction: Direction) -> Self {
        let to_own_node = direction == Direction::Egress && scene.is_to_node(&pod.node);
        let exempt = match scene.is_to_itself() {
            true => Some(Exemption::Hairpin),
            false => to_own_node.then_some(Exemption::ToOwnNode),
        };
        Self { scene, pod, direction, exempt }
    }

    /// The address of the other end, which peers are about.
    pub(super) fn other(&self) -> IpAddr {
        match self.direction {
            Direction::Ingress => self.scene.packet.source,
            Direction::Egress => self.scene.packet.destination,
        }
    }
}
