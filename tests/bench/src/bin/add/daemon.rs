//! The daemon of the node that the benchmark runs on.

use anyhow::{Context as _, Result, ensure};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    time::{Duration, Instant},
};

/// A running `ferrule-ipamd`.
pub(crate) struct Daemon {
    proc: PathBuf,
}

impl Daemon {
    /// Finds `ferrule-ipamd` in the network namespace of this process.
    pub(crate) fn find() -> Result<Self> {
        Self::named("ferrule-ipamd")
    }

    /// Finds the process of this name in the network namespace of this process.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let ours = std::fs::read_link("/proc/self/ns/net").context("our network namespace")?;
        for entry in std::fs::read_dir("/proc").context("read /proc")?.flatten() {
            let proc = entry.path();
            let comm = std::fs::read_to_string(proc.join("comm")).unwrap_or_default();
            let netns = std::fs::read_link(proc.join("ns/net")).unwrap_or_default();
            if comm.trim() == name && netns == ours {
                return Ok(Self { proc });
            }
        }
        anyhow::bail!("no {name} runs on this node; start one with: ferrule-lab daemon start")
    }

    pub(crate) fn resident_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(self.proc.join("status")).context("daemon status")?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").trim().parse().ok())
            .context("VmRSS in the daemon's status")
    }

    /// Waits until the pool has this many free addresses.
    pub(crate) fn wait_free(&self, wanted: u64, patience: Duration) -> Result<()> {
        let give_up = Instant::now() + patience;
        loop {
            let free = gauge("ferrule_pool_free_addresses").unwrap_or(0.0);
            if free >= wanted as f64 {
                return Ok(());
            }
            ensure!(
                Instant::now() < give_up,
                "{free} of {wanted} addresses free after {patience:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// The sum of a gauge over its labels, from `/metrics`.
pub(crate) fn gauge(name: &str) -> Result<f64> {
    let mut stream = TcpStream::connect(("127.0.0.1", 61_678)).context("connect to /metrics")?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).context("set a timeout")?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .context("request /metrics")?;
    let mut body = String::new();
    stream.read_to_string(&mut body).context("read /metrics")?;
    let values: Vec<f64> = body
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
        .collect();
    ensure!(!values.is_empty(), "/metrics has no {name}");
    Ok(values.iter().sum())
}
