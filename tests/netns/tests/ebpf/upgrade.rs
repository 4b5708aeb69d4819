//! A release with other layouts of maps takes over from the one before, while clients of Services send packets.

use crate::{
    connections,
    existing::desired,
    nat::listen,
    object,
    service::{answer_datagrams, answered, connect_error},
    traffic::{answer, answers, connect_to, in_pod, node},
};
use config_model::Span;
use config_settings::Connections;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Effects, Method};
use datapath_node::{Applied, Desired, Services};
use serde_json::json;
use service_objects::{Service, Slice};
use std::{
    fs::{hard_link, read_dir, remove_file, rename},
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// The Service of pod b's servers.
const VIP: Ipv4Addr = Ipv4Addr::new(172, 20, 0, 1);
/// Each has a server that answers bytes of connections.
const PORTS: [u16; 4] = [8080, 8081, 8082, 8083];
/// A datagram without an answer for so long is lost.
const PATIENCE: Duration = Duration::from_secs(3);
/// With connections in doubt, each would get another backend in three of four cases.
const CONNECTIONS: usize = 16;

/// The connections of TCP port 80 have several backends, the datagrams of port 53 have one.
fn services() -> Services {
    let service = json!({
        "metadata": {"namespace": "x", "name": "s"},
        "spec": {"clusterIPs": [VIP.to_string()], "ports": [
            {"name": "web", "port": 80},
            {"name": "dns", "port": 53, "protocol": "UDP"},
        ]},
    });
    let slice = |port: u16| {
        let ports = match port {
            53 => json!([{"name": "dns", "port": port, "protocol": "UDP"}]),
            _ => json!([{"name": "web", "port": port}]),
        };
        let slice = json!({
            "metadata": {
                "namespace": "x", "name": format!("s-{port}"),
                "labels": {"kubernetes.io/service-name": "s"},
            },
            "addressType": "IPv4", "ports": ports, "endpoints": [{"addresses": ["10.0.0.2"]}],
        });
        Arc::new(Slice::read(&slice).unwrap())
    };
    let mut services = Services::default();
    let service = Arc::new(Service::read(&service).unwrap());
    services.services.insert(service.name.clone(), service);
    for slice in PORTS.into_iter().chain([53]).map(slice) {
        services.slices.insert(slice.name.clone(), slice);
    }
    services
}

fn with_services() -> Connections {
    let untracked_window = Span::seconds(0);
    Connections { services: true, untracked_window, ..connections() }
}

/// Starts an agent that has applied no state.
fn load(object: &Path, pins: &Path) -> EbpfBackend {
    EbpfBackend::open(object, pins, with_services(), Method::Filters).unwrap()
}

/// Puts the Services into force.
fn apply(backend: &mut EbpfBackend) -> Applied {
    let state = Desired { services: Arc::new(services()), ..desired(1, &[]) };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(backend.apply(&state))
}

/// Starts an agent, and puts the Services into force.
fn start(object: &Path, pins: &Path) -> EbpfBackend {
    let mut backend = load(object, pins);
    let applied = apply(&mut backend);
    assert_eq!(applied.in_force, Ok(()));
    assert!(applied.services.is_empty(), "{applied:?}");
    backend
}

fn folders(pins: &Path) -> Vec<PathBuf> {
    let folders = read_dir(pins).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("flows").exists()).collect()
}

/// The kernel's number of a pinned map.
fn id(pin: &Path) -> u32 {
    aya::maps::MapInfo::from_pin(pin).unwrap().id()
}

/// Sends datagrams one after the other until the end. Returns the number of answers, and of datagrams without one.
fn ask(stop: &AtomicBool) -> (u32, u32) {
    let client = UdpSocket::bind("0.0.0.0:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect((VIP, 53)).unwrap();
    let (mut answered, mut lost) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        match client.send(&[7]).and_then(|_| client.recv(&mut [0; 64])) {
            Ok(_) => answered += 1,
            Err(_) => lost += 1,
        }
    }
    (answered, lost)
}

/// Gives the maps in force other layouts than those of the release. An agent knows them by the name of the folder.
fn change_layouts(pins: &Path) -> PathBuf {
    let own = folders(pins);
    let [earlier] = own.as_slice() else { panic!("{own:?}") };
    let renamed = pins.join("maps-0");
    rename(earlier, &renamed).unwrap();
    renamed
}

/// A node whose pod b has the servers. Returns connections of pod a to them by the Service.
fn node_with_connections(object: &Path, bpffs: &Path, pins: &Path) -> Vec<TcpStream> {
    node(bpffs);
    for port in PORTS {
        answer(in_pod("b", move || listen(&format!("0.0.0.0:{port}"))));
    }
    answer_datagrams("b", 53);
    drop(start(object, pins));
    open()
}

/// Opens connections of pod a to the servers.
fn open() -> Vec<TcpStream> {
    let opened = (0..CONNECTIONS).map(|_| connect_to(SocketAddr::from((VIP, 80))).unwrap());
    let opened: Vec<_> = opened.collect();
    assert!(opened.iter().all(answers));
    opened
}

#[test]
fn clients_keep_their_backends_under_a_release_with_other_layouts() {
    let test = "clients_keep_their_backends_under_a_release_with_other_layouts";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let pins = bpffs.path().join("maps");
    let opened = node_with_connections(&object, bpffs.path(), &pins);
    let before = ["choices", "flows"].map(|map| id(&folders(&pins)[0].join(map)));
    change_layouts(&pins);
    let stop = Arc::new(AtomicBool::new(false));
    let client = thread::spawn({
        let stop = Arc::clone(&stop);
        move || in_pod("a", move || ask(&stop))
    });
    drop(start(&object, &pins));
    stop.store(true, Ordering::Relaxed);
    let (answered, lost) = client.join().unwrap();
    assert!(answered > 0 && lost == 0, "{lost} datagrams are lost, {answered} answered");
    assert!(opened.iter().all(answers), "a connection has lost its backend");
    let after = ["choices", "flows"].map(|map| id(&folders(&pins)[0].join(map)));
    assert_eq!(folders(&pins).len(), 1, "the other maps are removed");
    assert_eq!(before[0], after[0], "both releases use one map");
    assert_ne!(before[1], after[1], "its rows have generations of the release");
    drop(open());
}

#[test]
fn new_maps_have_services_before_programs_use_them() {
    let test = "new_maps_have_services_before_programs_use_them";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let pins = bpffs.path().join("maps");
    drop(node_with_connections(&object, bpffs.path(), &pins));
    let before = id(&folders(&pins)[0].join("choices"));
    let earlier = change_layouts(&pins);
    // A map with another number of rows belongs to other layouts. None of the maps is used again.
    remove_file(earlier.join("choices")).unwrap();
    hard_link(earlier.join("outside_choices"), earlier.join("choices")).unwrap();
    let effects = Arc::<Effects>::default();
    for steps in 0.. {
        let mut backend = load(&object, &pins);
        backend.programs().count_in(Arc::clone(&effects));
        effects.stop_after(Some(steps));
        let applied = apply(&mut backend);
        effects.stop_after(None);
        // With programs of both releases at one link, answers have the backend's address.
        let fault = connect_error(SocketAddr::from((VIP, 80)));
        let is_served = matches!(fault, None | Some(ErrorKind::TimedOut));
        assert!(is_served, "after {steps} steps: {fault:?}");
        if applied.in_force.is_ok() {
            break;
        }
    }
    assert!(answered(SocketAddr::from((VIP, 80))));
    assert_ne!(before, id(&folders(&pins)[0].join("choices")));
}
