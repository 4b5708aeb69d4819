//! One attempt to reach a target.

use std::{
    io,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket, lookup_host},
    time::{sleep, timeout},
};
use view_cluster::{How, Outcome, Try};

/// The probe's default answer.
pub(super) const GREETING: &str = "ferrule probe";

/// Starts all attempts in sequence and runs them in parallel. The results are in the order of the requests.
pub(super) async fn all(tries: Vec<Try>) -> Vec<Outcome> {
    let running: Vec<_> = tries.into_iter().map(|it| tokio::spawn(one(it))).collect();
    let mut outcomes = Vec::new();
    for tried in running {
        outcomes.push(tried.await.unwrap_or_default());
    }
    outcomes
}

/// Counts several attempts as one: the first packet can be lost while neighbor and conntrack entries are created.
async fn one(what: Try) -> Outcome {
    let begun = Instant::now();
    let mut said = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        match timeout(WITHIN, reach(&what)).await {
            Ok(Ok(heard)) => {
                let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                return Outcome { good: true, said: heard, millis };
            }
            Ok(Err(error)) => said = error.to_string(),
            Err(_) => said = format!("no answer within {} s", WITHIN.as_secs()),
        }
    }
    let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Outcome { good: false, said: format!("{said} ({ATTEMPTS} attempts)"), millis }
}

async fn reach(what: &Try) -> io::Result<String> {
    let to = &what.to;
    match what.how {
        How::Tcp => TcpStream::connect(to).await.map(|_| "connected".to_owned()),
        How::Http => {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
            greeted(&answer)
        }
        How::Udp => {
            let family = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(family).await?;
            socket.connect(to).await?;
            socket.send(GREETING.as_bytes()).await?;
            let mut answer = [0; 64];
            let length = socket.recv(&mut answer).await?;
            greeted(answer.get(..length).unwrap_or_default())
        }
        How::Dns => {
            let mut found = lookup_host((to.as_str(), 0)).await?;
            let none = || io::Error::other("the name has no address");
            found.next().map(|address| address.ip().to_string()).ok_or_else(none)
        }
    }
}

/// Checks that the answer is a probe's.
fn greeted(answer: &[u8]) -> io::Result<String> {
    let text = String::from_utf8_lossy(answer);
    match text.contains(GREETING) {
        true => Ok("answered".to_owned()),
        false => Err(io::Error::other("a server that is not a probe answers")),
    }
}

const ATTEMPTS: u32 = 3;
const WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);
const ANSWER_MAX: u64 = 64 << 10;
