//! Arguments of the verbs for load balancers and for the client outside the VPC.

use super::duration::{duration, millis};
use crate::control::{BalancerSpec, Listener};
use clap::{Args, Subcommand};
use config_model::Span;
use lab_cloud::{HealthCheck, HealthProbe};
use lab_fabric::Transport;
use std::time::Duration;

/// Operations on network load balancers.
#[derive(Debug, Subcommand)]
pub enum NlbVerb {
    /// Create a load balancer with an address outside the VPC. Its targets receive the addresses of clients.
    Add(NlbArgs),
    /// List all load balancers with their targets.
    List,
    /// Remove a load balancer.
    Remove {
        /// Name of the load balancer.
        nlb: String,
    },
    /// Add targets. All targets of a load balancer are nodes, or all are addresses.
    Register {
        /// Name of the load balancer.
        nlb: String,
        /// Names of nodes, such as node1, or addresses.
        #[arg(required = true)]
        targets: Vec<String>,
    },
    /// Give targets no new connections. Open connections continue, and the target stays listed for the deregistration
    /// delay.
    Deregister {
        /// Name of the load balancer.
        nlb: String,
        /// Names of nodes, such as node1, or addresses.
        #[arg(required = true)]
        targets: Vec<String>,
    },
}

/// Properties of a new load balancer.
#[derive(Args, Debug)]
pub struct NlbArgs {
    /// Name of the load balancer.
    nlb: String,
    /// Port of the load balancer, and node port or port of targets that are addresses, such as 80:30080 or 53:30053/udp; repeatable.
    #[arg(long = "listener", value_name = "PORT:NODEPORT[/udp]", value_parser = listener, required = true)]
    listeners: Vec<Listener>,
    /// Health check: tcp, tcp:PORT or http:PORT/PATH, such as http:32000/healthz for a health check node port.
    /// Without a port, the second port of the first listener.
    #[arg(long, value_name = "CHECK", value_parser = check, default_value = "tcp")]
    check: CheckArg,
    /// Target: a node, or an address in the VPC, such as that of a pod; repeatable. Default: all nodes.
    #[arg(long = "target", value_name = "NODE|ADDRESS")]
    targets: Vec<String>,
    /// Time between two checks of a target.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    interval: Duration,
    /// Longest wait for an answer to a check; default: the interval.
    #[arg(long, value_parser = duration, value_name = "TIME")]
    timeout: Option<Duration>,
    /// Number of good answers in a row that make a target healthy.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    healthy: u32,
    /// Number of failures in a row that make a target unhealthy.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    unhealthy: u32,
    /// Time for which a deregistered target stays listed as draining.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "300s")]
    deregistration_delay: Duration,
}

impl NlbArgs {
    pub(super) fn spec(&self) -> BalancerSpec {
        let first = self.listeners.first().map_or(0, |listener| listener.target_port);
        let probe = match &self.check {
            CheckArg::Tcp(port) => HealthProbe::Tcp { port: port.unwrap_or(first) },
            CheckArg::Http(port, path) => HealthProbe::Http { port: *port, path: path.clone() },
        };
        BalancerSpec {
            name: self.nlb.clone(),
            listeners: self.listeners.clone(),
            check: HealthCheck {
                probe,
                interval: Span(millis(self.interval)),
                timeout: Span(millis(self.timeout.unwrap_or(self.interval))),
                healthy: self.healthy,
                unhealthy: self.unhealthy,
            },
            deregistration_delay: Span(millis(self.deregistration_delay)),
            targets: self.targets.clone(),
        }
    }
}

/// A health check as it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CheckArg {
    Tcp(Option<u16>),
    Http(u16, String),
}

/// Operations of a client outside the VPC.
#[derive(Debug, Subcommand)]
pub enum ClientVerb {
    /// Show the client's addresses and the public address of each node.
    Show,
    /// Run a command in the client's network namespace, such as a shell.
    Exec {
        /// Command line, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

fn listener(text: &str) -> Result<Listener, String> {
    let form = || format!("{text:?} is not of the form 80:30080 or 53:30053/udp");
    let (ports, transport) = match text.split_once('/') {
        None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Transport::Tcp),
        Some((ports, "udp")) => (ports, Transport::Udp),
        Some(_) => return Err(form()),
    };
    let (port, target_port) = ports.split_once(':').ok_or_else(form)?;
    let number = |text: &str| text.parse().map_err(|_| form());
    Ok(Listener { port: number(port)?, target_port: number(target_port)?, transport })
}

fn check(text: &str) -> Result<CheckArg, String> {
    let form = || format!("{text:?} is not of the form tcp, tcp:PORT or http:PORT/PATH");
    if text == "tcp" {
        return Ok(CheckArg::Tcp(None));
    }
    let (kind, rest) = text.split_once(':').ok_or_else(form)?;
    let port_end = rest.find('/').unwrap_or(rest.len());
    let (port, path) = rest.split_at(port_end);
    let port = port.parse().map_err(|_| form())?;
    match (kind, path) {
        ("tcp", "") => Ok(CheckArg::Tcp(Some(port))),
        ("http", "") => Ok(CheckArg::Http(port, "/".to_owned())),
        ("http", path) => Ok(CheckArg::Http(port, path.to_owned())),
        _ => Err(form()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_has_two_ports_and_perhaps_a_transport() {
        let of = |port, target_port, transport| Ok(Listener { port, target_port, transport });
        assert_eq!(listener("80:30080"), of(80, 30_080, Transport::Tcp));
        assert_eq!(listener("80:30080/tcp"), of(80, 30_080, Transport::Tcp));
        assert_eq!(listener("53:30053/udp"), of(53, 30_053, Transport::Udp));
        for bad in ["", "80", "80:", "80:70000", "80:30080/sctp", "a:b"] {
            assert!(listener(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_health_check_is_a_connection_or_a_request() {
        assert_eq!(check("tcp"), Ok(CheckArg::Tcp(None)));
        assert_eq!(check("tcp:10256"), Ok(CheckArg::Tcp(Some(10_256))));
        assert_eq!(check("http:32000/healthz"), Ok(CheckArg::Http(32_000, "/healthz".to_owned())));
        assert_eq!(check("http:32000"), Ok(CheckArg::Http(32_000, "/".to_owned())));
        for bad in ["", "http", "tcp:1/x", "https:1/x", "http:x/y"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
