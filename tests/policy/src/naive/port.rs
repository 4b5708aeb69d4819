//! Ports, by number and by name.

use super::{Naive, Packet, Segment};
use policy_objects::{PortRange, Protocol, TargetPort};

impl Naive<'_> {
    /// True if a packet has the protocol and the port.
    pub(super) fn is_to_port(
        &self,
        packet: &Packet,
        protocol: Protocol,
        port: Option<&TargetPort>,
    ) -> bool {
        let Segment::Ports(its, _, number) = packet.segment else { return false };
        its == protocol
            && match port {
                None => true,
                Some(TargetPort::Numbers(range)) => contains_port(*range, number),
                Some(TargetPort::Named(name)) => {
                    self.owner(packet.destination).is_some_and(|pod| {
                        let first =
                            pod.ports.iter().find(|p| p.name == *name && p.protocol == protocol);
                        first.is_some_and(|port| port.port == number)
                    })
                }
            }
    }

    /// True if a packet goes to the receiver's container port of this name, whatever its protocol.
    pub(super) fn is_to_named_port(&self, packet: &Packet, name: &str) -> bool {
        let Segment::Ports(protocol, _, number) = packet.segment else { return false };
        self.owner(packet.destination).is_some_and(|pod| {
            let first = pod.ports.iter().find(|port| port.name == name);
            first.is_some_and(|port| port.protocol == protocol && port.port == number)
        })
    }
}

pub(crate) fn contains_port(range: PortRange, port: u16) -> bool {
    range.first <= port && port <= range.last
}
