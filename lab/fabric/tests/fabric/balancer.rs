//! Load balancers: targets get the client's address, and open connections keep their targets.

use crate::{
    Test,
    lab::{TestLab, allow, group, ip},
};
use lab_fabric::{
    DropReason, FURTHER_CLIENTS, Fabric, Forwarding, INTERNET_HOST, Protocol, Transport,
};
use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::Duration,
};

pub(crate) const TESTS: &[Test] = &[
    ("a_target_of_a_load_balancer_gets_the_address_of_the_client", targets_get_clients),
    ("an_open_connection_keeps_its_target", an_open_connection_keeps_its_target),
    ("a_datagram_of_each_client_is_forwarded_and_answered", datagrams),
    ("a_port_without_targets_does_not_answer", a_port_without_targets),
    ("security_groups_of_targets_judge_clients", groups_judge_clients),
];

const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const NODES: [(&str, &str); 2] = [("a", "10.0.1.10"), ("b", "10.0.2.10")];
const NODE_PORT: u16 = 30_080;
const PATIENCE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(500);

fn forward(transport: Transport, targets: &[&str]) -> Forwarding {
    let targets = targets.iter().map(|target| ip(target).into()).collect();
    Forwarding { address: ADDRESS.into(), transport, port: 80, target_port: NODE_PORT, targets }
}

/// Serves on the nodes: each line is answered with the node and the address of the client.
fn serve(lab: &TestLab) {
    for (name, _) in NODES {
        let bind = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, NODE_PORT)).unwrap();
        let listener = lab.node(name).inside(bind).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || echo(name, &stream));
            }
        });
    }
}

fn echo(name: &str, mut stream: &TcpStream) {
    let client = stream.peer_addr().unwrap().ip();
    for _ in BufReader::new(stream).lines().map_while(Result::ok) {
        if stream.write_all(format!("{name} {client}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// Connects from the internet's host.
fn connect(fabric: &Fabric) -> io::Result<TcpStream> {
    let to = SocketAddr::from((ADDRESS, 80));
    fabric.inside_internet(|| TcpStream::connect_timeout(&to, SILENCE)).unwrap()
}

/// The next answer on a connection.
fn ask(stream: &TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (&*stream).write_all(b"?\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn targets_get_clients() {
    let lab = TestLab::two_nodes();
    serve(&lab);
    lab.fabric.balance(&[forward(Transport::Tcp, &NODES.map(|(_, address)| address))]).unwrap();
    let answers: BTreeSet<String> = (0..48).map(|_| ask(&connect(&lab.fabric).unwrap())).collect();
    let expected = NODES.map(|(name, _)| format!("{name} {INTERNET_HOST}"));
    assert_eq!(answers, BTreeSet::from(expected));
    // A client in the VPC.
    lab.fabric.balance(&[forward(Transport::Tcp, &["10.0.1.10"])]).unwrap();
    let from_b = || TcpStream::connect((ADDRESS, 80)).unwrap();
    assert_eq!(ask(&lab.node("b").inside(from_b).unwrap()), "a 10.0.2.10");
}

fn an_open_connection_keeps_its_target() {
    let lab = TestLab::two_nodes();
    serve(&lab);
    lab.fabric.balance(&[forward(Transport::Tcp, &["10.0.1.10"])]).unwrap();
    let open = connect(&lab.fabric).unwrap();
    assert_eq!(ask(&open), format!("a {INTERNET_HOST}"));
    lab.fabric.balance(&[forward(Transport::Tcp, &["10.0.2.10"])]).unwrap();
    for _ in 0..8 {
        assert_eq!(ask(&connect(&lab.fabric).unwrap()), format!("b {INTERNET_HOST}"));
    }
    assert_eq!(ask(&open), format!("a {INTERNET_HOST}"));
}

fn datagrams() {
    let lab = TestLab::two_nodes();
    lab.fabric.balance(&[forward(Transport::Udp, &["10.0.1.10"])]).unwrap();
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, NODE_PORT)).unwrap();
    let server = lab.node("a").inside(bind).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    for client in [INTERNET_HOST, FURTHER_CLIENTS.hosts().nth(7).unwrap()] {
        let bind = || UdpSocket::bind((client, 0)).unwrap();
        let socket = lab.fabric.inside_internet(bind).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send_to(b"?", (ADDRESS, 80)).unwrap();
        let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(from, socket.local_addr().unwrap());
        server.send_to(b"!", from).unwrap();
        let (_, from) = socket.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(from, SocketAddr::from((ADDRESS, 80)), "the load balancer answers");
    }
}

fn a_port_without_targets() {
    let lab = TestLab::two_nodes();
    serve(&lab);
    lab.fabric.balance(&[forward(Transport::Tcp, &["10.0.1.10"])]).unwrap();
    assert!(connect(&lab.fabric).is_ok());
    lab.fabric.balance(&[forward(Transport::Tcp, &[])]).unwrap();
    assert_eq!(connect(&lab.fabric).unwrap_err().kind(), io::ErrorKind::TimedOut);
}

fn groups_judge_clients() {
    let mut lab = TestLab::two_nodes();
    serve(&lab);
    lab.fabric.balance(&[forward(Transport::Tcp, &["10.0.1.10"])]).unwrap();
    assert!(connect(&lab.fabric).is_ok());
    let ingress = vec![allow(Protocol::All, "10.0.0.0/16")];
    lab.wanted.groups.get_mut(&group()).unwrap().ingress = ingress;
    lab.apply();
    assert!(connect(&lab.fabric).is_err());
    assert!(lab.fabric.counters().unwrap().dropped(DropReason::GroupIngress) > 0);
}
