//! A small DNS server, and its client.

use crate::traffic::in_pod;
use datapath_names::read;
use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

type Zone = Arc<Mutex<BTreeMap<String, Vec<Ipv4Addr>>>>;

/// A server in a namespace, over UDP and TCP, until the process ends. Some names have wrong answers.
pub(super) struct Server {
    zone: Zone,
}

impl Server {
    pub(super) fn start(namespace: &str, at: SocketAddr) -> Self {
        let zone = Zone::default();
        let (udp, tcp) = in_pod(namespace, move || {
            (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap())
        });
        let of_udp = Arc::clone(&zone);
        thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((length, from)) = udp.recv_from(&mut bytes) {
                for answer in answers(&bytes[..length], &of_udp) {
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        let of_tcp = Arc::clone(&zone);
        thread::spawn(move || {
            for mut connection in tcp.incoming().flatten() {
                let mut length = [0; 2];
                connection.read_exact(&mut length).unwrap();
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                connection.read_exact(&mut query).unwrap();
                let name = name_of(&query);
                let addresses = of_tcp.lock().unwrap().get(&name).cloned().unwrap_or_default();
                let answer = message([query[0], query[1]], 0x80, &name, &name, &addresses);
                let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
                let all = [&length[..], &answer].concat();
                // In two segments.
                let (one, other) = all.split_at(all.len() / 3);
                connection.write_all(one).unwrap();
                thread::sleep(Duration::from_millis(20));
                connection.write_all(other).unwrap();
            }
        });
        Self { zone }
    }

    pub(super) fn set(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.zone.lock().unwrap().insert(name.to_owned(), addresses.to_vec());
    }
}

/// The answers to a query over UDP.
fn answers(query: &[u8], zone: &Zone) -> Vec<Vec<u8>> {
    let name = name_of(query);
    let addresses = zone.lock().unwrap().get(&name).cloned().unwrap_or_default();
    let id = [query[0], query[1]];
    match name.as_str() {
        "wrong-id.corp.test" => vec![message([!id[0], id[1]], 0x80, &name, &name, &addresses)],
        "twice.corp.test" => {
            vec![message(id, 0x80, &name, &name, &[]), message(id, 0x80, &name, &name, &addresses)]
        }
        "query.corp.test" => vec![message(id, 0x00, &name, &name, &addresses)],
        "stranger.corp.test" => vec![message(id, 0x80, &name, "other.corp.test", &addresses)],
        "tcp.corp.test" => vec![message(id, 0x82, &name, &name, &[])],
        _ => vec![message(id, 0x80, &name, &name, &addresses)],
    }
}

fn labels(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| {
        let length = u8::try_from(label.len()).unwrap();
        std::iter::once(length).chain(label.bytes())
    });
    labels.chain([0]).collect()
}

fn name_of(query: &[u8]) -> String {
    let (mut name, mut at) = (Vec::new(), 12);
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push(String::from_utf8(query[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    name.join(".")
}

/// A message of this question with records of this owner. `flags` is 0x80 for an answer.
fn message(id: [u8; 2], flags: u8, name: &str, owner: &str, addresses: &[Ipv4Addr]) -> Vec<u8> {
    let count = u16::try_from(addresses.len()).unwrap().to_be_bytes();
    let header = [&id[..], &[flags | 1, 0x80, 0, 1], &count, &[0, 0, 0, 0]].concat();
    let owner = if owner == name { vec![0xc0, 12] } else { labels(owner) };
    let records = addresses.iter().flat_map(|address| {
        [&owner[..], &[0, 1, 0, 1, 0, 0, 0, 1, 0, 4], &address.octets()].concat()
    });
    let records: Vec<u8> = records.collect();
    [&header[..], &labels(name), &[0, 1, 0, 1], &records].concat()
}

pub(super) fn query(id: u16, name: &str) -> Vec<u8> {
    message(id.to_be_bytes(), 0, name, name, &[])
}

/// An answer as an attacker sends it.
pub(super) fn forged(id: u16, name: &str, address: Ipv4Addr) -> Vec<u8> {
    message(id.to_be_bytes(), 0x80, name, name, &[address])
}

/// Asks a server. `None` without an answer to the query.
pub(super) fn ask(server: SocketAddr, name: &str) -> Option<Vec<IpAddr>> {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let id = socket.local_addr().unwrap().port();
    socket.send_to(&query(id, name), server).unwrap();
    let mut bytes = [0; 4096];
    let length = socket.recv(&mut bytes).ok()?;
    let is_own = bytes[..2] == id.to_be_bytes();
    let answer = read(&bytes[..length]).ok().filter(|_| is_own)?;
    Some(answer.addresses.into_iter().collect())
}

pub(super) fn ask_by_tcp(server: SocketAddr, name: &str) -> Option<Vec<IpAddr>> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(2)).ok()?;
    let query = query(7, name);
    let length = u16::try_from(query.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &query].concat()).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut bytes).ok()?;
    Some(read(&bytes).ok()?.addresses.into_iter().collect())
}
