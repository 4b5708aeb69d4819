//! One attempt to reach a target.

use super::{
    answer::{Reached, greeted},
    datagram,
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, lookup_host},
    time::{sleep, timeout},
};
use view_cluster::{How, Outcome, Try};

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
    let mut said = String::new();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            sleep(PAUSE).await;
        }
        match timeout(WITHIN, reach(&what)).await {
            Ok(Ok(Reached { micros, mtu })) => {
                return Outcome { good: true, said: "answered".to_owned(), micros, mtu };
            }
            Ok(Err(error)) => said = error.to_string(),
            Err(_) => said = format!("no answer within {} s", WITHIN.as_secs()),
        }
    }
    let failed = Outcome { said: format!("{said} ({ATTEMPTS} attempts)"), ..Outcome::default() };
    match what.how {
        How::Large => explained(&what.to, failed).await,
        How::Tcp | How::Http | How::Udp | How::Dns => failed,
    }
}

/// Finds the largest packet that arrives, after one of the interface's MTU was lost.
async fn explained(to: &str, failed: Outcome) -> Outcome {
    match datagram::largest(to).await {
        Ok((mtu, Some(largest))) => {
            let said = format!(
                "packets of {mtu} bytes, the MTU of the interface, are lost; the largest that arrives has {largest}"
            );
            Outcome { said, mtu: Some(largest), ..failed }
        }
        Ok((_, None)) | Err(_) => failed,
    }
}

async fn reach(what: &Try) -> io::Result<Reached> {
    let to = &what.to;
    match what.how {
        How::Tcp => drop(TcpStream::connect(to).await?),
        How::Http => {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
            greeted(&answer)?;
        }
        How::Udp => return datagram::echo(to).await,
        How::Large => return datagram::large(to).await,
        How::Dns => {
            let mut found = lookup_host((to.as_str(), 0)).await?;
            found.next().ok_or_else(|| io::Error::other("the name has no address"))?;
        }
    }
    Ok(Reached::default())
}

const ATTEMPTS: u32 = 3;
const WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(200);
const ANSWER_MAX: u64 = 64 << 10;
