//! Traces: the starts and ends of pods, the same for both daemons.

use super::rng::Rng;
use config_model::{Span, Time};
use lab_cloud::{Bucket, InstanceType, Throttling};

/// One pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) node: usize,
    /// Intended start: the time of its first ADD if the node is ready.
    pub(crate) from: Time,
    /// Time of its deletion, whether it has an address or not.
    pub(crate) until: Option<Time>,
}

impl Life {
    /// Time at which the pod is bound to its node, one to two seconds before its ADD. Every 300 ms the
    /// kubelet checks for the volume of each pod's token, which two loops of 100 ms mount
    /// (`pkg/kubelet/volumemanager/volume_manager.go`). The token, the pod's cgroup and its sandbox add to
    /// that, more so if many pods start.
    pub(crate) fn bound(&self) -> Time {
        let earlier = 1000 + self.from.0.wrapping_mul(7919) % 1000;
        Time(self.from.0.saturating_sub(earlier))
    }
}

/// Size of the traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As in the benchmark.
    Full,
    /// As in the tests: the same shapes with fewer pods, nodes and minutes.
    Small,
}

#[derive(Clone, Debug)]
pub struct Trace {
    /// Stable, because the figures contain it.
    pub name: &'static str,
    /// Description for people.
    pub description: String,
    pub(crate) kind: &'static InstanceType,
    pub(crate) max_pods: u32,
    /// Start times of the nodes' daemons.
    pub(crate) joins: Vec<Time>,
    pub(crate) throttling: Throttling,
    pub(crate) lives: Vec<Life>,
    pub(crate) end: Time,
}

impl Trace {
    /// All traces of the benchmark, for a pool of single addresses or of prefixes.
    pub fn all(scale: Scale, prefixes: bool) -> Vec<Self> {
        vec![
            Self::steady(scale, prefixes),
            Self::burst(scale, prefixes),
            Self::churn(scale, prefixes),
            Self::rolling(scale, prefixes),
            Self::join(scale, prefixes),
        ]
    }

    /// True if one run takes seconds.
    pub(crate) fn is_large(&self) -> bool {
        self.lives.len() > 1000
    }

    /// Number of addresses for pods that a node can have.
    pub(crate) fn most_addresses(&self, prefixes: bool) -> u32 {
        let enis = u32::from(self.kind.interfaces_of_card(0).unwrap_or(1));
        let slots = enis * u32::from(self.kind.ipv4_per_interface.saturating_sub(1));
        if prefixes { (slots * 16).min(2 * self.max_pods) } else { slots }
    }

    /// Sixty pods with a mean life of twenty minutes, each replaced at its end.
    fn steady(scale: Scale, prefixes: bool) -> Self {
        let (pods, hours) = match scale {
            Scale::Full => (60, 4),
            Scale::Small => (20, 1),
        };
        let mut rng = Rng::new(0x57ea);
        let end = Time(0) + Span::seconds(hours * 3600);
        let mut lives = Vec::new();
        for place in 0..pods {
            let mut from = WARM_UP + Span::seconds(place * 5);
            while from < end {
                let until = from + Span::seconds(60) + rng.span(Span::seconds(2 * 1140));
                lives.push(Life { node: 0, from, until: (until < end).then_some(until) });
                from = until + Span::seconds(2);
            }
        }
        let description =
            format!("{pods} pods on an m5.4xlarge, each replaced after 20 minutes on average");
        Self::on_one_node("steady", description, "m5.4xlarge", prefixes, lives, end)
    }

    /// All pods start at once on an empty node, and end at once half an hour later.
    fn burst(scale: Scale, prefixes: bool) -> Self {
        let (pods, stay) = match scale {
            Scale::Full => (110, Span::seconds(1800)),
            Scale::Small => (60, Span::seconds(600)),
        };
        let mut rng = Rng::new(0xb5);
        let until = WARM_UP + stay;
        let lives = (0..pods)
            .map(|_| Life {
                node: 0,
                from: WARM_UP + rng.span(Span::seconds(1)),
                until: Some(until + rng.span(Span::seconds(10))),
            })
            .collect();
        let description =
            format!("{pods} pods within a second on an empty m5.4xlarge, all gone later");
        Self::on_one_node("burst", description, "m5.4xlarge", prefixes, lives, until + stay)
    }

    /// Five pods per second, each for ten seconds: fifty run and a hundred and fifty cool.
    fn churn(scale: Scale, prefixes: bool) -> Self {
        let seconds = match scale {
            Scale::Full => 600,
            Scale::Small => 120,
        };
        let mut rng = Rng::new(0xc4);
        let life = |at: u64, rng: &mut Rng| {
            let from = WARM_UP + Span::millis(at * 200) + rng.span(Span::millis(200));
            let until = from + Span::seconds(5) + rng.span(Span::seconds(10));
            Life { node: 0, from, until: Some(until) }
        };
        let lives = (0..seconds * 5).map(|at| life(at, &mut rng)).collect();
        let end = WARM_UP + Span::seconds(seconds + 600);
        let description =
            "5 pods a second on an m5.4xlarge, each for ten seconds on average".to_owned();
        Self::on_one_node("churn", description, "m5.4xlarge", prefixes, lives, end)
    }

    /// Every address (with prefixes: every pod slot) is in use. Then a quarter of the pods is replaced per
    /// minute.
    fn rolling(scale: Scale, prefixes: bool) -> Self {
        let rounds = match scale {
            Scale::Full => 8,
            Scale::Small => 2,
        };
        let pods: u64 = if prefixes { 110 } else { 56 };
        let mut lives = Vec::new();
        let first_round = WARM_UP + Span::seconds(600);
        let end = first_round + Span::seconds(rounds * 60 + 600);
        for place in 0..pods {
            let mut from = WARM_UP + Span::seconds(place);
            let replaced = (0..rounds).filter(|round| round % 4 == place % 4);
            for round in replaced {
                let until = first_round + Span::seconds(round * 60);
                lives.push(Life { node: 0, from, until: Some(until) });
                from = until + Span::seconds(1);
            }
            lives.push(Life { node: 0, from, until: None });
        }
        let description =
            format!("{pods} pods fill an m5.xlarge; a quarter of them is replaced a minute");
        Self::on_one_node("rolling", description, "m5.xlarge", prefixes, lives, end)
    }

    /// Nodes that start within five seconds, with pods from the first moment, while all nodes of the account
    /// share one bucket per action.
    fn join(scale: Scale, prefixes: bool) -> Self {
        let (nodes, bucket) = match scale {
            Scale::Full => (1000, Bucket::new(100, 5)),
            // A fiftieth of the nodes and of their bucket.
            Scale::Small => (20, Bucket { burst: 2, refill_milli_per_second: 100 }),
        };
        let pods_each = 5;
        let mut rng = Rng::new(0x10);
        let joins: Vec<Time> = (0..nodes).map(|_| Time(0) + rng.span(Span::seconds(5))).collect();
        let lives = joins
            .iter()
            .enumerate()
            .flat_map(|(node, join)| {
                let from = *join;
                (0..pods_each).map(move |_| Life { node, from, until: None })
            })
            .collect();
        let description = format!(
            "{nodes} nodes of m5.large join at once with {pods_each} pods each; all share a bucket \
             of burst {} and {} a second for each EC2 action",
            bucket.burst,
            f64::from(bucket.refill_milli_per_second) / 1000.0,
        );
        Self {
            throttling: Throttling::Uniform(bucket),
            joins,
            end: Time(0) + Span::seconds(5400),
            ..Self::on_one_node("join", description, "m5.large", prefixes, lives, Time(0))
        }
    }

    /// Pods that start one after the other, as in the documented examples.
    #[cfg(test)]
    pub(crate) fn one_by_one(kind: &'static str, max_pods: u32, pods: u64) -> Self {
        let life = |at| Life { node: 0, from: WARM_UP + Span::seconds(20 * at), until: None };
        let end = WARM_UP + Span::seconds(20 * pods + 900);
        let lives = (0..pods).map(life).collect();
        let name = "one_by_one";
        Self { max_pods, ..Self::on_one_node(name, name.to_owned(), kind, false, lives, end) }
    }

    fn on_one_node(
        name: &'static str,
        description: String,
        kind: &'static str,
        prefixes: bool,
        lives: Vec<Life>,
        end: Time,
    ) -> Self {
        let kind = InstanceType::named(kind).expect("the traces name types that the lab knows");
        let (joins, throttling) = (vec![Time(0)], Throttling::Published);
        let max_pods = max_pods(kind, prefixes);
        Self { name, description, kind, max_pods, joins, throttling, lives, end }
    }
}

/// The pool of a node has settled by then.
const WARM_UP: Time = Time(600_000);

/// As on EKS: the addresses of all ENIs and two pods with host networking, or 110 with prefixes.
fn max_pods(kind: &InstanceType, prefixes: bool) -> u32 {
    let enis = u32::from(kind.interfaces_of_card(0).unwrap_or(1));
    let per_eni = u32::from(kind.ipv4_per_interface.saturating_sub(1));
    if prefixes { 110 } else { enis * per_eni + 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum number of pods that run or cool at the same time.
    fn most_at_once(trace: &Trace, cooling: Span) -> usize {
        let alive = |at: Time| {
            let there = |life: &&Life| {
                life.from <= at && life.until.is_none_or(|until| at < until + cooling)
            };
            trace.lives.iter().filter(there).count()
        };
        trace.lives.iter().map(|life| alive(life.from)).max().unwrap_or(0)
    }

    #[test]
    fn a_trace_never_has_more_pods_than_its_nodes_run() {
        for prefixes in [false, true] {
            for trace in Trace::all(Scale::Small, prefixes) {
                let most = most_at_once(&trace, Span(0));
                let nodes = trace.joins.len();
                let bound = usize::try_from(trace.max_pods).expect("a count") * nodes;
                assert!(most <= bound, "{}: {most} > {bound}", trace.name);
            }
        }
    }

    #[test]
    fn the_churn_fits_the_node_with_all_that_cools() {
        let churn = Trace::churn(Scale::Small, false);
        let most = most_at_once(&churn, Span::seconds(30));
        assert!((150..232).contains(&most), "{most}");
    }

    #[test]
    fn the_rolling_update_begins_on_a_node_without_a_free_address() {
        let rolling = Trace::rolling(Scale::Small, false);
        assert_eq!(most_at_once(&rolling, Span(0)), 4 * 14);
    }
}
