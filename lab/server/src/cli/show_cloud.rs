//! The cloud's parts for people.

use super::table::shown;
use crate::control::{BranchView, GroupView, IamView, InterfaceView, SubnetView};
use std::collections::BTreeMap;
use view_text::Table;

pub(super) fn subnets(subnets: &[SubnetView]) -> String {
    let head = ["subnet", "id", "addresses", "zone", "free", "prefixes", "taken", "tags"];
    let mut out = Table::new(&head);
    for subnet in subnets {
        let both = [Some(subnet.cidr.clone()), subnet.ipv6_cidr.clone()];
        out.row([
            subnet.name.clone(),
            subnet.id.clone(),
            both.into_iter().flatten().collect::<Vec<_>>().join(" "),
            subnet.zone.clone(),
            subnet.free.to_string(),
            subnet.free_prefixes.to_string(),
            subnet.taken.to_string(),
            tags(&subnet.tags),
        ]);
    }
    shown(&out)
}

/// All but the name, which is shown by itself.
fn tags(tags: &BTreeMap<String, String>) -> String {
    let shown = tags.iter().filter(|(key, _)| *key != "Name");
    shown.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

pub(super) fn enis(enis: &[InterfaceView]) -> String {
    let head = ["ENI", "kind", "status", "node", "place", "addresses", "groups", "description"];
    let mut out = Table::new(&head);
    for eni in enis {
        let place = match (eni.card, eni.device, eni.delete_on_termination) {
            (Some(card), Some(device), Some(true)) => format!("{card}:{device}"),
            (Some(card), Some(device), _) => format!("{card}:{device} (outlives it)"),
            _ => "-".to_owned(),
        };
        let first = eni.addresses.first().map(ToString::to_string).unwrap_or_default();
        let more = eni.addresses.len().saturating_sub(1) + eni.ipv6_addresses.len();
        out.row([
            eni.id.clone(),
            eni.kind.clone(),
            eni.status.clone(),
            eni.node.clone().unwrap_or_else(|| "-".to_owned()),
            place,
            format!("{first} +{more}, {} prefixes", eni.prefixes.len()),
            eni.groups.join(" "),
            eni.description.clone(),
        ]);
    }
    shown(&out)
}

pub(super) fn groups(groups: &[GroupView]) -> String {
    let mut out = Table::new(&["group", "id"]);
    for group in groups {
        out.row([&group.name, &group.id]);
    }
    shown(&out)
}

pub(super) fn iam(views: &[IamView]) -> String {
    let denied: Vec<String> = views
        .iter()
        .filter(|view| !view.deny.is_empty())
        .map(|view| format!("{} may not: {}", view.role, view.deny.join(", ")))
        .collect();
    if denied.is_empty() { "everything is allowed".to_owned() } else { denied.join("\n") }
}

pub(super) fn branches(branches: &[BranchView]) -> String {
    if branches.is_empty() {
        return "no branches".to_owned();
    }
    let mut out = Table::new(&["pod", "node", "vpc.amazonaws.com/pod-eni"]);
    for branch in branches {
        out.row([
            format!("{}/{}", branch.namespace, branch.name),
            branch.node.clone(),
            branch.annotation.clone().unwrap_or_else(|| "(waits for the trunk)".to_owned()),
        ]);
    }
    shown(&out)
}
