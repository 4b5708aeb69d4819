//! The cloud model's truth, read as the fabric's wish.

use super::{
    EniSpec, GroupRule, GroupSpec, NicProfile, NodeSpec, Peer, Power, Protocol, Subnet, Vpc, Wanted,
};
use lab_cloud::{InstanceState, Truth, TruthEni, TruthInstance};
use std::net::Ipv4Addr;

impl Vpc {
    /// The VPC that the model holds.
    ///
    /// EC2's API answers at base + 3 of the first subnet, which EC2 keeps for itself in every subnet.
    ///
    /// `None` when it has no subnet.
    pub fn of(truth: &Truth) -> Option<Self> {
        let subnets = truth.subnets.iter().map(|subnet| {
            let zone = subnet.availability_zone.clone();
            (subnet.id.clone(), Subnet { cidr: subnet.cidr, zone })
        });
        let base = u32::from(truth.subnets.first()?.cidr.network());
        Some(Self {
            cidrs: truth.vpc_cidrs.clone(),
            subnets: subnets.collect(),
            ec2_endpoint: Ipv4Addr::from(base.wrapping_add(3)),
        })
    }
}

impl Wanted {
    /// What must exist for the model to be true; `profile` says how each instance's system treats
    /// its ENIs. Nodes bear the names of their instances, which must therefore differ.
    pub fn of(truth: &Truth, profile: impl Fn(&TruthInstance) -> NicProfile) -> Self {
        let mut wanted = Self::default();
        for instance in &truth.instances {
            let Some(power) = power(instance.state) else { continue };
            let enis = instance.enis.iter();
            wanted
                .enis
                .extend(enis.map(|eni| (eni.id.clone(), EniSpec::of(&instance.name, eni))));
            let spec = NodeSpec {
                hostname: hostname(instance),
                profile: profile(instance),
                power,
                boot: instance.boots.into(),
            };
            wanted.nodes.insert(instance.name.clone(), spec);
        }
        for (id, group) in &truth.security_groups {
            let rules = |rules: &[lab_cloud::Rule]| rules.iter().map(GroupRule::of).collect();
            let spec = GroupSpec { ingress: rules(&group.ingress), egress: rules(&group.egress) };
            wanted.groups.insert(id.clone(), spec);
        }
        wanted
    }
}

/// `None` when the instance is gone for good.
fn power(state: InstanceState) -> Option<Power> {
    match state {
        InstanceState::Running => Some(Power::On),
        InstanceState::Pending | InstanceState::Stopping | InstanceState::Stopped => {
            Some(Power::Off)
        }
        InstanceState::ShuttingDown | InstanceState::Terminated => None,
    }
}

/// EC2's private host name: the primary address with dashes.
fn hostname(instance: &TruthInstance) -> String {
    let primary = instance.enis.iter().find(|eni| {
        eni.network_card_index.0 == 0 && eni.device_index.0 == 0
    });
    primary.map_or_else(
        || instance.name.clone(),
        |eni| format!("ip-{}", eni.primary.to_string().replace('.', "-")),
    )
}

impl EniSpec {
    fn of(node: &str, eni: &TruthEni) -> Self {
        Self {
            node: node.to_owned(),
            card: eni.network_card_index,
            device: eni.device_index,
            mac: eni.mac,
            subnet: eni.subnet_id.clone(),
            primary: eni.primary,
            public: eni.public_ip,
            secondary: eni.secondary.iter().copied().collect(),
            prefixes: eni.prefixes.iter().copied().collect(),
            groups: eni.security_groups.iter().cloned().collect(),
            source_dest_check: eni.source_dest_check,
        }
    }
}

impl GroupRule {
    fn of(rule: &lab_cloud::Rule) -> Self {
        let peer = match &rule.peer {
            lab_cloud::Peer::Cidr(cidr) => Peer::Cidr(*cidr),
            lab_cloud::Peer::Group(group) => Peer::Group(group.clone()),
        };
        Self { protocol: protocol(rule.protocol, rule.ports), peer }
    }
}

fn protocol(protocol: lab_cloud::Protocol, ports: Option<(i32, i32)>) -> Protocol {
    let port = |port: i32, any: u16| u16::try_from(port).unwrap_or(any);
    let (from, to) = ports.map_or((0, u16::MAX), |(from, to)| (port(from, 0), port(to, u16::MAX)));
    // -1 is any type or code.
    let (kind, code) = ports.map_or((None, None), |(kind, code)| {
        (u8::try_from(kind).ok(), u8::try_from(code).ok())
    });
    match protocol {
        lab_cloud::Protocol::All => Protocol::All,
        lab_cloud::Protocol::Tcp => Protocol::Tcp { from, to },
        lab_cloud::Protocol::Udp => Protocol::Udp { from, to },
        lab_cloud::Protocol::Icmp => Protocol::Icmp { kind, code },
        lab_cloud::Protocol::Number(number) => Protocol::Number(number),
    }
}
