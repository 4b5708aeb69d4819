//! The subnets of the node's zone in the documents.

use crate::view::View;
use config_model::Time;
use ipamd_core::{Family, SubnetView};
use view_node::{Sample, Subnet};

/// Subnets that the node uses or may use come first, and only they have samples.
pub(super) fn subnets(view: &View) -> Vec<Subnet> {
    let mut subnets: Vec<&SubnetView> = view.snapshot.subnets.iter().collect();
    subnets.sort_by_key(|it| (!it.for_pods && !it.in_use, u32::MAX - it.available));
    subnets.iter().take(MOST).map(|it| subnet(it, view.now)).collect()
}

fn subnet(subnet: &SubnetView, now: Time) -> Subnet {
    let ago = |at: Time| now.since(at).0 / 1000;
    let sampled = subnet.for_pods || subnet.in_use;
    let samples = subnet.samples.iter().filter(|_| sampled);
    Subnet {
        id: subnet.id.as_str().to_owned(),
        zone: subnet.zone.clone(),
        cidr: subnet.cidr.to_string(),
        total: subnet.total(),
        available: subnet.available,
        seconds_ago: ago(subnet.counted),
        for_pods: subnet.for_pods,
        excluded: subnet.excluded,
        in_use: subnet.in_use,
        fragmented: subnet.fragmented,
        samples: samples
            .map(|it| Sample { seconds_ago: ago(it.at), available: it.available })
            .collect(),
    }
}

/// Returns true if the daemon requests /28 prefixes.
pub(super) fn prefixes(view: &View) -> bool {
    let requested = view.targets.as_ref().is_some_and(|it| it.prefixes && it.family == Family::V4);
    requested && view.limits.as_ref().is_none_or(|limits| limits.prefixes)
}

/// A VPC can have hundreds of subnets in a zone.
const MOST: usize = 32;
