//! Conversion of the simulated cloud to the desired fabric.

use crate::control::Profile;
use lab_cloud::{InstanceState, Rule, SecurityGroup, Truth, TruthEni, TruthInstance, TruthSubnet};
use lab_fabric::{
    DesiredFabric, EniSpec, GroupRule, GroupSpec, NicProfile, NodeSpec, Peer, Power, Protocol,
    Subnet, Vpc,
};
use std::{collections::BTreeMap, net::Ipv4Addr};

/// The subnets in the order in which the operator gave them. Their names are letters in that order. The truth lists
/// them by random ids.
pub(super) fn subnets(truth: &Truth) -> Vec<&TruthSubnet> {
    let mut subnets: Vec<_> = truth.subnets.iter().collect();
    subnets.sort_by(|a, b| a.name.cmp(&b.name));
    subnets
}

/// The facts of the VPC. EC2 reserves base + 2 and base + 3 of the first subnet: the Kubernetes API server answers
/// at base + 2 and EC2's API at base + 3.
pub(crate) fn vpc(truth: &Truth) -> Option<Vpc> {
    let first = subnets(truth).first()?.cidr;
    let subnets = truth.subnets.iter().map(|subnet| {
        let zone = subnet.availability_zone.clone();
        (subnet.id.clone(), Subnet { cidr: subnet.cidr, zone })
    });
    Some(Vpc {
        cidrs: truth.vpc_cidrs.clone(),
        cidrs_v6: truth.vpc_ipv6_cidrs.clone(),
        subnets: subnets.collect(),
        ec2_endpoint: Ipv4Addr::from(u32::from(first.network()) + 3),
        api_server: Some(Ipv4Addr::from(u32::from(first.network()) + 2)),
    })
}

/// Desired state of the fabric; instances without a profile are not of this lab.
pub(super) fn desired(truth: &Truth, profiles: &BTreeMap<String, Profile>) -> DesiredFabric {
    let mut desired = DesiredFabric::default();
    for instance in truth.instances.iter().filter(|i| i.state != InstanceState::Terminated) {
        let Some(&profile) = profiles.get(&instance.name) else { continue };
        desired.nodes.insert(instance.name.clone(), node(instance, profile));
        let enis = instance.enis.iter().map(|e| (e.id.clone(), eni(&instance.name, e)));
        desired.enis.extend(enis);
    }
    let groups = truth.security_groups.iter().map(|(id, of)| (id.clone(), group(of)));
    desired.groups = groups.collect();
    desired
}

fn node(instance: &TruthInstance, profile: Profile) -> NodeSpec {
    let primary = instance.enis.first().map_or(Ipv4Addr::UNSPECIFIED, |eni| eni.primary);
    let [a, b, c, d] = primary.octets();
    NodeSpec {
        hostname: format!("ip-{a}-{b}-{c}-{d}"),
        profile: match profile {
            Profile::Eth => NicProfile::EthN,
            Profile::Ens => NicProfile::EnsLateRename,
            Profile::NetworkManager => NicProfile::NetworkManager,
        },
        power: match instance.state {
            InstanceState::Running => Power::On,
            InstanceState::Pending
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown
            | InstanceState::Terminated => Power::Off,
        },
        boot: u64::from(instance.boots),
    }
}

fn eni(node: &str, eni: &TruthEni) -> EniSpec {
    EniSpec {
        node: node.to_owned(),
        card: eni.network_card_index,
        device: eni.device_index,
        mac: eni.mac,
        subnet: eni.subnet_id.clone(),
        primary: eni.primary,
        public: eni.public_ip,
        secondary: eni.secondary.iter().copied().collect(),
        prefixes: eni.prefixes.iter().copied().collect(),
        ipv6: eni.ipv6_addresses.clone(),
        prefixes_v6: eni.ipv6_prefixes.iter().copied().collect(),
        groups: eni.security_groups.iter().cloned().collect(),
        source_dest_check: eni.source_dest_check,
    }
}

fn group(group: &SecurityGroup) -> GroupSpec {
    GroupSpec {
        ingress: group.ingress.iter().map(rule).collect(),
        egress: group.egress.iter().map(rule).collect(),
    }
}

fn rule(rule: &Rule) -> GroupRule {
    // -1 is the lowest port as a range's start, the highest as its end.
    let port = |value: i32, all: u16| u16::try_from(value).unwrap_or(all);
    let ports = rule.ports.unwrap_or((-1, -1));
    let ports = (port(ports.0, 0), port(ports.1, u16::MAX));
    let any = |value: i32| u8::try_from(value).ok();
    let (kind, code) = rule.ports.map_or((None, None), |(kind, code)| (any(kind), any(code)));
    GroupRule {
        protocol: match rule.protocol {
            lab_cloud::Protocol::All => Protocol::All,
            lab_cloud::Protocol::Tcp => Protocol::Tcp { from: ports.0, to: ports.1 },
            lab_cloud::Protocol::Udp => Protocol::Udp { from: ports.0, to: ports.1 },
            lab_cloud::Protocol::Icmp => Protocol::Icmp { kind, code },
            lab_cloud::Protocol::Number(number) => Protocol::Number(number),
        },
        peer: match &rule.peer {
            lab_cloud::Peer::Cidr(cidr) => Peer::Cidr(*cidr),
            lab_cloud::Peer::Group(id) => Peer::Group(id.clone()),
            lab_cloud::Peer::Cidr6(cidr) => Peer::Cidr6(*cidr),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::Ipv4Net;

    #[test]
    fn minus_one_is_any_icmp_type_and_tcp_without_ports_is_all_of_them() {
        let all = Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0);
        let of = |protocol, ports| {
            rule(&Rule { protocol, ports, peer: lab_cloud::Peer::Cidr(all) }).protocol
        };
        let icmp = of(lab_cloud::Protocol::Icmp, Some((8, -1)));
        assert_eq!(icmp, Protocol::Icmp { kind: Some(8), code: None });
        let any = of(lab_cloud::Protocol::Icmp, None);
        assert_eq!(any, Protocol::Icmp { kind: None, code: None });
        let tcp = of(lab_cloud::Protocol::Tcp, None);
        assert_eq!(tcp, Protocol::Tcp { from: 0, to: u16::MAX });
        for open in [(-1, -1), (0, -1), (-1, 65535)] {
            let tcp = of(lab_cloud::Protocol::Tcp, Some(open));
            assert_eq!(tcp, Protocol::Tcp { from: 0, to: u16::MAX }, "{open:?}");
        }
        let udp = of(lab_cloud::Protocol::Udp, Some((53, 53)));
        assert_eq!(udp, Protocol::Udp { from: 53, to: 53 });
    }

    #[test]
    fn the_endpoint_is_in_the_operators_first_subnet_whatever_the_ids() {
        for seed in 0..8 {
            let cloud = lab_cloud::Cloud::new(lab_cloud::CloudSpec::two_zones(), seed);
            let truth = cloud.map(|mut cloud| cloud.truth(config_model::Time(0)));
            let endpoint = truth.ok().and_then(|truth| vpc(&truth)).map(|vpc| vpc.ec2_endpoint);
            assert_eq!(endpoint, Some(Ipv4Addr::new(10, 0, 0, 3)), "seed {seed}");
        }
    }
}
