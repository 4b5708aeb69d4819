//! The connections that the real kernel tracks, each case in a new namespace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a lane reads the skips of its tests")]

use caps::{CapSet, Capability};
use datapath_conntrack::{
    Connection, DumpError, IcmpMessage, Table, TcpState, Tuple, dump, dump_if,
};
use nix::{
    sched::{CloneFlags, unshare},
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
    },
    unistd::Uid,
};
use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tests_eventually::{PATIENCE, eventually};

/// Tracks both families. TCP to the virtual address 10.96.0.1 goes to 10.0.0.2; port 81 answers nothing. Datagrams to
/// port 7 are in zone 7, and datagrams to ports from 10000 are dropped after they are tracked.
const RULES: &str = "
table ip service {
    chain output {
        type nat hook output priority -100
        ip daddr 10.96.0.1 tcp dport 80 dnat to 10.0.0.2:8080
        ip daddr 10.96.0.1 tcp dport 81 dnat to 10.0.0.2:8081
    }
}
table inet track {
    chain zones {
        type filter hook output priority -300
        udp dport 7 ct zone set 7
    }
    chain output {
        type filter hook output priority 0
        ct state new counter
    }
    chain input {
        type filter hook input priority 0
        tcp dport 8081 drop
        udp dport 10000-65535 drop
    }
}
";

/// Runs `body` on a thread that is alone in a new namespace with the rules. Skips the test if the kernel or the machine
/// lacks something.
fn in_namespace(test: &str, body: impl FnOnce() + Send + 'static) {
    if !Uid::effective().is_root() {
        println!("SKIP {test}: needs root");
        return;
    }
    let thread = thread::Builder::new().name(test.to_owned());
    let test = test.to_owned();
    let body = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        if dump().unwrap().is_none() {
            println!("SKIP {test}: the kernel has no ctnetlink");
            return;
        }
        for command in [
            "link set lo up",
            "addr add 10.0.0.1/32 dev lo",
            "addr add 10.0.0.2/32 dev lo",
            "addr add fd00::2/128 dev lo",
            "route add 10.96.0.0/16 dev lo src 10.0.0.1",
        ] {
            run("ip", command, "").unwrap_or_else(|error| panic!("ip {command}: {error}"));
        }
        match run("nft", "-f -", RULES) {
            Ok(()) => body(),
            Err(error) => println!("SKIP {test}: nft cannot add rules that track: {error}"),
        }
    };
    if let Err(panic) = thread.spawn(body).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a program in the namespace of the calling thread. The error has the text of the program.
fn run(program: &str, args: &str, input: &str) -> Result<(), String> {
    let child = Command::new(program)
        .args(args.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = || String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(error)
}

fn table() -> Table {
    let table = dump().unwrap().unwrap();
    assert_eq!((table.left_out.unreadable, &table.left_out.cause), (0, &None));
    table
}

/// The only connection with this destination of its original direction.
fn to(destination: SocketAddr) -> Option<Connection> {
    let is_to = |connection: &Connection| receiver(&connection.original) == destination;
    let mut found: Vec<_> = table().connections.into_iter().filter(is_to).collect();
    assert!(found.len() < 2, "{found:?}");
    found.pop()
}

fn sender(tuple: &Tuple) -> SocketAddr {
    SocketAddr::from((tuple.source, tuple.source_port))
}

fn receiver(tuple: &Tuple) -> SocketAddr {
    SocketAddr::from((tuple.destination, tuple.destination_port))
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn a_connection_through_dnat_has_both_addresses_until_it_ends() {
    in_namespace("a_connection_through_dnat_has_both_addresses_until_it_ends", || {
        let (service, backend) = (address("10.96.0.1:80"), address("10.0.0.2:8080"));
        let listener = TcpListener::bind(backend).unwrap();
        let client = TcpStream::connect(service).unwrap();
        let (server, _) = listener.accept().unwrap();
        let ours = client.local_addr().unwrap();

        // The last packet of the handshake may still be under way.
        let state = |wanted| {
            eventually(&format!("the state {wanted:?}"), PATIENCE, || {
                let found = to(service).ok_or("no connection".to_owned())?;
                let is_wanted = found.tcp_state == Some(wanted);
                if is_wanted { Ok(found) } else { Err(format!("{found:?}")) }
            })
        };
        let open = state(TcpState::Established);
        assert_eq!((sender(&open.original), receiver(&open.original)), (ours, service));
        assert_eq!((sender(&open.reply), receiver(&open.reply)), (backend, ours));
        assert_eq!((open.protocol, open.is_answered, open.is_assured), (6, true, true));
        assert_eq!((open.original.icmp, open.reply.icmp), (None, None));

        drop(client);
        state(TcpState::CloseWait);
        drop(server);
        let closed = state(TcpState::TimeWait);
        assert_eq!((closed.original, closed.is_answered), (open.original, true));
        assert!(closed.timeout < open.timeout, "{closed:?}");
    });
}

#[test]
fn a_connection_without_an_answer_is_not_answered() {
    in_namespace("a_connection_without_an_answer_is_not_answered", || {
        let service = address("10.96.0.1:81");
        TcpStream::connect_timeout(&service, Duration::from_millis(100)).unwrap_err();
        let found = to(service).unwrap();
        assert_eq!(sender(&found.reply), address("10.0.0.2:8081"));
        assert_eq!(found.tcp_state, Some(TcpState::SynSent));
        assert_eq!((found.is_answered, found.is_assured), (false, false));
    });
}

#[test]
fn datagrams_of_ipv6_are_answered_after_a_reply() {
    in_namespace("datagrams_of_ipv6_are_answered_after_a_reply", || {
        // The kernel adds an address of IPv6 and its local route asynchronously. A datagram before that has no route,
        // and is not tracked.
        let bind = || UdpSocket::bind("[fd00::2]:5300");
        let server = eventually("the address fd00::2", PATIENCE, bind);
        server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let client = UdpSocket::bind("[::1]:0").unwrap();
        let (ours, theirs) = (client.local_addr().unwrap(), server.local_addr().unwrap());
        eventually("a datagram at fd00::2", PATIENCE, || {
            client.send_to(b"question", theirs).and_then(|_| server.recv(&mut [0; 8]))
        });
        let first = to(theirs).unwrap();
        assert_eq!((sender(&first.original), sender(&first.reply)), (ours, theirs));
        assert_eq!((first.protocol, first.is_answered, first.tcp_state), (17, false, None));
        server.send_to(b"answer", ours).unwrap();
        let second = to(theirs).unwrap();
        assert_eq!((second.original, second.reply), (first.original, first.reply));
        assert!(second.is_answered, "{second:?}");
    });
}

#[test]
fn an_echo_has_its_identifier() {
    in_namespace("an_echo_has_its_identifier", || {
        let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Icmp)
            .unwrap();
        // Type 8, checksum, identifier 0x1234, sequence number 1.
        let request = [8, 0, 0xe5, 0xca, 0x12, 0x34, 0, 1];
        let target = SockaddrIn::new(10, 0, 0, 2, 0);
        sendto(raw.as_raw_fd(), &request, &target, MsgFlags::empty()).unwrap();
        let echo = eventually("the reply", PATIENCE, || {
            let connections = table().connections;
            connections
                .into_iter()
                .find(|connection| connection.protocol == 1 && connection.is_answered)
        });
        let message = |kind| Some(IcmpMessage { kind, code: 0 });
        assert_eq!((echo.original.icmp, echo.reply.icmp), (message(8), message(0)));
        assert_eq!(receiver(&echo.original), address(&format!("10.0.0.2:{}", 0x1234)));
        assert_eq!(sender(&echo.reply), receiver(&echo.original));
    });
}

#[test]
fn a_connection_of_another_zone_is_counted_only() {
    in_namespace("a_connection_of_another_zone_is_counted_only", || {
        let client = UdpSocket::bind("10.0.0.1:0").unwrap();
        client.send_to(b"x", "10.0.0.2:7").unwrap();
        let table = table();
        assert_eq!(table.left_out.other_zones, 1);
        assert_eq!(
            table.connections.iter().find(|found| found.original.destination_port == 7),
            None
        );
    });
}

/// A limit of the kernel: a backend that trusts the table must have tracked each connection from its start.
#[test]
fn an_older_connection_has_the_direction_of_its_next_packet() {
    in_namespace("an_older_connection_has_the_direction_of_its_next_packet", || {
        run("nft", "flush ruleset", "").unwrap();
        let listener = TcpListener::bind("10.0.0.2:8080").unwrap();
        let client = TcpStream::connect("10.0.0.2:8080").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        run("nft", "-f -", RULES).unwrap();
        assert_eq!(table().connections, []);
        server.write_all(b"x").unwrap();
        let found = to(client.local_addr().unwrap()).unwrap();
        assert_eq!(sender(&found.original), server.local_addr().unwrap());
    });
}

#[test]
fn a_long_table_is_read_to_its_end() {
    in_namespace("a_long_table_is_read_to_its_end", || {
        let client = UdpSocket::bind("10.0.0.1:9").unwrap();
        let ports = 10000..14000;
        for port in ports.clone() {
            client.send_to(b"x", ("10.0.0.2", port)).unwrap();
        }
        let mut found: Vec<_> = table().connections;
        found.sort_by_key(|connection| connection.original.destination_port);
        let found: Vec<_> = found.iter().map(|found| found.original.destination_port).collect();
        assert_eq!(found, ports.collect::<Vec<u16>>());
        let kept = dump_if(|connection| connection.original.destination_port == 12000);
        assert_eq!(kept.unwrap().unwrap().connections.len(), 1);
    });
}

#[test]
fn a_namespace_is_listed_alone_and_only_with_the_capability() {
    in_namespace("a_namespace_is_listed_alone_and_only_with_the_capability", || {
        let client = UdpSocket::bind("10.0.0.1:0").unwrap();
        client.send_to(b"x", "10.0.0.2:10000").unwrap();
        assert_eq!(table().connections.len(), 1);
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert_eq!(dump().unwrap(), Some(Table::default()));
        caps::drop(None, CapSet::Effective, Capability::CAP_NET_ADMIN).unwrap();
        let refused = dump();
        assert!(matches!(refused, Err(DumpError::Forbidden)), "{refused:?}");
    });
}
