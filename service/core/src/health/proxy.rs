//! The health of the node's service proxy, which a load balancer reads at one port of each node.

use super::HealthAnswer;
use config_model::{Span, Time, utc};

/// The health of the part of a node that serves Services. Times are those of one clock that does not jump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHealth {
    /// The arrival of the oldest state that is not in force yet.
    pending: Option<Time>,
    /// The time at which the last state came into force.
    updated: Option<Time>,
    /// True if the node is about to be deleted. Load balancers then send it no new connections.
    pub is_leaving: bool,
}

/// The present on both clocks.
#[derive(Clone, Copy, Debug)]
struct Present {
    now: Time,
    /// Milliseconds since 1970.
    unix_ms: u64,
}

impl ProxyHealth {
    /// A state is to come into force.
    pub fn begin(&mut self, now: Time) {
        self.pending.get_or_insert(now);
    }

    /// The newest state has come into force.
    pub fn finish(&mut self, now: Time) {
        (self.pending, self.updated) = (None, Some(now));
    }

    /// False before the first state is in force, and if a state is not in force in time. kube-proxy is healthy before
    /// its first state.
    pub fn is_healthy(&self, now: Time) -> bool {
        self.updated.is_some() && self.pending.is_none_or(|since| now.since(since) < LATE)
    }

    /// The answer at `/healthz`. `unix_ms` is the present in milliseconds since 1970.
    pub fn healthz(&self, now: Time, unix_ms: u64) -> HealthAnswer {
        let is_good = self.is_healthy(now) && !self.is_leaving;
        self.answer(is_good, Some(!self.is_leaving), Present { now, unix_ms })
    }

    /// The answer at `/livez`, which does not depend on the end of the node.
    pub fn livez(&self, now: Time, unix_ms: u64) -> HealthAnswer {
        self.answer(self.is_healthy(now), None, Present { now, unix_ms })
    }

    fn answer(&self, is_good: bool, eligible: Option<bool>, present: Present) -> HealthAnswer {
        let is_healthy = self.is_healthy(present.now);
        let current = rfc3339(present.unix_ms);
        let updated = self.updated.map(|at| present.written(at));
        // As in kube-proxy, the top level of a good answer has the present.
        let last = match &updated {
            _ if is_good => current.as_str(),
            Some(updated) => updated.as_str(),
            None => NEVER,
        };
        let mut body = format!("{{\"lastUpdated\":\"{last}\",\"currentTime\":\"{current}\"");
        if let Some(eligible) = eligible {
            body.push_str(&format!(",\"nodeEligible\":{eligible}"));
        }
        body.push_str(&format!(",\"healthy\":{is_healthy}"));
        if let Some(updated) = updated {
            let family = format!("{{\"lastUpdated\":\"{updated}\",\"healthy\":{is_healthy}}}");
            body.push_str(&format!(",\"status\":{{\"IPv4\":{family},\"IPv6\":{family}}}"));
        }
        body.push('}');
        HealthAnswer { is_good, weight: None, body }
    }
}

impl Present {
    fn written(self, at: Time) -> String {
        let Span(ago) = self.now.since(at);
        rfc3339(self.unix_ms.saturating_sub(ago))
    }
}

/// As Go writes a time: without the zeros at the end of the fraction.
fn rfc3339(unix_ms: u64) -> String {
    let text = format!("{}.{:03}", utc::date_and_time(unix_ms / 1000), unix_ms % 1000);
    format!("{}Z", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";
/// The time in which a state must come into force: two sync periods of kube-proxy.
const LATE: Span = Span::seconds(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-01T00:00:00Z at the time 100 s.
    const START: u64 = 1_772_323_200_000 - 100_000;

    fn seconds(seconds: u64) -> Time {
        Time(seconds * 1000)
    }

    fn healthz(health: &ProxyHealth, at: u64) -> (bool, String) {
        let answer = health.healthz(seconds(at), START + at * 1000);
        assert_eq!(answer.weight, None);
        (answer.is_good, answer.body)
    }

    fn livez(health: &ProxyHealth, at: u64) -> (bool, String) {
        let answer = health.livez(seconds(at), START + at * 1000);
        (answer.is_good, answer.body)
    }

    #[test]
    fn a_state_that_is_not_in_force_in_time_makes_the_node_unhealthy() {
        let mut health = ProxyHealth::default();
        assert!(!health.is_healthy(seconds(1)), "no state is in force yet");
        health.begin(seconds(1));
        health.finish(seconds(2));
        assert!(health.is_healthy(seconds(1000)), "no later state has come");
        health.begin(seconds(1000));
        health.begin(seconds(1059));
        assert!(health.is_healthy(seconds(1059)));
        assert!(!health.is_healthy(seconds(1060)), "the first of both waits for a minute");
        health.finish(seconds(1070));
        assert!(health.is_healthy(seconds(1070)));
    }

    #[test]
    fn answers_are_those_of_kube_proxy() {
        let mut health = ProxyHealth::default();
        let none =
            "{\"lastUpdated\":\"0001-01-01T00:00:00Z\",\"currentTime\":\"2026-03-01T00:00:00Z\"";
        assert_eq!(
            healthz(&health, 100),
            (false, format!("{none},\"nodeEligible\":true,\"healthy\":false}}"))
        );
        health.finish(Time(100_120));
        let good =
            "{\"lastUpdated\":\"2026-03-01T00:00:05Z\",\"currentTime\":\"2026-03-01T00:00:05Z\"";
        let status = |is| {
            let family =
                format!("{{\"lastUpdated\":\"2026-03-01T00:00:00.12Z\",\"healthy\":{is}}}");
            format!("\"healthy\":{is},\"status\":{{\"IPv4\":{family},\"IPv6\":{family}}}}}")
        };
        assert_eq!(
            healthz(&health, 105),
            (true, format!("{good},\"nodeEligible\":true,{}", status(true)))
        );
        assert_eq!(livez(&health, 105), (true, format!("{good},{}", status(true))));

        health.is_leaving = true;
        let earlier = good.replacen("00:00:05Z", "00:00:00.12Z", 1);
        let leaving = format!("{earlier},\"nodeEligible\":false,{}", status(true));
        assert_eq!(healthz(&health, 105), (false, leaving));
        assert_eq!(livez(&health, 105), (true, format!("{good},{}", status(true))));

        health.is_leaving = false;
        health.begin(seconds(40));
        let late = format!("{earlier},\"nodeEligible\":true,{}", status(false));
        assert_eq!(healthz(&health, 105), (false, late));
        assert_eq!(livez(&health, 105), (false, format!("{earlier},{}", status(false))));
    }
}
