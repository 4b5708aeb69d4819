//! SCTP between two pods of a node.

use crate::{
    Kernel, object,
    traffic::{SILENCE, answer, answers, attach, in_pod, node, policy, write},
};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrIn, bind, connect,
            listen, setsockopt, socket, sockopt::SendTimeout,
        },
        time::{TimeVal, TimeValLike as _},
    },
};
use serde_json::{Value, json};
use std::{
    net::{TcpListener, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
};

fn sctp_socket() -> OwnedFd {
    let protocol = SockProtocol::Sctp;
    socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, protocol).unwrap()
}

/// Accepts associations in pod b. Sockets of one-to-one style have the calls of TCP.
fn serve(port: u16) {
    answer(in_pod("b", move || {
        let socket = sctp_socket();
        bind(socket.as_raw_fd(), &SockaddrIn::new(10, 0, 0, 2, port)).unwrap();
        listen(&socket, Backlog::new(8).unwrap()).unwrap();
        TcpListener::from(socket)
    }));
}

/// Connects from pod a to pod b. `None` if nothing answers.
fn associate(port: u16) -> Option<TcpStream> {
    in_pod("a", move || {
        let socket = sctp_socket();
        let timeout = TimeVal::milliseconds(SILENCE.as_millis().try_into().unwrap());
        setsockopt(&socket, SendTimeout, &timeout).unwrap();
        match connect(socket.as_raw_fd(), &SockaddrIn::new(10, 0, 0, 2, port)) {
            Ok(()) => {}
            Err(Errno::EINPROGRESS | Errno::EAGAIN) => return None,
            Err(error) => panic!("{error}"),
        }
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        Some(stream)
    })
}

fn sctp_policy(port: u16) -> Value {
    let mut policy = policy(port);
    policy["spec"]["ingress"][0]["ports"][0]["protocol"] = json!("SCTP");
    policy
}

#[test]
#[ignore = "needs a kernel with SCTP: cargo xtask test vm"]
fn associations_of_sctp_follow_policies_and_their_changes() {
    let name = "associations_of_sctp_follow_policies_and_their_changes";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve(7000);
    serve(7001);
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    write(&mut kernel, &[]);
    attach(&mut kernel);
    let stays = associate(7000).expect("a pod without policies is open");
    let ends = associate(7001).expect("a pod without policies is open");
    assert!(answers(&stays) && answers(&ends));

    write(&mut kernel, &[sctp_policy(7000)]);
    assert!(answers(&stays), "the association stays allowed");
    assert!(!answers(&ends), "the association is no longer allowed");
    assert!(associate(7000).is_some_and(|stream| answers(&stream)));
    assert!(associate(7001).is_none(), "no rule allows the port");

    // The number of a port belongs to its protocol.
    write(&mut kernel, &[policy(7000)]);
    assert!(!answers(&stays), "the rule is about TCP");
    assert!(associate(7000).is_none(), "the rule is about TCP");
}
