//! Parses one connection of the kernel's reply.

use crate::{Connection, EntryError, IcmpMessage, TcpState, Tuple};
use netlink_packet_core::{NLA_HEADER_SIZE, NlasIterator};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Connection(Connection),
    OtherZone,
}

/// Parses the payload of a message about a connection: the header of netfilter, then attributes. Unknown attributes are
/// ignored.
pub(crate) fn parse(payload: &[u8]) -> Result<Entry, EntryError> {
    let bytes = payload.get(NFGENMSG_BYTES..).ok_or(EntryError::Truncated)?;
    let (mut original, mut reply, mut status, mut timeout, mut tcp_state) =
        (None, None, None, None, None);
    let mut is_zoned = false;
    for attribute in attributes(bytes) {
        match attribute? {
            (TUPLE_ORIG, value) => original = Some(direction(value)?),
            (TUPLE_REPLY, value) => reply = Some(direction(value)?),
            (STATUS, value) => status = Some(u32::from_be_bytes(fixed(value, "status")?)),
            (TIMEOUT, value) => timeout = Some(u32::from_be_bytes(fixed(value, "timeout")?)),
            (PROTOINFO, value) => tcp_state = state(value)?,
            (ZONE, value) => is_zoned |= is_other_zone(value)?,
            _ => {}
        }
    }
    let original = original.ok_or(EntryError::Missing("original tuple"))?;
    let reply = reply.ok_or(EntryError::Missing("reply tuple"))?;
    let status = status.ok_or(EntryError::Missing("status"))?;
    if original.protocol != reply.protocol
        || original.tuple.source.is_ipv4() != reply.tuple.source.is_ipv4()
    {
        return Err(EntryError::Inconsistent);
    }
    if is_zoned || original.is_zoned || reply.is_zoned {
        return Ok(Entry::OtherZone);
    }
    Ok(Entry::Connection(Connection {
        protocol: original.protocol,
        original: original.tuple,
        reply: reply.tuple,
        is_answered: status & SEEN_REPLY != 0,
        is_assured: status & ASSURED != 0,
        tcp_state,
        timeout: timeout.map(|seconds| Duration::from_secs(seconds.into())),
    }))
}

/// The type and the value of each attribute. The iterator ends behind the first one that is truncated.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), EntryError>> {
    NlasIterator::new(bytes).map(|attribute| {
        let attribute = attribute.map_err(|_| EntryError::Truncated)?;
        let (kind, length) = (attribute.kind(), usize::from(attribute.length()));
        let value = attribute.into_inner().get(NLA_HEADER_SIZE..length);
        value.map(|value| (kind, value)).ok_or(EntryError::Truncated)
    })
}

fn fixed<const N: usize>(value: &[u8], name: &'static str) -> Result<[u8; N], EntryError> {
    value.try_into().map_err(|_| EntryError::Length(name))
}

fn is_other_zone(value: &[u8]) -> Result<bool, EntryError> {
    Ok(u16::from_be_bytes(fixed(value, "zone")?) != 0)
}

struct Direction {
    protocol: u8,
    tuple: Tuple,
    is_zoned: bool,
}

fn direction(bytes: &[u8]) -> Result<Direction, EntryError> {
    let (mut ends, mut transport, mut is_zoned) = (None, None, false);
    for attribute in attributes(bytes) {
        match attribute? {
            (TUPLE_IP, value) => ends = Some(addresses(value)?),
            (TUPLE_PROTO, value) => transport = Some(Transport::parse(value)?),
            // A zone of one direction only.
            (TUPLE_ZONE, value) => is_zoned |= is_other_zone(value)?,
            _ => {}
        }
    }
    let (source, destination) = ends.ok_or(EntryError::Missing("addresses"))?;
    let transport = transport.ok_or(EntryError::Missing("protocol"))?;
    let (source_port, destination_port) = transport.ports()?;
    let icmp = transport.icmp()?;
    let tuple = Tuple { source, destination, source_port, destination_port, icmp };
    Ok(Direction { protocol: transport.protocol, tuple, is_zoned })
}

fn addresses(bytes: &[u8]) -> Result<(IpAddr, IpAddr), EntryError> {
    let v4 = |value| Ok(IpAddr::from(Ipv4Addr::from(fixed(value, "IPv4 address")?)));
    let v6 = |value| Ok(IpAddr::from(Ipv6Addr::from(fixed::<16>(value, "IPv6 address")?)));
    let (mut source, mut destination) = (None, None);
    for attribute in attributes(bytes) {
        match attribute? {
            (V4_SOURCE, value) => source = Some(v4(value)?),
            (V4_DESTINATION, value) => destination = Some(v4(value)?),
            (V6_SOURCE, value) => source = Some(v6(value)?),
            (V6_DESTINATION, value) => destination = Some(v6(value)?),
            _ => {}
        }
    }
    let source = source.ok_or(EntryError::Missing("source address"))?;
    let destination = destination.ok_or(EntryError::Missing("destination address"))?;
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(EntryError::Inconsistent);
    }
    Ok((source, destination))
}

struct Transport {
    protocol: u8,
    source_port: Option<u16>,
    destination_port: Option<u16>,
    icmp_identifier: Option<u16>,
    icmp_kind: Option<u8>,
    icmp_code: Option<u8>,
}

impl Transport {
    fn parse(bytes: &[u8]) -> Result<Self, EntryError> {
        let mut protocol = None;
        let (mut source_port, mut destination_port) = (None, None);
        let (mut icmp_identifier, mut icmp_kind, mut icmp_code) = (None, None, None);
        let short = |value, name| Ok(Some(u16::from_be_bytes(fixed(value, name)?)));
        let byte = |value, name| Ok(Some(u8::from_be_bytes(fixed(value, name)?)));
        for attribute in attributes(bytes) {
            match attribute? {
                (PROTO_NUM, value) => protocol = byte(value, "protocol")?,
                (SOURCE_PORT, value) => source_port = short(value, "source port")?,
                (DESTINATION_PORT, value) => destination_port = short(value, "destination port")?,
                (ICMP_ID | ICMPV6_ID, value) => icmp_identifier = short(value, "ICMP identifier")?,
                (ICMP_TYPE | ICMPV6_TYPE, value) => icmp_kind = byte(value, "ICMP type")?,
                (ICMP_CODE | ICMPV6_CODE, value) => icmp_code = byte(value, "ICMP code")?,
                _ => {}
            }
        }
        let protocol = protocol.ok_or(EntryError::Missing("protocol"))?;
        Ok(Self { protocol, source_port, destination_port, icmp_identifier, icmp_kind, icmp_code })
    }

    fn is_icmp(&self) -> bool {
        matches!(self.protocol, ICMP | ICMPV6)
    }

    fn ports(&self) -> Result<(u16, u16), EntryError> {
        if self.is_icmp() {
            let identifier = self.icmp_identifier.ok_or(EntryError::Missing("ICMP identifier"))?;
            return Ok((identifier, identifier));
        }
        match (self.source_port, self.destination_port) {
            (Some(source), Some(destination)) => Ok((source, destination)),
            _ if matches!(self.protocol, TCP | UDP | DCCP | SCTP | UDPLITE) => {
                Err(EntryError::Missing("port"))
            }
            // GRE has its keys here, and most protocols have nothing.
            (source, destination) => Ok((source.unwrap_or(0), destination.unwrap_or(0))),
        }
    }

    fn icmp(&self) -> Result<Option<IcmpMessage>, EntryError> {
        if !self.is_icmp() {
            return Ok(None);
        }
        let kind = self.icmp_kind.ok_or(EntryError::Missing("ICMP type"))?;
        let code = self.icmp_code.ok_or(EntryError::Missing("ICMP code"))?;
        Ok(Some(IcmpMessage { kind, code }))
    }
}

fn state(bytes: &[u8]) -> Result<Option<TcpState>, EntryError> {
    let mut state = None;
    for outer in attributes(bytes) {
        let (PROTOINFO_TCP, value) = outer? else { continue };
        for inner in attributes(value) {
            let (TCP_STATE, value) = inner? else { continue };
            state = Some(tcp_state(u8::from_be_bytes(fixed(value, "TCP state")?)));
        }
    }
    Ok(state)
}

/// linux/netfilter/nf_conntrack_tcp.h
fn tcp_state(number: u8) -> TcpState {
    match number {
        0 => TcpState::New,
        1 => TcpState::SynSent,
        2 => TcpState::SynReceived,
        3 => TcpState::Established,
        4 => TcpState::FinWait,
        5 => TcpState::CloseWait,
        6 => TcpState::LastAck,
        7 => TcpState::TimeWait,
        8 => TcpState::Close,
        9 => TcpState::SimultaneousOpen,
        other => TcpState::Other(other),
    }
}

/// Bytes of `nfgenmsg` (linux/netfilter/nfnetlink.h): family, version, resource.
pub(crate) const NFGENMSG_BYTES: usize = 4;

// linux/netfilter/nfnetlink_conntrack.h: CTA_*
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const TIMEOUT: u16 = 7;
const ZONE: u16 = 18;
// CTA_TUPLE_*
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const TUPLE_ZONE: u16 = 3;
// CTA_IP_*
const V4_SOURCE: u16 = 1;
const V4_DESTINATION: u16 = 2;
const V6_SOURCE: u16 = 3;
const V6_DESTINATION: u16 = 4;
// CTA_PROTO_*
const PROTO_NUM: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const ICMP_ID: u16 = 4;
const ICMP_TYPE: u16 = 5;
const ICMP_CODE: u16 = 6;
const ICMPV6_ID: u16 = 7;
const ICMPV6_TYPE: u16 = 8;
const ICMPV6_CODE: u16 = 9;
// CTA_PROTOINFO_*
const PROTOINFO_TCP: u16 = 1;
const TCP_STATE: u16 = 1;

// linux/netfilter/nf_conntrack_common.h: IPS_*
const SEEN_REPLY: u32 = 1 << 1;
const ASSURED: u32 = 1 << 2;

// linux/in.h
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDPLITE: u8 = 136;

#[cfg(test)]
pub(crate) mod tests;
