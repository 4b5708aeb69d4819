//! Packets for programs that are not attached.

use crate::{PASS, WIRE, world};
use anyhow::{Result, ensure};
use datapath_ebpf::{Hook, Programs};
use std::net::Ipv4Addr;

/// A packet that belongs to no connection: its verdict is looked up each time. It asks for a time by ICMP.
pub(crate) fn of_no_connection(source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    packet(ICMP, source, destination, &[13, 0, 0, 0, 0, 0, 0, 0])
}

/// The first packet of a TCP connection.
pub(crate) fn start(source: Ipv4Addr, destination: Ipv4Addr, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let mut header = [0; 20];
    header[..4].copy_from_slice(&[200, 0, high, low]);
    // The length of the header, and the flag SYN.
    header[12..14].copy_from_slice(&[5 << 4, 2]);
    packet(TCP, source, destination, &header)
}

pub(crate) fn has_ports(packet: &[u8]) -> bool {
    packet.get(14 + 9).is_some_and(|protocol| *protocol != ICMP)
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

/// Opens connections of pods to another node by UDP, and has each answered.
pub(crate) fn connections(programs: &mut Programs, pods: u32, number: u32) -> Result<()> {
    for connection in 0..number {
        let (link, request, answer) = datagrams(pods, connection)?;
        for (hook, packet, links) in
            [(Hook::TestToWire, request, [WIRE, link]), (Hook::ToPod, answer, [link, WIRE])]
        {
            let action = programs.test(hook, &packet, links[0], links[1], 0)?;
            ensure!(action == PASS, "a datagram of connection {connection} is dropped");
        }
    }
    let answered = answer(programs, pods, number)?;
    ensure!(answered == number, "{answered} of {number} connections were answered");
    Ok(())
}

/// The number of connections whose answer passes. The policies of the pods allow no datagram from its sender.
pub(crate) fn answer(programs: &mut Programs, pods: u32, number: u32) -> Result<u32> {
    let mut answered = 0;
    for connection in 0..number {
        let (link, _, answer) = datagrams(pods, connection)?;
        answered += u32::from(programs.test(Hook::ToPod, &answer, link, WIRE, 0)? == PASS);
    }
    Ok(answered)
}

/// The link of a connection's pod, a datagram of the pod, and the answer.
fn datagrams(pods: u32, connection: u32) -> Result<(u32, Vec<u8>, Vec<u8>)> {
    let outside = world::address(0, true);
    let pod = connection % pods;
    let port = 1024 + u16::try_from(connection / pods)?;
    let datagram = |from: Ipv4Addr, source: u16, to: Ipv4Addr, destination: u16| {
        let ports = [source.to_be_bytes(), destination.to_be_bytes(), [0, 12], [0; 2]].concat();
        packet(UDP, from, to, &[&ports[..], &[0; 4]].concat())
    };
    let own = world::pod_address(pod);
    let request = datagram(own, port, outside, 53);
    Ok((world::link(pod).ifindex, request, datagram(outside, 53, own, port)))
}

/// Protocol numbers of IANA.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
