//! The cheapest remedy for a subnet that fills.

use super::{Seen, SubnetState, about};
use crate::forecast::Forecast;
use view_node::PoolSettings;
use view_text::counted;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remedy {
    pub(super) next_step: String,
    /// New ENIs already use another subnet with more addresses.
    pub(super) grows_elsewhere: bool,
}

/// In order of cost: nothing, a setting, a tag, a new subnet.
pub(super) fn cheapest(state: &SubnetState, forecast: &Forecast, seen: &Seen<'_>) -> Remedy {
    if let Some(next_step) = elsewhere(state, forecast, seen) {
        return Remedy { next_step, grows_elsewhere: true };
    }
    let next_step = fewer_warm(state, forecast, seen)
        .or_else(|| tag(state, seen))
        .unwrap_or_else(|| new_subnet(state, seen));
    Remedy { next_step, grows_elsewhere: false }
}

/// Another subnet helps if it has the addresses of one more day, and a node can have one more ENI there.
fn elsewhere(state: &SubnetState, forecast: &Forecast, seen: &Seen<'_>) -> Option<String> {
    let enough = u64::from(state.available).saturating_add(forecast.per_hour.saturating_mul(DAY));
    let may_grow = |id: &str| seen.subnets.get(id).is_some_and(|it| it.may_grow);
    let other = seen
        .others(state)
        .filter(|it| it.for_pods && u64::from(it.available) >= enough && may_grow(&it.id))
        .max_by_key(|it| it.available)?;
    Some(format!(
        "none, as long as nodes can have more ENIs: new ENIs are created in {}, which has {}",
        other.id,
        counted(other.available, "free address", "free addresses")
    ))
}

/// The nodes' free addresses above [`WARM`], if they are a substantial part of the free ones.
fn fewer_warm(state: &SubnetState, forecast: &Forecast, seen: &Seen<'_>) -> Option<String> {
    let of_subnet = seen.subnets.get(state.id.as_str())?;
    let surplus: u64 = of_subnet.free.iter().map(|(settings, free)| surplus(settings, *free)).sum();
    if surplus == 0 || surplus * 4 < u64::from(state.available) {
        return None;
    }
    let gained = surplus.saturating_mul(3600) / forecast.per_hour.max(1);
    Some(format!(
        "set WARM_IP_TARGET={WARM}, and MINIMUM_IP_TARGET to the usual number of pods per node: nodes have {} \
         there, of which about {} to the subnet ({} more at this rate)",
        counted(state.free_on_nodes, "free address", "free addresses"),
        counted(surplus, "returns", "return"),
        about(gained)
    ))
}

pub(super) fn surplus(settings: &PoolSettings, free: u64) -> u64 {
    let above = free.saturating_sub(WARM);
    match settings.ips {
        Some(ips) if (1..=WARM).contains(&u64::from(ips)) => 0,
        // Only whole prefixes return.
        Some(_) | None if settings.prefixes => above - above % PREFIX,
        Some(_) | None => above,
    }
}

fn tag(state: &SubnetState, seen: &Seen<'_>) -> Option<String> {
    if custom_networking(state, seen) {
        return None;
    }
    let other = seen
        .others(state)
        .filter(|it| !it.for_pods && !it.excluded && it.available > state.available)
        .max_by_key(|it| it.available)?;
    Some(format!(
        "tag {} kubernetes.io/role/cni=1 if pods may use it: it is in the same zone and has {}",
        other.id,
        counted(other.available, "free address", "free addresses")
    ))
}

fn new_subnet(state: &SubnetState, seen: &Seen<'_>) -> String {
    let zone = &state.zone;
    let range = "add a secondary CIDR to the VPC if its ranges are used up";
    if custom_networking(state, seen) {
        format!("create a larger subnet in {zone} and name it in the nodes' ENIConfig; {range}")
    } else {
        format!("create a subnet in {zone} and tag it kubernetes.io/role/cni=1; {range}")
    }
}

fn custom_networking(state: &SubnetState, seen: &Seen<'_>) -> bool {
    let of_subnet = seen.subnets.get(state.id.as_str());
    of_subnet.is_some_and(|it| it.free.iter().any(|(settings, _)| settings.custom_networking))
}

/// In hours.
const DAY: u64 = 24;
/// The suggested `WARM_IP_TARGET`.
const WARM: u64 = 5;
/// The addresses of a prefix.
const PREFIX: u64 = 16;
