//! The kernel's lists that form an observation.

use crate::{
    decode,
    encode::{self, Request},
};
use netlink_packet_route::RouteNetlinkMessage;
use routing_plan::{Errno, Family, Link, LinkAddr, Neighbor, Observed, Route, Rule};

/// The content of an observation besides links, addresses, rules and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// No further list.
    Nothing,
    /// All neighbor entries.
    Neighbors,
}

/// A list of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Links,
    Addresses(Family),
    Rules(Family),
    Routes(Family),
    Neighbors(Family),
}

/// Maximum reads of a list that changes during each read.
pub(crate) const DUMP_TRIES: u32 = 10;

/// The lists of an observation. Links come first, so that a link named in a later list was observed.
pub(crate) fn lists(with: With) -> impl Iterator<Item = List> {
    let families = || [Family::V4, Family::V6].into_iter();
    let neighbors = families().filter(move |_| with == With::Neighbors);
    [List::Links]
        .into_iter()
        .chain(families().map(List::Addresses))
        .chain(families().map(List::Rules))
        .chain(families().map(List::Routes))
        .chain(neighbors.map(List::Neighbors))
}

impl List {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Addresses(_) => "addresses",
            Self::Rules(_) => "rules",
            Self::Routes(_) => "routes",
            Self::Neighbors(_) => "neighbors",
        }
    }

    pub(crate) fn request(self) -> Request {
        match self {
            Self::Links => encode::dump_links(),
            Self::Addresses(family) => encode::dump_addresses(family),
            Self::Rules(family) => encode::dump_rules(family),
            Self::Routes(family) => encode::dump_routes(family),
            Self::Neighbors(family) => encode::dump_neighbors(family),
        }
    }

    /// True if the refusal means that the kernel does not have this list, as without IPv6.
    pub(crate) fn is_absent(self, refusal: Errno) -> bool {
        let v6 = match self {
            Self::Links => false,
            Self::Addresses(family)
            | Self::Rules(family)
            | Self::Routes(family)
            | Self::Neighbors(family) => family == Family::V6,
        };
        v6 && matches!(refusal, Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)
    }

    /// Adds an object if it belongs to this list. A kernel without a family answers with the objects of all other
    /// families; these are skipped, because they would be duplicates.
    pub(crate) fn add(self, observed: &mut Observed, object: &RouteNetlinkMessage) {
        match self {
            Self::Links => {
                observed.links.extend(link_in(object).map(|link| (link.index, link)));
            }
            Self::Addresses(family) => {
                let own = |a: &LinkAddr| Family::of(a.address.addr()) == family;
                observed.addresses.extend(address_in(object).filter(own));
            }
            Self::Rules(family) => {
                observed.rules.extend(rule_in(object).filter(|rule| rule.family == family));
            }
            Self::Routes(family) => {
                let own = |route: &Route| Family::of(route.dst.addr()) == family;
                observed.routes.extend(route_in(object).filter(own));
            }
            Self::Neighbors(family) => {
                let own = |n: &Neighbor| Family::of(n.address) == family;
                observed.neighbors.extend(neighbor_in(object).filter(own));
            }
        }
    }
}

pub(crate) fn link_in(message: &RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    Some(decode::link(message))
}

fn address_in(message: &RouteNetlinkMessage) -> Option<LinkAddr> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    decode::address(message)
}

fn rule_in(message: &RouteNetlinkMessage) -> Option<Rule> {
    let RouteNetlinkMessage::NewRule(message) = message else { return None };
    decode::rule(message)
}

fn route_in(message: &RouteNetlinkMessage) -> Option<Route> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    decode::route(message)
}

fn neighbor_in(message: &RouteNetlinkMessage) -> Option<Neighbor> {
    let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
    decode::neighbor(message)
}
