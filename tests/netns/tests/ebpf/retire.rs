//! The end of enforcement on purpose: only the filters and pins of others stay.

use crate::{
    connections,
    existing::enforce,
    nat::outside,
    object,
    repair::drift,
    tcx::{ensure_refused, filters, has_tcx},
    traffic::{answer, answers, connect_to, in_pod, node, policy},
};
use datapath_ebpf::{Attachments, EbpfBackend, Method, tcx_programs};
use routing_netlink::Side;
use std::{
    fs::{create_dir, hard_link, read_dir},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

const LINKS: [&str; 3] = ["a", "b", "wire"];

fn is_open(port: u16) -> bool {
    connect_to(SocketAddr::from(([10, 0, 0, 2], port))).is_some_and(|stream| answers(&stream))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

/// A node with filters of another owner, one of them at our priority, and the folder of our pins.
fn world(bpffs: &Path) -> PathBuf {
    node(bpffs);
    outside();
    for port in [8080, 8081] {
        answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
    bpffs.join("maps")
}

fn add_foreign() {
    for (side, priority) in [("ingress", 1), ("egress", 1), ("egress", 7)] {
        let of = format!("filter add dev b {side} protocol all prio {priority}");
        let words = of.split(' ').map(str::to_owned);
        // It matches no packet.
        let program = ["bpf", "bytecode", "1,6 0 0 0"].map(str::to_owned);
        assert!(Command::new("tc").args(words.chain(program)).status().unwrap().success());
    }
}

fn count(names: &[&str]) -> usize {
    let all: String = LINKS.map(filters).concat();
    names.iter().map(|name| all.matches(&format!(" {name} ")).count()).sum()
}

#[test]
fn retired_pods_are_open_and_nothing_of_ours_is_left() {
    let Some(object) = object("retired_pods_are_open_and_nothing_of_ours_is_left") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let pins = world(bpffs.path());
    let open = || EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
    assert!(Attachments::observe(&pins).unwrap().is_empty());
    let mut backend = open();
    enforce(&mut backend, 1, &[policy(8080)]);
    add_foreign();
    let foreign = filters("b").matches("bytecode").count();
    assert_eq!((foreign, is_open(8080), is_open(8081)), (3, true, false));
    // Folders that earlier processes have left.
    drop(backend);
    let [own] = entries(&pins).try_into().unwrap();
    for other in ["maps-0", "begun"].map(|name| pins.join(name)) {
        create_dir(&other).unwrap();
        hard_link(own.join("flows"), other.join("flows")).unwrap();
    }

    let before = Attachments::observe(&pins).unwrap();
    assert_eq!((before.tcx_links, before.folders), (0, 3), "{before:?}");
    assert!(before.filters >= 5, "{before:?}");
    let removed = Attachments::remove(&pins).unwrap();
    assert_eq!(removed, before);
    assert!(is_open(8080) && is_open(8081), "all pods are open");
    assert_eq!(count(&["from_pod", "to_pod", "to_wire"]), 0);
    assert_eq!(filters("b").matches("bytecode").count(), foreign, "those of others stay");
    assert!(!pins.exists(), "{:?}", entries(&pins));
    assert!(Attachments::remove(&pins).unwrap().is_empty(), "a repetition removes nothing");

    // The next agent starts as on a new node.
    let mut backend = open();
    enforce(&mut backend, 1, &[policy(8081)]);
    assert!(is_open(8081) && !is_open(8080));
    assert_eq!(drift(&mut backend), None);
}

#[test]
fn retired_links_of_tcx_are_open_and_a_file_of_another_owner_stays() {
    let name = "retired_links_of_tcx_are_open_and_a_file_of_another_owner_stays";
    let Some(object) = object(name) else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    let pins = world(bpffs.path());
    let mut backend = EbpfBackend::open(&object, &pins, connections(), Method::Tcx).unwrap();
    enforce(&mut backend, 1, &[policy(8080)]);
    assert!(is_open(8080) && !is_open(8081));
    assert_eq!(tcx_programs("b", Side::Ingress).unwrap(), ["from_pod"]);
    assert_eq!(tcx_programs("b", Side::Egress).unwrap(), ["to_pod"]);
    assert_eq!(tcx_programs("wire", Side::Egress).unwrap(), ["to_wire"]);
    drop(backend);
    let folder = entries(&pins).into_iter().find(|folder| folder.join("flows").exists()).unwrap();
    let foreign = pins.join("of_another_owner");
    hard_link(folder.join("flows"), &foreign).unwrap();

    let removed = Attachments::remove(&pins).unwrap();
    assert_eq!((removed.filters, removed.tcx_links, removed.folders), (0, 5, 2));
    assert!(is_open(8080) && is_open(8081), "all pods are open");
    for link in LINKS {
        for side in [Side::Ingress, Side::Egress] {
            assert_eq!(tcx_programs(link, side).unwrap(), Vec::<String>::new(), "{link} {side:?}");
        }
    }
    assert_eq!(entries(&pins), [foreign]);
    assert!(Attachments::remove(&pins).unwrap().is_empty(), "a repetition removes nothing");
}
