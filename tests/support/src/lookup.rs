//! Where the kernel would send a packet, worked out from an observation.

use config_model::{Mark, TableId};
use routing_plan::{Family, Observed, PodDesired, Route, Rule};
use std::net::IpAddr;

/// The route of a packet: rules in order, within a table the longest prefix, then the lowest
/// metric, then the first.
///
/// What netfilter does to the marks of packets from an address counts too, as with one that comes in.
pub fn lookup(observed: &Observed, from: IpAddr, to: IpAddr, mark: u32) -> Option<&Route> {
    lookup_incoming(observed, None, from, to, mark)
}

/// The same for one that came in by a link.
pub fn lookup_incoming<'a>(
    observed: &'a Observed,
    iif: Option<&str>,
    from: IpAddr,
    to: IpAddr,
    mark: u32,
) -> Option<&'a Route> {
    let mark = observed.marked.get(&from).map_or(mark, |set| mark & !set.mask | set.value);
    let fits = |rule: &&Rule| {
        let selector = &rule.selector;
        let bits = |wanted: Mark| mark & wanted.mask == wanted.value;
        rule.family == Family::of(to)
            && !selector.other
            && (selector.iif.is_none() || selector.iif.as_deref() == iif)
            && selector.protocol.is_none()
            && selector.src.is_none_or(|net| net.contains(&from))
            && selector.dst.is_none_or(|net| net.contains(&to))
            && selector.mark.is_none_or(bits)
    };
    observed.rules.iter().filter(fits).find_map(|rule| best(observed, rule.table, to))
}

fn best(observed: &Observed, table: TableId, to: IpAddr) -> Option<&Route> {
    let usable = |route: &&Route| {
        let up = |dev| observed.links.get(&dev).is_some_and(|link| link.up);
        route.table == table && route.dst.contains(&to) && route.dev.is_some_and(up)
    };
    let rank = |route: &&Route| (u8::MAX - route.dst.prefix_len(), route.metric);
    // The first of several that are equal: what `min_by_key` returns.
    observed.routes.iter().filter(usable).min_by_key(rank)
}

/// Whether packets reach the pod over its host veth, and its own leave by its ENI's table.
pub fn pod_is_connected(observed: &Observed, pod: &PodDesired, eni_mac: config_model::Mac) -> bool {
    let far = crate::node::far();
    let link = |route: &Route| route.dev.and_then(|dev| observed.links.get(&dev));
    let inwards = lookup(observed, far, pod.address, 0).and_then(link);
    let outwards = lookup(observed, pod.address, far, 0).and_then(link);
    inwards.is_some_and(|link| link.name == pod.veth.as_str())
        && outwards.is_some_and(|link| link.mac == Some(eni_mac))
}
