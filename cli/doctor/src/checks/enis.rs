//! The node's ENIs: their links, their MTUs and their routes in table main.

use super::Check;
use crate::{Finding, LinkView, Observation, Observed, Routing, Severity};
use config_model::TableId;

/// Returns the links of ENIs: those that the metadata service lists. Without its answer, hardware links and the links
/// of default routes.
pub(super) fn enis<'a>(seen: &Observation, routing: &'a Routing) -> Vec<&'a LinkView> {
    let is_eni = |link: &&LinkView| match &seen.imds {
        Ok(metadata) => link.mac.is_some_and(|mac| metadata.enis.contains(&mac)),
        Err(_) => !link.of_pod && (is_hardware(link) || has_default(routing, link)),
    };
    routing.links.iter().filter(is_eni).collect()
}

pub(super) fn primary<'a>(seen: &Observation, routing: &'a Routing) -> Option<&'a LinkView> {
    let named = seen.imds.as_ref().ok().and_then(|metadata| metadata.primary);
    if let Some(mac) = named {
        return routing.links.iter().find(|link| link.mac == Some(mac));
    }
    let defaults = routing.routes.iter().filter(|route| {
        route.table == TableId::MAIN && route.dst.prefix_len() == 0 && route.gateway.is_some()
    });
    let first = defaults.min_by_key(|route| (route.metric, route.dev))?.dev?;
    routing.links.iter().find(|link| link.index == first)
}

pub(super) fn main_routes(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let primary = primary(seen, routing).ok_or("table main has no default route over any link")?;
    let mut findings = Vec::new();
    for eni in enis(seen, routing).into_iter().filter(|eni| eni.index != primary.index) {
        let over = routing.routes.iter().filter(|route| {
            let link_local = route.dst.to_string().starts_with("fe80:") || is_multicast(route.dst);
            route.table == TableId::MAIN && route.dev == Some(eni.index) && !link_local
        });
        for route in over {
            let default = route.dst.prefix_len() == 0;
            let severity = if default { Severity::Fault } else { Severity::Warning };
            let what = if default { "default".to_owned() } else { route.dst.to_string() };
            let by = maker(route.protocol);
            findings.push(Check::MainRoutes.found(
                severity,
                &eni.name,
                format!("table main has the route {what} over the secondary ENI {}{by}", eni.name),
                "the node's own packets and those of pods of the primary ENI leave by an ENI that \
                 does not have their address, and the VPC drops them",
                format!(
                    "ip route del {what} dev {} table main, and exclude this link from the \
                     program that created the route: UseRoutes=no and UseGateway=no, or Unmanaged=yes, in systemd-networkd; \
                     never-default=yes, or unmanaged-devices, in NetworkManager",
                    eni.name
                ),
            ));
        }
    }
    Ok(findings)
}

pub(super) fn mtu(seen: &Observation) -> Observed<Vec<Finding>> {
    let routing = seen.routing.as_ref().map_err(String::clone)?;
    let enis = enis(seen, routing);
    if enis.is_empty() {
        return Err("cannot find the node's ENIs: no link is known to be one".to_owned());
    }
    let wanted = seen.eni_mtu;
    let mut findings: Vec<Finding> = enis
        .iter()
        .filter(|eni| eni.mtu != wanted)
        .map(|eni| {
            let name = &eni.name;
            Check::Mtu.found(
                Severity::Warning,
                name,
                format!("{name} has MTU {} instead of {wanted}", eni.mtu),
                "large packets between pods on ENIs of different MTU are dropped or fragmented; small \
                 ones pass",
                format!("ip link set {name} mtu {wanted}, or set AWS_VPC_ENI_MTU to {}", eni.mtu),
            )
        })
        .collect();
    let smallest = enis.iter().map(|eni| eni.mtu).min().unwrap_or(wanted);
    findings.extend(routing.links.iter().filter(|l| l.of_pod && l.mtu > smallest).map(|veth| {
        Check::Mtu.found(
            Severity::Warning,
            &veth.name,
            format!("{} has MTU {}, more than the ENIs' {smallest}", veth.name, veth.mtu),
            "the pod's largest packets do not fit an ENI; its large transfers hang where ICMP is \
             blocked",
            format!("set POD_MTU to {smallest} or less, and recreate the pod"),
        )
    }));
    Ok(findings)
}

fn is_hardware(link: &LinkView) -> bool {
    // Loopback also has an address: all zeros.
    link.hardware && link.mac.is_some_and(|mac| mac.0 != [0; 6])
}

fn has_default(routing: &Routing, link: &LinkView) -> bool {
    routing.routes.iter().any(|route| {
        route.dst.prefix_len() == 0 && route.gateway.is_some() && route.dev == Some(link.index)
    })
}

fn is_multicast(net: ipnet::IpNet) -> bool {
    net.addr().is_multicast()
}

/// `RTPROT_DHCP`, `RTPROT_RA`, `RTPROT_KERNEL`.
fn maker(protocol: u8) -> &'static str {
    match protocol {
        16 => ", created by a DHCP client",
        9 => ", created by a router advertisement",
        2 => ", created by the kernel for an address",
        _ => "",
    }
}
