//! A probe like those of `ferrule check`: it answers, tries the requested targets and reports failures.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    thread,
};
use tests_eventually::{PATIENCE, eventually};
use view_cluster::{How, Outcome, Try};

struct Probe {
    child: Child,
    port: u16,
}

impl Probe {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
        let child = command.args(["probe", "serve", "--port", &free.to_string()]).spawn().unwrap();
        eventually("the probe to listen", PATIENCE, || TcpStream::connect(("127.0.0.1", free)));
        Self { child, port: free }
    }

    fn tries(&self, tries: &[Try]) -> Vec<Outcome> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("of", &serde_json::to_string(tries).unwrap())
            .finish();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "GET /tries?{query} HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_probe_reaches_another_and_reports_failures() {
    let (one, other) = (Probe::start(), Probe::start());
    let to = |how, to: &str| Try { how, to: to.to_owned() };
    let there = format!("127.0.0.1:{}", other.port);
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let strange = stranger.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        // As often as it is tried.
        for stream in stranger.incoming().take(3) {
            let _ = stream.unwrap().write_all(b"HTTP/1.1 200 OK\r\n\r\nhello");
        }
    });
    let outcomes = one.tries(&[
        to(How::Tcp, &there),
        to(How::Http, &there),
        to(How::Udp, &there),
        to(How::Large, &there),
        to(How::Dns, "localhost"),
        to(How::Tcp, "127.0.0.1:1"),
        to(How::Dns, "no-such-name.invalid"),
        to(How::Http, &strange),
    ]);
    let good: Vec<bool> = outcomes.iter().map(|it| it.good).collect();
    assert_eq!(good, [true, true, true, true, true, false, false, false], "{outcomes:?}");
    assert!(outcomes[5].said.contains("refused"), "{outcomes:?}");
    assert!(outcomes[2].micros.is_some() && outcomes[0].micros.is_none(), "{outcomes:?}");
    let loopback = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
    assert_eq!(outcomes[3].mtu, Some(loopback.trim().parse().unwrap()), "{outcomes:?}");
    answering.join().unwrap();
}
