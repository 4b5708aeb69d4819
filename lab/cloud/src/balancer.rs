//! A network load balancer: its targets, their health, and the targets of new connections.
//!
//! The model works as Elastic Load Balancing does for targets of the types `instance` and `ip`. The owner runs the health
//! checks that are due and passes the results. Targets have the names of their nodes, or their addresses as names.

use config_model::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Request of a health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum HealthProbe {
    /// A connection to this port.
    Tcp { port: u16 },
    /// A request for this path, which a status from 200 to 399 answers.
    Http { port: u16, path: String },
}

/// Health check of a load balancer. Each number is at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    pub probe: HealthProbe,
    pub interval: Span,
    /// Not longer than the interval.
    pub timeout: Span,
    /// Number of good answers in a row after which a target is healthy.
    pub healthy: u32,
    /// Number of failures in a row after which a target is unhealthy.
    pub unhealthy: u32,
}

/// The states of a target in the API of Elastic Load Balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetState {
    /// Registered, and neither found healthy nor unhealthy yet.
    Initial,
    Healthy,
    Unhealthy,
    /// Deregistered: open connections continue, and there are no new ones.
    Draining,
}

/// The targets of a load balancer.
#[derive(Clone, Debug)]
pub struct Balancer {
    check: HealthCheck,
    deregistration_delay: Span,
    targets: BTreeMap<String, Target>,
}

#[derive(Clone, Copy, Debug)]
struct Target {
    state: TargetState,
    /// Good answers in a row until now.
    good: u32,
    /// Failures in a row until now.
    bad: u32,
    /// Time of the next check, or of the removal if the target is draining.
    next: Time,
}

impl Balancer {
    pub fn new(check: HealthCheck, deregistration_delay: Span) -> Self {
        Self { check, deregistration_delay, targets: BTreeMap::new() }
    }

    pub fn check(&self) -> &HealthCheck {
        &self.check
    }

    /// Registers a node. A draining target starts again; a registered one stays as it is.
    pub fn register(&mut self, node: &str, now: Time) {
        let fresh = Target { state: TargetState::Initial, good: 0, bad: 0, next: now };
        let target = self.targets.entry(node.to_owned()).or_insert(fresh);
        if target.state == TargetState::Draining {
            *target = fresh;
        }
    }

    /// Starts the deregistration delay of a node. Returns false if the node is not registered.
    pub fn deregister(&mut self, node: &str, now: Time) -> bool {
        let registered = |target: &&mut Target| target.state != TargetState::Draining;
        let Some(target) = self.targets.get_mut(node).filter(registered) else { return false };
        let next = now + self.deregistration_delay;
        *target = Target { state: TargetState::Draining, next, ..*target };
        true
    }

    /// Removes targets whose deregistration delay is over.
    pub fn advance(&mut self, now: Time) {
        self.targets.retain(|_, target| target.state != TargetState::Draining || now < target.next);
    }

    /// Returns the targets to check now, and sets the time of their next checks.
    pub fn start_checks(&mut self, now: Time) -> Vec<String> {
        let interval = self.check.interval;
        let due = self
            .targets
            .iter_mut()
            .filter(|(_, target)| target.state != TargetState::Draining && target.next <= now);
        due.map(|(node, target)| {
            target.next = now + interval;
            node.clone()
        })
        .collect()
    }

    /// Records the result of a check. It has no effect on targets that are draining or removed.
    pub fn record(&mut self, node: &str, is_good: bool) {
        let checked = |target: &&mut Target| target.state != TargetState::Draining;
        let Some(target) = self.targets.get_mut(node).filter(checked) else { return };
        (target.good, target.bad) = if is_good {
            (target.good.saturating_add(1), 0)
        } else {
            (0, target.bad.saturating_add(1))
        };
        if target.good >= self.check.healthy {
            target.state = TargetState::Healthy;
        } else if target.bad >= self.check.unhealthy {
            target.state = TargetState::Unhealthy;
        }
    }

    /// Returns the targets of new connections: the healthy ones. If there is none, these are the unhealthy ones,
    /// because a load balancer without healthy targets fails open.
    pub fn receivers(&self) -> Vec<&str> {
        let of = |state| self.targets().filter(move |(_, of)| *of == state).map(|(node, _)| node);
        let healthy: Vec<&str> = of(TargetState::Healthy).collect();
        if healthy.is_empty() { of(TargetState::Unhealthy).collect() } else { healthy }
    }

    /// All targets, by node.
    pub fn targets(&self) -> impl Iterator<Item = (&str, TargetState)> {
        self.targets.iter().map(|(node, target)| (node.as_str(), target.state))
    }

    /// Returns the time at which a check is due or a target is removed. `None` without targets.
    pub fn wake_at(&self) -> Option<Time> {
        self.targets.values().map(|target| target.next).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Span = Span::seconds(300);

    fn balancer(nodes: &[&str]) -> Balancer {
        let check = HealthCheck {
            probe: HealthProbe::Tcp { port: 30_080 },
            interval: Span::seconds(10),
            timeout: Span::seconds(2),
            healthy: 2,
            unhealthy: 3,
        };
        let mut balancer = Balancer::new(check, DELAY);
        nodes.iter().for_each(|node| balancer.register(node, Time(0)));
        balancer
    }

    fn record(balancer: &mut Balancer, node: &str, results: &[bool]) {
        results.iter().for_each(|is_good| balancer.record(node, *is_good));
    }

    fn state(balancer: &Balancer, node: &str) -> Option<TargetState> {
        balancer.targets().find(|(of, _)| *of == node).map(|(_, state)| state)
    }

    #[test]
    fn a_target_changes_its_state_after_enough_results_in_a_row() {
        let mut balancer = balancer(&["node1"]);
        record(&mut balancer, "node1", &[true]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Initial));
        record(&mut balancer, "node1", &[false, false, true]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Initial));
        record(&mut balancer, "node1", &[true]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Healthy));
        record(&mut balancer, "node1", &[false, false, true, false, false]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Healthy));
        record(&mut balancer, "node1", &[false]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Unhealthy));
    }

    #[test]
    fn a_draining_target_gets_no_new_connection_and_is_removed_after_the_delay() {
        let mut balancer = balancer(&["node1", "node2"]);
        for node in ["node1", "node2"] {
            record(&mut balancer, node, &[true, true]);
        }
        assert!(balancer.deregister("node1", Time(1000)));
        assert!(!balancer.deregister("node1", Time(2000)), "it is draining");
        assert!(!balancer.deregister("node3", Time(2000)), "it is no target");
        assert_eq!(balancer.receivers(), ["node2"]);
        record(&mut balancer, "node1", &[true, true]);
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Draining));
        balancer.advance(Time(1000) + DELAY - Span(1));
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Draining));
        balancer.advance(Time(1000) + DELAY);
        assert_eq!(state(&balancer, "node1"), None);
    }

    #[test]
    fn a_draining_target_can_be_registered_again() {
        let mut balancer = balancer(&["node1"]);
        assert!(balancer.deregister("node1", Time(0)));
        balancer.register("node1", Time(5));
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Initial));
        record(&mut balancer, "node1", &[true, true]);
        balancer.register("node1", Time(6));
        assert_eq!(state(&balancer, "node1"), Some(TargetState::Healthy), "it stays as it is");
    }

    #[test]
    fn without_a_healthy_target_the_unhealthy_ones_get_connections() {
        let mut balancer = balancer(&["node1", "node2", "node3"]);
        assert!(balancer.receivers().is_empty());
        for node in ["node1", "node2"] {
            record(&mut balancer, node, &[false; 3]);
        }
        assert_eq!(balancer.receivers(), ["node1", "node2"]);
        record(&mut balancer, "node2", &[true, true]);
        assert_eq!(balancer.receivers(), ["node2"]);
    }

    #[test]
    fn a_target_is_checked_once_an_interval() {
        let mut balancer = balancer(&["node1"]);
        assert_eq!(balancer.start_checks(Time(0)), ["node1"]);
        assert!(balancer.start_checks(Time(9_999)).is_empty());
        assert_eq!(balancer.wake_at(), Some(Time(10_000)));
        assert_eq!(balancer.start_checks(Time(10_000)), ["node1"]);
        assert!(balancer.deregister("node1", Time(10_000)));
        assert!(balancer.start_checks(Time(20_000)).is_empty());
        assert_eq!(balancer.wake_at(), Some(Time(10_000) + DELAY));
    }
}
