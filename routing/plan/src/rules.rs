//! A pod's own rules on the host.

use crate::{Rule, Selector};
use config_model::{TableId, registry};
use std::net::IpAddr;

/// The host's rules for a pod that uses no shared rule.
pub(crate) fn rules_of(address: IpAddr, table: TableId) -> Vec<Rule> {
    [to_rule(address)].into_iter().chain(from_rule(address, table)).collect()
}

/// A pod's own rule for packets to it: table main.
pub(crate) fn to_rule(address: IpAddr) -> Rule {
    Rule::ours(registry::PREF_TO_POD, Selector::to(address), TableId::MAIN)
}

/// A pod's own rule for packets from it: its ENI's table. `None` if that is table main.
pub(crate) fn from_rule(address: IpAddr, table: TableId) -> Option<Rule> {
    (table != TableId::MAIN)
        .then(|| Rule::ours(registry::PREF_FROM_POD, Selector::from(address), table))
}
