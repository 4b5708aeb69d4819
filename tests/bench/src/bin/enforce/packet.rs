//! Packets for programs that are not attached.

use crate::{WIRE, world};
use anyhow::{Result, ensure};
use datapath_ebpf::{Hook, Programs};
use std::net::Ipv4Addr;

/// A packet of a protocol whose packets belong to no connection: its verdict is looked up each time.
pub(crate) fn without_ports(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    packet(47, source, destination, &[0; 8])
}

/// The first packet of a TCP connection.
pub(crate) fn start(source: Ipv4Addr, destination: Ipv4Addr, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[200, 0, high, low]);
    // The length of the header, and the flag SYN.
    header[12..14].copy_from_slice(&[5 << 4, 2]);
    packet(6, source, destination, &header)
}

fn packet(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    let length = u16::try_from(payload.len() + 20).unwrap_or(u16::MAX);
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes.resize(bytes.len().max(64), 0);
    bytes
}

/// Opens connections of pods by UDP. Returns their number.
pub(crate) fn connections(mut programs: Programs, pods: u32) -> Result<u32> {
    let outside = world::address(0, true);
    let datagram = |from: Ipv4Addr, source: u16, to: Ipv4Addr, destination: u16| {
        let ports = [source.to_be_bytes(), destination.to_be_bytes(), [0, 12], [0; 2]].concat();
        packet(17, from, to, &[&ports[..], &[0; 4]].concat())
    };
    let mut opened = 0;
    for number in 0..CONNECTIONS {
        let pod = number % pods;
        let port = 1024 + u16::try_from(number / pods)?;
        let (own, link) = (world::pod_address(pod), world::link(pod).ifindex);
        let request = datagram(own, port, outside, 53);
        let answer = datagram(outside, 53, own, port);
        let sent = programs.test(Hook::TestToWire, &request, WIRE, link, 0)?;
        let answered = programs.test(Hook::ToPod, &answer, link, WIRE, 0)?;
        ensure!(sent == crate::PASS, "pod {pod} may not send: {sent}");
        opened += u32::from(answered == crate::PASS);
    }
    ensure!(opened == CONNECTIONS, "{opened} of {CONNECTIONS} connections were answered");
    Ok(opened)
}

const CONNECTIONS: u32 = 50_000;
