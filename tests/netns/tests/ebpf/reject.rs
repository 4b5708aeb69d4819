//! Answers to rejected packets.

use crate::{
    Kernel,
    nat::{listen, outside, vip},
    object,
    traffic::{NODE, SILENCE, add_v6, answer, attach, in_pod, node, v6_of, write},
};
use datapath_ebpf::Hook;
use serde_json::{Value, json};
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
};

/// An Antrea policy for pod b, or for pod a, with one rule.
fn policy(app: &str, direction: &str, action: &str) -> Value {
    let of = json!({"podSelector": {"matchLabels": {"app": app}}});
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"priority": 1, "appliedTo": [of], direction: [{"action": action}]},
    })
}

/// The error of a connection from a namespace; `None` if it is established.
fn connect(from: &'static str, to: SocketAddr) -> Option<ErrorKind> {
    in_pod(from, move || TcpStream::connect_timeout(&to, SILENCE)).err().map(|error| error.kind())
}

/// The error of a datagram from a namespace; `WouldBlock` if it has no answer.
fn send(from: &'static str, to: SocketAddr) -> ErrorKind {
    let received = in_pod(from, move || {
        let any: IpAddr = if to.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket.connect(to).unwrap();
        socket.send(&[7]).unwrap();
        socket.recv(&mut [0])
    });
    received.unwrap_err().kind()
}

#[test]
fn a_rejected_packet_is_answered_in_the_name_of_its_receiver() {
    let name = "a_rejected_packet_is_answered_in_the_name_of_its_receiver";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    add_v6();
    for namespace in ["b", "out"] {
        answer(in_pod(namespace, || listen("[::]:8080")));
    }
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    kernel.own.addresses = [NODE, "10.9.0.1"].map(|at| at.parse::<IpAddr>().unwrap().into()).into();
    write(&mut kernel, &[]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    let b = SocketAddr::from(([10, 0, 0, 2], 8080));
    let b_v6 = SocketAddr::from((v6_of("b"), 8080));
    let out = SocketAddr::from(([10, 9, 0, 2], 8080));
    for to in [b, b_v6, out, vip(1), vip(2)] {
        assert_eq!(connect("a", to), None, "{to} without policies");
    }
    assert_eq!(connect("out", b), None);
    let refused = Some(ErrorKind::ConnectionRefused);

    write(&mut kernel, &[policy("b", "ingress", "Reject")]);
    for to in [b, b_v6, vip(1)] {
        assert_eq!(connect("a", to), refused, "{to}");
    }
    assert_eq!(connect("out", b), refused, "from another node");
    for (from, to) in [("a", b), ("a", b_v6), ("out", b)] {
        let error = send(from, to);
        assert!(
            matches!(error, ErrorKind::HostUnreachable | ErrorKind::PermissionDenied),
            "{from} to {to}: {error:?}"
        );
    }
    write(&mut kernel, &[policy("b", "ingress", "Drop")]);
    assert_eq!(connect("a", b), Some(ErrorKind::TimedOut));
    assert_eq!(send("a", b), ErrorKind::WouldBlock);

    write(&mut kernel, &[policy("a", "egress", "Reject")]);
    for to in [b, b_v6, out, vip(1), vip(2), SocketAddr::from(([10, 9, 0, 1], 8080))] {
        assert_eq!(connect("a", to), refused, "{to}");
    }
    assert_eq!(send("a", out), ErrorKind::HostUnreachable);
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["rejected"] > 10 && counters["egress_reject"] > 5, "{counters:?}");

    write(&mut kernel, &[]);
    for to in [b, b_v6, out, vip(1), vip(2)] {
        assert_eq!(connect("a", to), None, "{to} without policies again");
    }
}
