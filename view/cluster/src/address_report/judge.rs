//! The faults: leaks, addresses in use twice, addresses without a record, fragmented subnets.

use super::{AddressData, SubnetUse};
use crate::{
    objects::{Node, Pod},
    status_report::problem::trouble,
    subnets::about,
};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv6Addr},
};
use view_node::{Addresses, Eni, Trouble, UsedAddress};
use view_text::counted;

type Answered<'a> = BTreeMap<&'a str, &'a Addresses>;

pub(super) fn findings(
    data: &AddressData,
    answered: &Answered<'_>,
    subnets: &[SubnetUse],
) -> Vec<Trouble> {
    let mut found: Vec<Trouble> = subnets.iter().filter_map(fragmented).collect();
    found.extend(blocks_twice(answered));
    for (node, addresses) in answered {
        found.extend(addresses.enis.iter().flat_map(|eni| lost(node, eni)));
        found.extend(addresses.used.iter().filter_map(|it| stuck(node, it)));
    }
    found.extend(assigned_twice(answered));
    if let Some(pods) = &data.pods {
        let pods: Vec<&Pod> = pods.iter().filter(|pod| has_address(pod)).collect();
        found.extend(pods_twice(&pods, data.nodes.as_deref()));
        found.extend(leaks(&pods, answered));
        found.extend(unrecorded(&pods, answered));
    }
    found
}

/// Returns true if the pod needs an address of its own.
fn has_address(pod: &Pod) -> bool {
    let is_over = ["Succeeded", "Failed"].contains(&pod.status.phase.as_str());
    !pod.spec.host_network && !is_over
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name)
}

pub(super) fn is_in(cidr: &str, address: IpAddr) -> bool {
    cidr.parse::<IpNet>().is_ok_and(|net| net.contains(&address))
}

pub(super) fn holds(eni: &Eni, address: IpAddr) -> bool {
    eni.blocks.iter().any(|block| is_in(block, address))
}

/// A subnet with free addresses and without a whole prefix, if a node there requests prefixes.
fn fragmented(subnet: &SubnetUse) -> Option<Trouble> {
    let available = subnet.count?.available;
    let none_left = subnet.free_prefixes_at_most == Some(0);
    if !subnet.prefixes || available < 16 || !(subnet.fragmented || none_left) {
        return None;
    }
    let cause = if subnet.fragmented {
        format!(
            "EC2 has no whole /28 there, though {available} addresses are free: nodes get single addresses"
        )
    } else {
        format!(
            "no whole /28 is left, though {available} addresses are free: nodes will get single addresses"
        )
    };
    let next = "reserve a range for prefixes (aws ec2 create-subnet-cidr-reservation --reservation-type prefix), \
                or use another subnet for them";
    Some(trouble("subnet_fragmented", &subnet.id, &cause, next))
}

/// Blocks and ENIs that two books have.
fn blocks_twice(answered: &Answered<'_>) -> Vec<Trouble> {
    let mut owners: BTreeMap<(IpAddr, IpAddr), (&str, &str)> = BTreeMap::new();
    let mut found = Vec::new();
    let enis = answered.iter().flat_map(|(node, it)| it.enis.iter().map(move |eni| (*node, eni)));
    let blocks =
        enis.flat_map(|(node, eni)| eni.blocks.iter().map(move |block| (node, eni, block)));
    for (node, eni, block) in blocks {
        let Ok(net) = block.parse::<IpNet>() else { continue };
        let range = (net.network(), net.broadcast());
        // Blocks in the map do not overlap, so only the neighbor below can.
        let below = owners.range(..=(range.1, LAST)).next_back();
        match below.filter(|((_, last), _)| *last >= range.0) {
            Some((_, (other, other_eni))) => found.push(trouble(
                "block_twice",
                block,
                &format!("{other} ({other_eni}) and {node} ({}) have it", eni.id),
                "EC2 assigns a block once: compare with aws ec2 describe-network-interfaces. The wrong daemon corrects \
                 its book with its next observation; if it does not, restart it",
            )),
            None => drop(owners.insert(range, (node, &eni.id))),
        }
    }
    found
}

fn lost(node: &str, eni: &Eni) -> Vec<Trouble> {
    let next = "delete the pods that use it, and find the caller in CloudTrail";
    let missing = eni.missing.then(|| {
        let used = counted(eni.assigned, "address of it is", "addresses of it are");
        let cause = format!("{node} lost it, and {used} in use");
        trouble("eni_missing", &eni.id, &cause, next)
    });
    let blocks = eni.lost.iter().map(|block| {
        let cause = format!("EC2 took it from {node} ({}), and a pod uses it", eni.id);
        trouble("block_lost", block, &cause, next)
    });
    missing.into_iter().chain(blocks).collect()
}

/// A cooling address that the kernel still has in use.
fn stuck(node: &str, used: &UsedAddress) -> Option<Trouble> {
    let over = used.stuck_seconds.filter(|over| *over > STUCK)?;
    let cause = format!(
        "its cooldown on {node} ended {} ago, but rules or routes of the kernel still have it",
        about(over)
    );
    let next = format!(
        "run ferrule doctor on {node}, and ip rule and ip route show table all for the address"
    );
    Some(trouble("address_stuck", &used.address, &cause, &next))
}

/// Addresses that two books, or one book twice, assign to pods.
fn assigned_twice(answered: &Answered<'_>) -> Vec<Trouble> {
    let mut holders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (node, addresses) in answered {
        for (used, pod) in addresses.used.iter().filter_map(|it| Some((it, it.pod.as_ref()?))) {
            let holder = format!("{}/{} on {node}", pod.namespace, pod.name);
            holders.entry(&used.address).or_default().push(holder);
        }
    }
    twice(holders, "assigned to")
}

/// Addresses in the status of two pods. The status of a pod can be old if its node is gone or not ready.
fn pods_twice(pods: &[&Pod], nodes: Option<&[Node]>) -> Vec<Trouble> {
    let ready = nodes.map(|nodes| {
        let ready = nodes.iter().filter(|node| {
            node.condition("Ready").is_some_and(|condition| condition.status == "True")
        });
        ready.map(|node| node.metadata.name.as_str()).collect::<BTreeSet<_>>()
    });
    let on_ready = |pod: &&&Pod| {
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        ready.as_ref().is_none_or(|ready| ready.contains(node))
    };
    let mut holders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for pod in pods.iter().filter(on_ready) {
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        for ip in &pod.status.pod_ips {
            holders.entry(&ip.ip).or_default().push(format!("{} on {node}", name(pod)));
        }
    }
    twice(holders, "in the status of")
}

fn twice(holders: BTreeMap<&str, Vec<String>>, what: &str) -> Vec<Trouble> {
    let several = holders.into_iter().filter(|(_, holders)| holders.len() > 1);
    let each = several.map(|(address, holders)| {
        let cause = format!("it is {what} {}", holders.join(" and "));
        trouble(
            "address_twice",
            address,
            &cause,
            "delete all but one of these pods; each gets another address",
        )
    });
    each.collect()
}

/// Addresses of pods that do not exist, or that run on another node.
fn leaks(pods: &[&Pod], answered: &Answered<'_>) -> Vec<Trouble> {
    let known: BTreeMap<(&str, &str), &Pod> = pods
        .iter()
        .map(|pod| ((pod.metadata.namespace.as_str(), pod.metadata.name.as_str()), *pod))
        .collect();
    let mut found = Vec::new();
    for (node, addresses) in answered {
        for (used, holder) in addresses.used.iter().filter_map(|it| Some((it, it.pod.as_ref()?))) {
            let pod = known.get(&(holder.namespace.as_str(), holder.name.as_str()));
            let why = match pod {
                None => "which does not exist or has ended".to_owned(),
                Some(pod) => match pod.spec.node_name.as_deref() {
                    Some(other) if other != *node => format!("which is on {other}"),
                    Some(_) | None => continue,
                },
            };
            let cause = format!(
                "{node} has it assigned to {}/{} for {}, {why}",
                holder.namespace,
                holder.name,
                about(used.seconds)
            );
            found.push(trouble(
                "address_leaked",
                &used.address,
                &cause,
                &leak_step(node, &holder.name),
            ));
        }
    }
    found
}

fn leak_step(node: &str, pod: &str) -> String {
    format!(
        "repeat the check if the pod was just deleted; otherwise on {node}: crictl pods --name {pod}, and crictl rmp -f for \
         a sandbox that is left; without one, the runtime's next CNI GC or a drain and reboot releases the address"
    )
}

/// Addresses that running pods use, though their node's book has them free, cooling or assigned to another pod. A pod that
/// ends can have released its address already.
fn unrecorded(pods: &[&Pod], answered: &Answered<'_>) -> Vec<Trouble> {
    let stays =
        |pod: &&&Pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
    let mut found = Vec::new();
    for pod in pods.iter().filter(stays) {
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        let Some(addresses) = answered.get(node).filter(|it| it.phase == SERVES) else { continue };
        let Some((text, address)) = first_address(pod) else { continue };
        let of_node = addresses.enis.iter().any(|eni| eni.managed && holds(eni, address));
        let used = addresses.used.iter().find(|it| it.address.parse() == Ok(address));
        let actual = match used.map(|used| used.pod.as_ref()) {
            Some(Some(holder)) if is_of(pod, &holder.namespace, &holder.name) => continue,
            Some(Some(holder)) => format!("assigned to {}/{}", holder.namespace, holder.name),
            Some(None) => "in cooldown".to_owned(),
            None if of_node => "free".to_owned(),
            // It is an address of a branch ENI or of another network.
            None => continue,
        };
        let kind =
            if actual.starts_with("assigned") { "address_twice" } else { "address_unrecorded" };
        let cause = format!("{} uses it, but the daemon of {node} has it {actual}", name(pod));
        found.push(trouble(kind, text, &cause, "delete that pod; it gets another address"));
    }
    found
}

fn first_address(pod: &Pod) -> Option<(&str, IpAddr)> {
    let first = &pod.status.pod_ips.first()?.ip;
    Some((first, first.parse().ok()?))
}

fn is_of(pod: &Pod, namespace: &str, name: &str) -> bool {
    pod.metadata.namespace == namespace && pod.metadata.name == name
}

/// The [`Addresses::phase`] of a daemon that serves.
const SERVES: &str = "running";
/// The last of all addresses. IPv4 is before IPv6.
const LAST: IpAddr =
    IpAddr::V6(Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff));
/// In seconds. The repair pass needs a moment for rules and routes that are left.
const STUCK: u64 = 600;
