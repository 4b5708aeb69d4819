//! Ports, by number and by name.

use super::{Naive, Packet, Segment};
use policy_objects::{PortRange, Protocol, TargetPort};

impl Naive<'_> {
    /// Whether a packet is of a protocol, and to this port of it.
    pub(super) fn is_to(
        &self,
        packet: &Packet,
        protocol: Protocol,
        port: Option<&TargetPort>,
    ) -> bool {
        let Segment::Ports(its, _, number) = packet.segment else { return false };
        its == protocol
            && match port {
                None => true,
                Some(TargetPort::Numbers(range)) => holds(*range, number),
                Some(TargetPort::Named(name)) => {
                    self.owner(packet.destination).is_some_and(|pod| {
                        let first =
                            pod.ports.iter().find(|p| p.name == *name && p.protocol == protocol);
                        first.is_some_and(|port| port.port == number)
                    })
                }
            }
    }

    /// Whether a packet is to a port of the receiver by its name, whatever its protocol.
    pub(super) fn is_to_named(&self, packet: &Packet, name: &str) -> bool {
        let Segment::Ports(protocol, _, number) = packet.segment else { return false };
        self.owner(packet.destination).is_some_and(|pod| {
            let first = pod.ports.iter().find(|port| port.name == name);
            first.is_some_and(|port| port.protocol == protocol && port.port == number)
        })
    }
}

/// Whether a range holds a port.
pub(crate) fn holds(range: PortRange, port: u16) -> bool {
    range.first <= port && port <= range.last
}
