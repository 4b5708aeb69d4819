//! Free ports for programs that do not report their own.

use anyhow::{Context as _, Result, bail};
use std::{
    collections::BTreeSet,
    fs,
    hash::{BuildHasher as _, RandomState},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

/// Ports of 127.0.0.1 that are free and outside the kernel's ephemeral range. The kernel therefore does not give
/// them to a bind without a port, or to a connection, before the program listens.
///
/// # Errors
/// If not enough ports are free.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let wanted = candidates()?;
    let count = u64::from(wanted.end - wanted.start);
    let mut found = BTreeSet::new();
    for _ in 0..TRIES {
        if found.len() == N {
            break;
        }
        // Two who look at the same time rarely look at the same.
        let drawn = RandomState::new().hash_one(()) % count;
        let port = wanted.start + u16::try_from(drawn).context("a port of more than 16 bits")?;
        if is_free(port) {
            found.insert(port);
        }
    }
    let found: Vec<u16> = found.into_iter().collect();
    found.try_into().map_err(|found| anyhow::anyhow!("only {found:?} of {wanted:?} are free"))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Those below the kernel's own, and below those that Services have on nodes.
fn candidates() -> Result<Range<u16>> {
    let text = fs::read_to_string(KERNELS_OWN).with_context(|| format!("read {KERNELS_OWN}"))?;
    let lowest = text.split_whitespace().next().and_then(|lowest| lowest.parse().ok());
    let lowest: u16 = lowest.with_context(|| format!("{KERNELS_OWN}: {text:?}"))?;
    if lowest < LOWEST + ENOUGH {
        bail!("cannot choose ports: the range in {KERNELS_OWN} starts at {lowest}");
    }
    Ok(LOWEST..lowest.min(NODE_PORTS))
}

const KERNELS_OWN: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below are ports that services are known by.
const LOWEST: u16 = 11_000;
/// The first that Kubernetes gives Services.
const NODE_PORTS: u16 = 30_000;
const ENOUGH: u16 = 1_000;
const TRIES: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_apart_free_and_none_that_the_kernel_gives() -> Result<()> {
        let ports: [u16; 50] = free_ports()?;
        let given = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        assert!(ports.iter().all(|port| *port < given && *port >= LOWEST), "{ports:?}, {given}");
        let apart: BTreeSet<_> = ports.into_iter().collect();
        assert_eq!(apart.len(), ports.len());
        for port in ports {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        }
        Ok(())
    }

    #[test]
    fn a_port_in_use_is_not_free() -> Result<()> {
        let [port] = free_ports()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        assert!(!is_free(port));
        drop(listener);
        assert!(is_free(port));
        Ok(())
    }
}
