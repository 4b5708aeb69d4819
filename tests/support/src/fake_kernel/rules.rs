//! Rules: twins are accepted, and a deletion removes the first match.

use super::FakeKernel;
use ipnet::IpNet;
use routing_plan::{Errno, Rule, RulePattern};
use std::net::IpAddr;

impl FakeKernel {
    pub(super) fn add_rule(&mut self, rule: &Rule) -> Result<(), Errno> {
        if self.state.rules.contains(rule) {
            return Err(Errno::EEXIST);
        }
        let place = self
            .state
            .rules
            .partition_point(|other| (other.family, other.pref) <= (rule.family, rule.pref));
        self.state.rules.insert(place, rule.clone());
        Ok(())
    }

    pub(super) fn delete_rule(&mut self, rule: &Rule) -> Result<(), Errno> {
        self.delete_first(|other| {
            let (wanted, there) = (&rule.selector, &other.selector);
            (other.family, other.pref, other.table) == (rule.family, rule.pref, rule.table)
                && (rule.protocol == 0 || other.protocol == rule.protocol)
                && (wanted.src.is_none() || there.src == wanted.src)
                && (wanted.dst.is_none() || there.dst == wanted.dst)
                && (wanted.mark.is_none() || there.mark == wanted.mark)
                && (wanted.iif.is_none() || there.iif == wanted.iif)
                && (wanted.protocol.is_none() || there.protocol == wanted.protocol)
        })
    }

    pub(super) fn purge_rules(&mut self, pattern: RulePattern) -> Result<(), Errno> {
        let host = |address: IpAddr| Some(IpNet::from(address));
        let fits = |other: &Rule| match pattern {
            RulePattern::To { pref, address } => {
                other.pref == pref && other.selector.dst == host(address)
            }
            RulePattern::From { pref, address } => {
                other.pref == pref && other.selector.src == host(address)
            }
        };
        self.delete_first(fits)?;
        while self.delete_first(fits).is_ok() {}
        Ok(())
    }

    fn delete_first(&mut self, fits: impl Fn(&Rule) -> bool) -> Result<(), Errno> {
        let place = self.state.rules.iter().position(fits).ok_or(Errno::ENOENT)?;
        self.state.rules.remove(place);
        Ok(())
    }
}
