//! Pins and rows that another process has changed.

use crate::{
    connections,
    existing::enforce,
    object,
    traffic::{answer, answers, connect_to, in_pod, node, policy},
};
use aya::maps::{Array, Map, MapData};
use datapath_abi::{Held, SlotValue, Slots, Write, row_of};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Programs};
use datapath_node::BackendEvent;
use datapath_plan::Address;
use std::{
    collections::BTreeSet,
    fs::{read_dir, remove_dir_all, remove_file},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

/// The time in which a difference is repaired.
const REPAIR: Duration = Duration::from_secs(2);

/// The first drift that the backend reports; `None` if there is none in the time of a repair.
pub(crate) fn drift(backend: &mut EbpfBackend) -> Option<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let first = async {
        loop {
            if let BackendEvent::Drift(why) = backend.event().await {
                return why;
            }
        }
    };
    runtime.block_on(async { tokio::time::timeout(REPAIR, first).await.ok() })
}

/// The pins below a folder.
fn pins_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut pins = BTreeSet::new();
    for entry in read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => pins.extend(pins_below(&entry.path())),
            false => drop(pins.insert(entry.path())),
        }
    }
    pins
}

#[test]
fn pins_and_rows_that_another_process_changes_are_repaired() {
    let Some(object) = object("pins_and_rows_that_another_process_changes_are_repaired") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    let at_b = SocketAddr::from(([10, 0, 0, 2], 8080));
    let pins = bpffs.path().join("maps");
    let load = || Programs::load(&object, Some(&pins), &connections()).unwrap();
    let mut backend = EbpfBackend::over(load(), &pins, connections()).unwrap();
    enforce(&mut backend, 1, &[policy(8080)]);
    let open = connect_to(at_b).unwrap();
    assert!(answers(&open));
    let whole = pins_below(&pins);
    assert!(whole.contains(&pins.join("flows")), "{whole:?}");

    // A removed map, a map in the place of another one, a removed program, and then everything.
    let program = whole.iter().find(|pin| pin.ends_with("to_pod")).unwrap();
    remove_file(pins.join("flows")).unwrap();
    remove_file(pins.join("classes")).unwrap();
    std::fs::hard_link(pins.join("services"), pins.join("classes")).unwrap();
    remove_file(program).unwrap();
    assert_eq!(drift(&mut backend), None);
    assert_eq!(pins_below(&pins), whole);
    remove_dir_all(&pins).unwrap();
    assert_eq!(drift(&mut backend), None);
    assert_eq!(pins_below(&pins), whole);

    // They lead to the maps in use: the next process changes nothing, and knows the connection.
    let held = backend.into_programs().read().unwrap();
    let programs = load();
    assert_eq!(programs.read().unwrap(), held);
    let mut backend = EbpfBackend::over(programs, &pins, connections()).unwrap();
    enforce(&mut backend, 1, &[policy(8080)]);
    assert!(answers(&open));

    // The slot of a row that was removed just before a restart rests too, and is free afterwards.
    let mut other = load();
    let none = &mut Held::default();
    let of = |last: u128| Address(0x2001_0db8 << 96 | last);
    other.write(none, [&Write::Class(of(1), Some([7; 2])), &Write::Class(of(1), None)]).unwrap();
    let mut other = load();
    let mut classes = other.read().unwrap().classes;
    for last in 2..100 {
        other.write(none, [&Write::Class(of(last), Some([8; 2]))]).unwrap();
        classes.insert(of(last), [8; 2]);
    }
    assert_eq!(other.read().unwrap().classes, classes);
    for last in 2..100 {
        other.write(none, [&Write::Class(of(last), None)]).unwrap();
    }
    assert_eq!(load().read().unwrap().classes, held.classes);

    let mut other = load();
    let (half, wrong) = (usize::from(held.generation % 2 == 1), u64::MAX - 1);
    let class = held.classes.iter().find(|(_, of)| of[half] != u64::MAX).unwrap();
    let endpoint = held.endpoints.values().next().unwrap();
    let row = endpoint.slot * 2 + u32::from(held.generation % 2 == 1);
    let (key, _) = held.set_rows.first_key_value().unwrap();
    let rule = held.rules.keys().next().unwrap();
    let table = held.small_tables.keys().next().unwrap();
    for change in [
        Write::Class(*class.0, None),
        Write::Class(*class.0, Some([wrong; 2])),
        Write::Class(Address(7), Some([wrong; 2])),
        Write::SetRow(*key, None),
        Write::SetRow((wrong, 0, 0), Some(0)),
        Write::Rule(*rule, Some(wrong)),
        Write::SmallTable(*table, Box::new([0; 256])),
        Write::Row(row, datapath_abi::Row([wrong; 4])),
    ] {
        other.write(&mut Held::default(), [&change]).unwrap();
        assert!(drift(&mut backend).is_some_and(|why| why.contains("row")), "{change:?}");
        // The agent answers it by a full pass.
        enforce(&mut backend, 1, &[policy(8080)]);
        assert!(connect_to(at_b).is_some_and(|stream| answers(&stream)), "{change:?}");
        assert_eq!(drift(&mut backend), None, "{change:?}");
    }
    // A header that another process has changed, and a row that it has moved to where no program finds it.
    let classes = MapData::from_pin(pins.join("classes")).unwrap();
    let mut classes = Array::<_, SlotValue>::try_from(Map::Array(classes)).unwrap();
    let header = classes.get(&Slots::HEADER, 0).unwrap();
    classes.set(Slots::HEADER, [0; 32], 0).unwrap();
    assert_eq!(drift(&mut backend), None);
    assert_eq!(classes.get(&Slots::HEADER, 0).unwrap(), header);
    assert!(connect_to(at_b).is_some_and(|stream| answers(&stream)));

    let rows = |classes: &Array<MapData, SlotValue>| {
        let rows = (0..).zip(classes.iter()).filter_map(|(entry, value)| {
            row_of(entry, &value.unwrap()).map(|(address, _)| (address, entry))
        });
        rows.collect::<Vec<_>>()
    };
    let (address, entry) = rows(&classes).into_iter().find(|(at, _)| *at == *class.0).unwrap();
    let (count, elsewhere) = (rows(&classes).len(), (entry + 16_384) % 32_768 + 2);
    classes.set(elsewhere, classes.get(&entry, 0).unwrap(), 0).unwrap();
    classes.set(entry, [0; 32], 0).unwrap();
    assert!(drift(&mut backend).is_some_and(|why| why.contains("classes")));
    enforce(&mut backend, 1, &[policy(8080)]);
    assert_eq!(rows(&classes).iter().filter(|(at, _)| *at == address).count(), 1);
    assert_eq!(rows(&classes).len(), count);
    assert_eq!(drift(&mut backend), None);
    assert!(connect_to(at_b).is_some_and(|stream| answers(&stream)));
}
