//! A Service with more backends than a table has places for.

use service_core::{Backend, Index, OutReason, Place, Route, Use, World};
use service_objects::{Family, Protocol};
use std::{collections::BTreeSet, net::Ipv4Addr};
use tests_service::{naive, text::read};

/// The largest number of backends of a table.
const MOST: usize = 8_191;

/// Slices of 100 endpoints, as the controller of Kubernetes writes them. The first is on the node.
fn world(slices: u32) -> World {
    let mut text = "== title\nnode n1 at=10.0.0.1
        service x/s NodePort cluster=172.20.0.1 internal-local
          port - TCP 80 node-port=30080\n"
        .to_owned();
    for slice in 0..slices {
        text += &format!("slice x/s-{slice} of x/s IPv4\nport - TCP 80\n");
        for endpoint in 0..100 {
            let node = if (slice, endpoint) == (0, 0) { "n1" } else { "n2" };
            text += &format!("endpoint {} ready node={node}\n", address(slice * 100 + endpoint));
        }
    }
    read(&text).expect("a world").remove(0).world
}

fn address(number: u32) -> Ipv4Addr {
    (u32::from(Ipv4Addr::new(10, 1, 0, 0)) + number).into()
}

fn backends(count: usize) -> Route {
    let backend = |number| Backend { address: address(number).into(), port: 80 };
    Route::To((0..).take(count).map(backend).collect::<BTreeSet<_>>())
}

#[test]
fn a_table_has_the_first_backends_and_each_table_has_its_own() {
    let packets = read(
        "== title
         packet node 10.1.9.9 > 172.20.0.1:80 TCP = the local backend
         packet outside 10.9.9.9 > 10.0.0.1:30080 TCP = the first",
    );
    let packets = packets.expect("packets").remove(0).expected;
    let [(to_local, _), (to_all, _)] = &packets[..] else { panic!("{packets:?}") };
    for (slices, expected) in [(81, 8_100), (82, MOST), (90, MOST)] {
        let world = world(slices);
        assert_eq!(naive::route(&world, to_local), backends(1));
        assert_eq!(naive::route(&world, to_all), backends(expected), "{slices} slices");
        let mut index = Index::of(world);
        index.take_changes();
        assert_eq!(index.route(to_local), backends(1));
        assert_eq!(index.route(to_all), backends(expected), "{slices} slices");
        let left_out: Vec<usize> = index.left_out().map(|(_, count)| count).collect();
        let all = usize::try_from(slices).unwrap_or(usize::MAX) * 100;
        let others: Vec<usize> = (all > MOST).then(|| all - MOST).into_iter().collect();
        assert_eq!(left_out, others, "the others are reported");
        let place = Place::NodePort(Family::V4, 30_080, Protocol::Tcp);
        let explanation = index.explain(&place).expect("the node port is served");
        let uses = explanation.endpoints.iter().map(|of| of.outside);
        let beyond = uses.filter(|of| *of == Use::Out(OutReason::BeyondLimit)).count();
        assert_eq!(beyond, all.saturating_sub(MOST), "{slices} slices");
    }
}
