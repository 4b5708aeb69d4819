//! Load balancers and the client outside the VPC for people.

use super::table::shown;
use crate::control::{BalancerView, ClientView, Listener, TargetView};
use lab_cloud::{HealthProbe, TargetState};
use lab_fabric::Transport;
use std::net::Ipv4Addr;
use view_text::Table;

pub(super) fn balancers(all: &[BalancerView]) -> String {
    if all.is_empty() {
        return "no load balancers".to_owned();
    }
    let mut out = Table::new(&["load balancer", "address", "listeners", "check", "targets"]);
    for view in all {
        out.row([
            view.name.clone(),
            join(
                [view.address.to_string()]
                    .into_iter()
                    .chain(view.address_v6.map(|of| of.to_string())),
            ),
            join(view.listeners.iter().map(listener)),
            probe(&view.check.probe),
            join(view.targets.iter().map(target)),
        ]);
    }
    shown(&out)
}

pub(super) fn client(view: &ClientView) -> String {
    let addresses = join(view.addresses.iter().map(ToString::to_string));
    let mut out = Table::new(&["node", "public address"]);
    for node in &view.nodes {
        let address = node.address.as_ref().map_or_else(|| "-".to_owned(), Ipv4Addr::to_string);
        out.row([node.node.clone(), address]);
    }
    let nodes = if view.nodes.is_empty() { "no nodes".to_owned() } else { shown(&out) };
    format!("client at {addresses}; programs can also bind {}\n\n{nodes}", view.further)
}

fn listener(listener: &Listener) -> String {
    let transport = match listener.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    format!("{}:{}/{transport}", listener.port, listener.target_port)
}

fn probe(probe: &HealthProbe) -> String {
    match probe {
        HealthProbe::Tcp { port } => format!("tcp:{port}"),
        HealthProbe::Http { port, path } => format!("http:{port}{path}"),
    }
}

fn target(target: &TargetView) -> String {
    let state = match target.state {
        TargetState::Initial => "initial",
        TargetState::Healthy => "healthy",
        TargetState::Unhealthy => "unhealthy",
        TargetState::Draining => "draining",
    };
    let open = target.receives && target.state == TargetState::Unhealthy;
    format!("{} ({state}{})", target.target, if open { ", gets connections" } else { "" })
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" ")
}
