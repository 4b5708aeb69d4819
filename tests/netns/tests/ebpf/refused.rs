//! Pods that start while the state cannot come into force.

use crate::{
    connections,
    existing::{desired_for, endpoints},
    grow::fill_own_addresses,
    object,
    traffic::{SILENCE, answer, in_pod, ip, node, policy},
};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use datapath_node::{Applied, Endpoints};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn apply(
    backend: &mut EbpfBackend,
    revision: u64,
    policies: &[Value],
    endpoints: Endpoints,
) -> Applied {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(backend.apply(&desired_for(revision, policies, endpoints)))
}

/// True if a pod connects to a port of the other one.
fn connects(from: &str, port: u16) -> bool {
    let last = if from == "a" { 2 } else { 1 };
    let at = SocketAddr::from(([10, 0, 0, last], port));
    in_pod(from, move || TcpStream::connect_timeout(&at, SILENCE)).is_ok()
}

/// A policy of b in one direction, which allows port 8080.
fn of_b(is_egress: bool) -> Value {
    let mut policy = policy(8080);
    if is_egress {
        let spec = policy["spec"].as_object_mut().unwrap();
        spec.remove("ingress");
        spec.insert("policyTypes".to_owned(), json!(["Egress"]));
        spec.insert("egress".to_owned(), json!([{"ports": [{"port": 8080}]}]));
    }
    policy
}

#[test]
fn a_pod_that_starts_under_a_refused_state_is_closed_where_it_is_isolated() {
    let name = "a_pod_that_starts_under_a_refused_state_is_closed_where_it_is_isolated";
    let Some(object) = object(name) else { return };
    for is_egress in [false, true] {
        let bpffs = tempfile::tempdir().unwrap();
        node(bpffs.path());
        for (pod, port) in [("a", 8080), ("a", 8081), ("b", 8080), ("b", 8081)] {
            answer(in_pod(pod, move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
        }
        // The client of the isolated direction, and the client of the other one.
        let (isolated, other) = if is_egress { ("b", "a") } else { ("a", "b") };
        let pins = bpffs.path().join("maps");
        let open = || EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
        let mut backend = open();
        assert_eq!(apply(&mut backend, 1, &[], Endpoints::default()).in_force, Ok(()));
        fill_own_addresses();
        let policies = [of_b(is_egress)];
        let refused = apply(&mut backend, 2, &policies, endpoints("c1"));
        let why = refused.in_force.unwrap_err();
        assert!(why.contains("own_addresses"), "{why}");
        assert!(!connects(isolated, 8080) && !connects(isolated, 8081), "closed");
        assert!(connects(other, 8080) && connects(other, 8081), "the other direction is open");

        // A repetition and a restart change nothing, and a pod that has started keeps its state.
        assert!(apply(&mut backend, 3, &policies, endpoints("c1")).in_force.is_err());
        drop(backend);
        let mut backend = open();
        assert!(apply(&mut backend, 3, &[], endpoints("c1")).in_force.is_err());
        assert!(!connects(isolated, 8080) && connects(other, 8081));

        // Without the addresses the state fits.
        ip("addr flush to 10.99.0.0/16 dev lo");
        let applied = apply(&mut backend, 4, &policies, endpoints("c1"));
        assert!(applied.in_force.is_ok(), "{applied:?}");
        assert!(applied.endpoints.values().all(Result::is_ok), "{applied:?}");
        assert!(connects(isolated, 8080) && !connects(isolated, 8081), "its policies");
        assert!(connects(other, 8080) && connects(other, 8081));
    }
}

#[test]
fn a_pod_that_has_started_before_stays_as_it_is_under_a_refused_state() {
    let name = "a_pod_that_has_started_before_stays_as_it_is_under_a_refused_state";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    for (pod, port) in [("a", 8080), ("b", 8080)] {
        answer(in_pod(pod, move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
    let pins = bpffs.path().join("maps");
    let mut backend = EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
    // The policies of both pods are in force: none.
    assert!(apply(&mut backend, 1, &[], endpoints("c1")).in_force.is_ok());
    fill_own_addresses();
    assert!(apply(&mut backend, 2, &[of_b(false)], endpoints("c1")).in_force.is_err());
    assert!(connects("a", 8080) && connects("b", 8080), "the earlier state is in force");
    // A pod that the plugin has not reported may have run before the agent.
    drop(backend);
    let mut backend =
        EbpfBackend::open(&object, &bpffs.path().join("new"), connections(), Method::Filters)
            .unwrap();
    assert!(apply(&mut backend, 1, &[of_b(false)], endpoints("")).in_force.is_err());
    assert!(connects("a", 8080) && connects("b", 8080));
}
