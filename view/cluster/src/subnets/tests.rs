#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use serde_json::{Value, json};
use view_node::Status;

/// A count that falls by 100 addresses per hour for six hours, each 20 minutes.
fn falling(available: u64) -> Value {
    let samples = (0..=18).rev().map(|n| json!([n * 1200, available + n * 100 / 3]));
    Value::Array(samples.collect())
}

fn subnet(id: &str, available: u64, samples: Value) -> Value {
    json!({ "id": id, "zone": "z-1a", "cidr": "10.0.0.0/20", "total": 4091, "available": available,
        "secondsAgo": 0, "forPods": true, "inUse": true, "samples": samples })
}

fn other(id: &str, available: u64) -> Value {
    json!({ "id": id, "zone": "z-1a", "total": 4091, "available": available, "secondsAgo": 0 })
}

fn daemon(subnets: Value, settings: Value) -> Status {
    serde_json::from_value(json!({ "subnets": subnets, "settings": settings })).unwrap()
}

fn states(statuses: &[Status]) -> (Vec<SubnetState>, Vec<Trouble>) {
    subnets(statuses.iter().map(|it| (it.subnets.as_slice(), it.settings.as_ref(), Some(&it.pool))))
}

fn troubles(statuses: &[Status]) -> Vec<Trouble> {
    states(statuses).1
}

#[test]
fn a_subnet_that_fills_is_a_problem_with_the_time_and_a_remedy() {
    let found = troubles(&[daemon(json!([subnet("s-1", 900, falling(900))]), json!({}))]);
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].object, found[0].severity), ("s-1", Severity::Trouble));
    assert_eq!(
        found[0].cause,
        "900 of 4091 addresses are free in z-1a; full in 9 h at this rate (100 addresses per hour in the last 6 h)"
    );
    assert!(found[0].next_step.starts_with("create a subnet in z-1a"), "{found:?}");
}

#[test]
fn a_flat_subnet_is_no_problem_and_the_reason_is_in_the_document() {
    let flat: Vec<Value> = (0..=18).rev().map(|n| json!([n * 1200, 900])).collect();
    let (states, found) = states(&[daemon(json!([subnet("s-1", 900, json!(flat))]), json!({}))]);
    assert_eq!((found, states[0].no_forecast), (Vec::new(), Some(Silence::NoDecline)));
}

#[test]
fn counts_of_several_nodes_are_merged_and_the_newest_is_shown() {
    let all: Vec<Value> = falling(900).as_array().unwrap().clone();
    // Each node has too few counts for a forecast of its own.
    let of = |rest: usize, ago: u64| {
        let samples: Vec<&Value> = all.iter().skip(rest).step_by(3).collect();
        let mut subnet = subnet("s-1", 900 + ago / 36, json!(samples));
        subnet["secondsAgo"] = json!(ago);
        daemon(json!([subnet]), json!({}))
    };
    let nodes = [of(1, 1200), of(0, 0), of(2, 2400)];
    assert!(troubles(&nodes[..1]).is_empty());
    let (states, found) = states(&nodes);
    assert_eq!((states[0].available, states[0].seconds_ago, states[0].nodes), (900, 0, 3));
    assert!(found[0].cause.contains("full in 9 h"), "{found:?}");
}

#[test]
fn the_remedy_is_the_cheapest_that_helps() {
    let filling = || subnet("s-1", 900, falling(900));
    let with = |others: &[Value], settings: Value| {
        let all: Vec<Value> = std::iter::once(filling()).chain(others.iter().cloned()).collect();
        let found = troubles(&[daemon(json!(all), settings)]);
        (found[0].severity, found[0].next_step.clone())
    };
    let warm = json!({ "enis": 1, "freeBySubnet": { "s-1": 405 } });
    // 100 addresses per hour for a day, above the 900 of the subnet.
    let usable = |available| subnet("s-2", available, json!([]));

    let (severity, next) = with(&[usable(3300), other("s-3", 4000)], warm.clone());
    assert_eq!(severity, Severity::Notice, "new ENIs use the other subnet");
    assert!(next.contains("created in s-2, which has 3300"), "{next}");

    let (severity, next) = with(&[usable(3299), other("s-3", 4000)], warm.clone());
    assert_eq!(severity, Severity::Trouble, "the other subnet is full soon too");
    assert!(next.starts_with("set WARM_IP_TARGET=5"), "{next}");

    let (severity, next) = with(&[other("s-3", 4000)], warm);
    assert_eq!(severity, Severity::Trouble);
    assert!(next.starts_with("set WARM_IP_TARGET=5"), "{next}");
    assert!(next.contains("about 400 return to the subnet (4 h more"), "{next}");

    let few = json!({ "enis": 1, "freeBySubnet": { "s-1": 60 } });
    let (_, next) = with(&[other("s-3", 4000)], few.clone());
    assert!(next.starts_with("tag s-3 kubernetes.io/role/cni=1"), "{next}");

    let mut excluded = other("s-3", 4000);
    excluded["excluded"] = json!(true);
    let (_, next) = with(&[excluded, other("s-4", 10)], few);
    assert!(next.starts_with("create a subnet in z-1a and tag it"), "{next}");

    let small = json!({ "ips": 3, "freeBySubnet": { "s-1": 405 } });
    let (_, next) = with(&[], small);
    assert!(next.starts_with("create a subnet"), "the target is low already: {next}");
    let custom = json!({ "customNetworking": true, "freeBySubnet": { "s-1": 9 } });
    let (_, next) = with(&[other("s-3", 4000)], custom);
    assert!(next.contains("in the nodes' ENIConfig"), "{next}");
}

#[test]
fn another_subnet_helps_only_if_a_node_can_have_one_more_eni() {
    let severity = |enis: [u32; 2]| {
        let node = |enis: u32| {
            let both = json!([subnet("s-1", 900, falling(900)), subnet("s-2", 4000, json!([]))]);
            let mut status = daemon(both, json!({}));
            (status.pool.enis, status.pool.max_enis) = (enis, 4);
            status
        };
        troubles(&enis.map(node))[0].severity
    };
    assert_eq!(severity([4, 3]), Severity::Notice);
    assert_eq!(severity([4, 4]), Severity::Trouble);
}

#[test]
fn of_prefixes_only_whole_ones_return() {
    let prefixes = PoolSettings { prefixes: true, ..PoolSettings::default() };
    let returned: Vec<u64> =
        [4, 20, 21, 52, 53].into_iter().map(|free| remedy::surplus(&prefixes, free)).collect();
    assert_eq!(returned, [0, 0, 16, 32, 48]);
}
