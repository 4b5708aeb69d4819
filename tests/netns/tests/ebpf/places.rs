//! The map `places`: links whose numbers end in the same bits, and places that another process has changed.

use crate::{
    bad_input::open,
    connections,
    existing::{desired_for, endpoints, enforce},
    object,
    repair::drift,
    traffic::{answer, answers, connect_pod, connect_to, in_pod, ip, node, policy},
};
use aya::maps::{Array, Map, MapData};
use datapath_abi::{PLACES, Place, PlaceValue};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Programs};
use nix::net::if_::if_nametoindex;
use std::net::{SocketAddr, TcpListener};

const OPEN: u16 = 8080;
const CLOSED: u16 = 8081;

/// The ports of [`OPEN`] and [`CLOSED`] at which pod b receives connections from pod a.
fn reached() -> Vec<u16> {
    let at_b = |port: &u16| SocketAddr::from(([10, 0, 0, 2], *port));
    let is_reached = |port: &u16| connect_to(at_b(port)).is_some_and(|stream| answers(&stream));
    [OPEN, CLOSED].into_iter().filter(is_reached).collect()
}

fn serve_in_b() {
    for port in [OPEN, CLOSED] {
        answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
}

#[test]
fn two_links_at_one_place_have_their_own_policies() {
    let Some(object) = object("two_links_at_one_place_have_their_own_policies") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    let link = if_nametoindex("a").unwrap();
    ip("link del dev b");
    connect_pod("b", "10.0.0.2", &format!("index {}", link + PLACES));
    serve_in_b();
    let mut backend = open(&object, bpffs.path());
    let mut revision = 0;
    let mut enforce_at = |pods: &[&str]| {
        revision += 1;
        let mut some = endpoints("");
        some.retain(|uid, _| pods.contains(&uid.as_str()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let applied =
            runtime.block_on(backend.apply(&desired_for(revision, &[policy(OPEN)], some)));
        let all = pods.iter().map(|pod| ((*pod).to_owned(), Ok(())));
        assert_eq!(*applied.endpoints, all.collect(), "{applied:?}");
    };
    // Each pod starts and ends beside the other one, and in each order one of them has the copy. A pod that has ended is
    // closed as long as its link exists.
    for pods in [&["a", "b"][..], &["b"], &["a", "b"], &["a"], &["a", "b"]] {
        enforce_at(pods);
        let open: &[u16] = if pods.len() == 2 { &[OPEN] } else { &[] };
        assert_eq!(reached(), open, "{pods:?}");
    }
}

#[test]
fn a_changed_place_is_repaired() {
    let Some(object) = object("a_changed_place_is_repaired") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve_in_b();
    let pins = bpffs.path().join("maps");
    let programs = Programs::load(&object, Some(&pins), &connections()).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins, connections()).unwrap();
    enforce(&mut backend, 1, &[policy(OPEN)]);
    let map = |name| Map::Array(MapData::from_pin(pins.join(name)).unwrap());
    let mut places = Array::<_, PlaceValue>::try_from(map("places")).unwrap();
    let number = Place::of(if_nametoindex("b").unwrap());
    // Without the copy and the count the programs do not find the pod. With another slot they judge it as another pod.
    for (at, value) in [(0..64, 0), (8..9, 7), (16..32, 1)] {
        let mut changed = places.get(&number, 0).unwrap();
        changed[at.clone()].fill(value);
        places.set(number, changed, 0).unwrap();
        assert!(drift(&mut backend).is_some_and(|why| why.contains("endpoints")), "{at:?}");
        // The agent answers it by a full pass.
        enforce(&mut backend, 1, &[policy(OPEN)]);
        assert_eq!(reached(), [OPEN], "{at:?}");
        assert_eq!(drift(&mut backend), None, "{at:?}");
    }
    // The node's own addresses have counts too.
    let mut own = Array::<_, u32>::try_from(map("own_places")).unwrap();
    let counts: Vec<u32> = own.iter().collect::<Result<_, _>>().unwrap();
    for (number, _) in (0..).zip(&counts).filter(|(_, count)| **count > 0) {
        own.set(number, 0, 0).unwrap();
    }
    assert!(drift(&mut backend).is_some_and(|why| why.contains("own_addresses")));
    enforce(&mut backend, 1, &[policy(OPEN)]);
    assert_eq!(own.iter().collect::<Result<Vec<u32>, _>>().unwrap(), counts);
    assert_eq!(drift(&mut backend), None);
}
