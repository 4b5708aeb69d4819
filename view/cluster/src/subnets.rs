//! The subnets of a cluster, from the counts of all daemons, with forecasts and remedies.

mod remedy;

use crate::forecast::{Forecast, Silence, forecast};
use serde::Serialize;
use std::collections::BTreeMap;
use view_node::{Pool, PoolSettings, Sample, Severity, Subnet, Trouble};
use view_text::counted;

/// A subnet that pods use or may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetState {
    pub id: String,
    pub zone: String,
    pub cidr: String,
    /// Addresses that EC2 can assign, free or not.
    pub total: u64,
    /// EC2's newest count of free addresses.
    pub available: u32,
    /// The age of that count.
    pub seconds_ago: u64,
    /// New ENIs of at least one node may use it.
    pub for_pods: bool,
    /// The nodes with an ENI there.
    pub nodes: u64,
    /// Addresses there that nodes have and no pod uses.
    pub free_on_nodes: u64,
    /// EC2 refused the last request for a prefix of at least one node.
    pub fragmented: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// The reason why there is no forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_forecast: Option<Silence>,
}

/// A daemon's counts, its settings and its pool, if they are known.
type Document<'a> = (&'a [Subnet], Option<&'a PoolSettings>, Option<&'a Pool>);

/// The subnets by id, and the problems with them.
pub(crate) fn subnets<'a>(
    documents: impl Iterator<Item = Document<'a>>,
) -> (Vec<SubnetState>, Vec<Trouble>) {
    let seen = Seen::of(documents);
    let states: Vec<SubnetState> = seen.subnets.values().filter_map(|it| it.state()).collect();
    let troubles = states.iter().filter_map(|state| trouble(state, &seen)).collect();
    (states, troubles)
}

/// The documents of all daemons by subnet.
#[derive(Debug, Default)]
struct Seen<'a> {
    subnets: BTreeMap<&'a str, SeenSubnet<'a>>,
}

#[derive(Debug, Default)]
struct SeenSubnet<'a> {
    counts: Vec<&'a Subnet>,
    /// The nodes with free addresses there: their settings and the number of these addresses.
    free: Vec<(&'a PoolSettings, u64)>,
    /// At least one node may create ENIs there and has fewer than its maximum, as far as this is known.
    may_grow: bool,
}

impl<'a> Seen<'a> {
    fn of(documents: impl Iterator<Item = Document<'a>>) -> Self {
        let mut seen = Self::default();
        for (subnets, settings, pool) in documents {
            for subnet in subnets {
                let of_subnet = seen.subnets.entry(&subnet.id).or_default();
                of_subnet.counts.push(subnet);
                of_subnet.may_grow |= subnet.for_pods && pool.is_none_or(may_grow);
            }
            if let Some(settings) = settings {
                for (subnet, free) in &settings.free_by_subnet {
                    let of_subnet = seen.subnets.entry(subnet).or_default();
                    of_subnet.free.push((settings, *free));
                }
            }
        }
        seen
    }

    /// The newest counts of the other subnets of the zone.
    fn others(&self, state: &SubnetState) -> impl Iterator<Item = &'a Subnet> {
        let newest = self.subnets.values().filter_map(SeenSubnet::newest);
        newest.filter(|it| it.zone == state.zone && it.id != state.id)
    }
}

impl<'a> SeenSubnet<'a> {
    fn newest(&self) -> Option<&'a Subnet> {
        self.counts.iter().copied().min_by_key(|count| count.seconds_ago)
    }

    /// `None` for a subnet without pods.
    fn state(&self) -> Option<SubnetState> {
        let any = |what: fn(&Subnet) -> bool| self.counts.iter().any(|it| what(it));
        let newest = self.newest().filter(|_| any(|it| it.for_pods || it.in_use))?;
        let samples: Vec<Sample> = self.counts.iter().flat_map(|it| &it.samples).copied().collect();
        let forecast = forecast(&samples, newest.total);
        let in_use = self.counts.iter().filter(|it| it.in_use).map(|_| 1_u64);
        Some(SubnetState {
            id: newest.id.clone(),
            zone: newest.zone.clone(),
            cidr: newest.cidr.clone(),
            total: newest.total,
            available: newest.available,
            seconds_ago: newest.seconds_ago,
            for_pods: any(|it| it.for_pods),
            nodes: in_use.sum(),
            free_on_nodes: self.free.iter().map(|(_, free)| free).sum(),
            fragmented: any(|it| it.fragmented),
            forecast: forecast.ok(),
            no_forecast: forecast.err(),
        })
    }
}

/// The maximum is 0 while it is unknown.
fn may_grow(pool: &Pool) -> bool {
    pool.max_enis == 0 || pool.enis < pool.max_enis
}

fn trouble(state: &SubnetState, seen: &Seen<'_>) -> Option<Trouble> {
    let forecast = state.forecast.filter(|it| it.full_in_seconds < SHOWN)?;
    let remedy = remedy::cheapest(state, &forecast, seen);
    let soon = forecast.full_in_seconds < SOON && !remedy.grows_elsewhere;
    let cause = format!(
        "{} of {} addresses {} free in {}; full in {} at this rate ({} per hour in the last {})",
        state.available,
        state.total,
        if state.available == 1 { "is" } else { "are" },
        state.zone,
        about(forecast.full_in_seconds),
        counted(forecast.per_hour, "address", "addresses"),
        about(forecast.over_seconds),
    );
    Some(Trouble {
        kind: "subnet_filling".to_owned(),
        severity: if soon { Severity::Trouble } else { Severity::Notice },
        since: None,
        object: state.id.clone(),
        cause,
        next_step: remedy.next_step,
    })
}

/// Formats a duration with the precision of an estimate.
pub(crate) fn about(seconds: u64) -> String {
    let rounded = |unit: u64| (seconds + unit / 2) / unit;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", rounded(60)),
        7200..172_800 => format!("{} h", rounded(3600)),
        _ => format!("{} days", rounded(86_400)),
    }
}

/// A subnet that is full within this time is a problem.
const SOON: u64 = 24 * 3600;
/// A later end is not shown.
const SHOWN: u64 = 7 * 86_400;

#[cfg(test)]
mod tests;
