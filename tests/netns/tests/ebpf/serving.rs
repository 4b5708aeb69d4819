//! Services of desired states, as the agent hands them to the backend.

use crate::{
    connections, detach,
    existing::desired,
    fast::nft,
    nat::listen,
    object,
    outside::connect_by,
    service::{answer_datagrams, answered, any, at, connect_error},
    sockets::CGROUP,
    traffic::{SILENCE, answer, answers, connect_to, in_pod, ip, node, wire},
};
use aya::maps::{Array, HashMap, LpmTrie, Map, MapData, lpm_trie::Key};
use config_model::Span;
use config_settings::Connections;
use control_wire::SharedMap;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Hook, Method, Programs};
use datapath_node::{
    Applied, BackendEvent, Changed, Desired, NodeIdentity, ServiceChanges, Services,
};
use nix::{
    net::if_::if_nametoindex,
    time::{ClockId, clock_gettime},
};
use routing_netlink::{Side, Socket};
use serde_json::json;
use service_abi::{
    BackendRow, FrontendKey, FrontendRow, Held, Mirror, Plan, SourceKey, SourceRange, TableSize,
    Word, Write,
};
use service_core::{Index, NodeView, Place, World};
use service_objects::{ObjectName, Protocol, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The time for which a change may be under way.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time of one look at the backend's events.
const LOOK: Duration = Duration::from_millis(50);
fn vip(last: u8) -> IpAddr {
    IpAddr::from([172, 20, 0, last])
}

/// An agent's backend over a state that changes.
pub(crate) struct Agent {
    backend: EbpfBackend,
    pub(crate) desired: Desired,
    object: PathBuf,
    pins: PathBuf,
}

fn with_services() -> Connections {
    // The pods have no connections that are older than their programs.
    let untracked_window = Span::seconds(0);
    Connections { services: true, untracked_window, ..connections() }
}

impl Agent {
    /// A node with servers in pod b, and a backend that has applied no state.
    fn start(object: &Path, bpffs: &Path) -> Self {
        node(bpffs);
        for port in [8080, 8081] {
            answer(in_pod("b", move || listen(&format!("0.0.0.0:{port}"))));
        }
        Self::of(object, &bpffs.join("maps"), desired(1, &[]))
    }

    /// A backend that has applied no state, in the network namespace of the calling thread.
    pub(crate) fn of(object: &Path, pins: &Path, desired: Desired) -> Self {
        let programs = Programs::load(object, Some(pins), &with_services()).unwrap();
        let backend = EbpfBackend::over(programs, pins, with_services()).unwrap();
        Self { backend, desired, object: object.to_owned(), pins: pins.to_owned() }
    }

    /// The same maps as another process has them.
    pub(crate) fn other(&self) -> Programs {
        Programs::load(&self.object, Some(&self.pins), &with_services()).unwrap()
    }

    /// Ends the process and starts the next one.
    fn restart(self) -> Self {
        let Self { backend, desired, object, pins } = self;
        drop(backend);
        Self::of(&object, &pins, Desired { changed: None, ..desired })
    }

    /// Serves processes of the node too.
    pub(crate) fn with_sockets(self, cgroup: &Path) -> Self {
        Self { backend: self.backend.with_sockets(cgroup).unwrap(), ..self }
    }

    fn run<T>(&mut self, run: impl AsyncFnOnce(&mut EbpfBackend, &Desired) -> T) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(run(&mut self.backend, &self.desired))
    }

    pub(crate) fn apply(&mut self) -> BTreeMap<ObjectName, String> {
        let applied: Applied = self.run(async |backend, desired| backend.apply(desired).await);
        assert_eq!(applied.in_force, Ok(()));
        applied.services
    }

    /// Applies the next state, which differs in some Services and slices. Returns the Services that are not in force.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut Services, &mut ServiceChanges),
    ) -> BTreeMap<ObjectName, String> {
        let mut services = (*self.desired.services).clone();
        let mut changes = ServiceChanges::default();
        change(&mut services, &mut changes);
        let since = self.desired.revision;
        self.desired.changed = Some(Changed { since, services: changes, ..Changed::default() });
        self.desired.revision += 1;
        self.desired.services = Arc::new(services);
        self.apply()
    }

    /// Takes the backend's events, as the agent does, until the condition holds.
    fn until(&mut self, condition: impl Fn(&Programs) -> bool) -> BTreeMap<ObjectName, String> {
        let other = self.other();
        let mut failing = BTreeMap::new();
        let end = std::time::Instant::now() + PATIENCE;
        while !condition(&other) {
            assert!(std::time::Instant::now() < end, "it does not come: {failing:?}");
            let event = async |backend: &mut EbpfBackend, _: &Desired| {
                tokio::time::timeout(LOOK, backend.event()).await.ok()
            };
            match self.run(event) {
                Some(BackendEvent::Services) => failing = self.change(|_, _| {}),
                Some(BackendEvent::Drift(why)) => panic!("policies have not changed: {why}"),
                Some(_) | None => {}
            }
        }
        failing
    }

    fn is_in_force(&self) -> bool {
        is_in_force(&self.desired.services, &self.other())
    }
}

/// True if the maps have the frontends of these Services, and no other row.
fn is_in_force(services: &Services, programs: &Programs) -> bool {
    fn all<V: Clone>(map: &SharedMap<ObjectName, V>) -> BTreeMap<ObjectName, V> {
        map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
    let (node, slices) = (NodeView::default(), all(&services.slices));
    let mut index = Index::of(World { node, services: all(&services.services), slices });
    index.take_changes();
    Mirror::of(programs.read_services().unwrap()).replace(index.frontends()) == Plan::default()
}

fn name(number: u8) -> ObjectName {
    ObjectName::new("x", format!("s{number}"))
}

/// A Service at an address, port 80, with these endpoints.
fn put(number: u8, endpoints: &[SocketAddr]) -> impl FnOnce(&mut Services, &mut ServiceChanges) {
    let service = json!({
        "metadata": {"namespace": "x", "name": format!("s{number}")},
        "spec": {"clusterIPs": [vip(number).to_string()], "ports": [{"port": 80}]},
    });
    let addresses = |port: u16| -> Vec<_> {
        let of_port = endpoints.iter().filter(|at| at.port() == port);
        of_port.map(|at| json!({"addresses": [at.ip().to_string()]})).collect()
    };
    let slices: Vec<_> = [8080, 8081]
        .into_iter()
        .map(|port| {
            let slice = json!({
                "metadata": {
                    "namespace": "x", "name": format!("s{number}-{port}"),
                    "labels": {"kubernetes.io/service-name": format!("s{number}")},
                },
                "addressType": "IPv4", "ports": [{"port": port}], "endpoints": addresses(port),
            });
            Arc::new(Slice::read(&slice).unwrap())
        })
        .collect();
    let service = Arc::new(Service::read(&service).unwrap());
    move |services, changes| {
        for slice in slices {
            changes.slices.insert(slice.name.clone());
            services.slices.insert(slice.name.clone(), slice);
        }
        changes.services.insert(service.name.clone());
        services.services.insert(service.name.clone(), service);
    }
}

fn remove(number: u8) -> impl FnOnce(&mut Services, &mut ServiceChanges) {
    move |services, changes| {
        services.services.remove(&name(number));
        changes.services.insert(name(number));
    }
}

fn b(port: u16) -> SocketAddr {
    at([10, 0, 0, 2], port)
}

#[test]
fn services_of_a_state_are_in_force_and_follow_its_changes() {
    let name = "services_of_a_state_are_in_force_and_follow_its_changes";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    assert_eq!(agent.apply(), BTreeMap::new());
    assert_eq!(agent.change(put(1, &[b(8080)])), BTreeMap::new());
    assert!(answered(at(vip(1), 80)));
    assert_eq!(connect_error(at(vip(1), 81)), Some(ErrorKind::ConnectionRefused), "another port");
    agent.change(put(2, &[]));
    assert_eq!(connect_error(at(vip(2), 80)), Some(ErrorKind::ConnectionRefused), "no endpoints");
    agent.change(put(2, &[b(8081)]));
    assert!(answered(at(vip(2), 80)) && answered(at(vip(1), 80)));
    agent.change(put(1, &[at([10, 0, 0, 9], 8080)]));
    let lost = connect_error(at(vip(1), 80));
    assert_eq!(lost, Some(ErrorKind::NetworkUnreachable), "the backend does not exist");
    agent.change(put(1, &[b(8081)]));
    assert!(answered(at(vip(1), 80)));
    agent.change(remove(2));
    assert!(agent.is_in_force());
    let frontends = agent.other().read_services().unwrap().frontends;
    assert!(frontends.keys().all(|place| *place != port(2)), "{frontends:?}");
}

/// A Service of a load balancer, whose endpoints are on these nodes.
fn balance(nodes: &[&str]) -> impl FnOnce(&mut Services, &mut ServiceChanges) {
    let service = json!({
        "metadata": {"namespace": "x", "name": "s3"},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": [vip(3).to_string()], "ports": [{"port": 80}],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 31007,
        },
    });
    let endpoint = |(number, node): (usize, &&str)| json!({"addresses": [format!("10.0.0.{}", number + 2)], "nodeName": node});
    let endpoints: Vec<_> = nodes.iter().enumerate().map(endpoint).collect();
    let slice = json!({
        "metadata": {
            "namespace": "x", "name": "s3-1", "labels": {"kubernetes.io/service-name": "s3"},
        },
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints,
    });
    let service = Arc::new(Service::read(&service).unwrap());
    let slice = Arc::new(Slice::read(&slice).unwrap());
    move |services, changes| {
        changes.slices.insert(slice.name.clone());
        services.slices.insert(slice.name.clone(), slice);
        changes.services.insert(service.name.clone());
        services.services.insert(service.name.clone(), service);
    }
}

#[test]
fn health_checks_are_those_of_the_services_in_force() {
    let test = "health_checks_are_those_of_the_services_in_force";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.desired.node = Arc::new(NodeIdentity { name: "n1".to_owned(), zone: None });
    agent.apply();
    assert_eq!(agent.backend.health_checks(), None, "no Service is known yet");
    let counts = |agent: &Agent| -> Vec<(u16, usize)> {
        let checks = agent.backend.health_checks().unwrap();
        checks.by_port.iter().map(|(at, check)| (at.port, check.endpoints)).collect()
    };
    agent.change(put(1, &[b(8080)]));
    assert!(counts(&agent).is_empty());
    agent.change(balance(&["n1", "n2", "n1"]));
    assert_eq!(counts(&agent), [(31007, 2)]);
    agent.change(|_, _| {});
    assert_eq!(counts(&agent), [(31007, 2)]);
    agent.change(balance(&["n2"]));
    assert_eq!(counts(&agent), [(31007, 0)]);
    agent.change(remove(3));
    assert!(counts(&agent).is_empty());
}

/// The links of the pods that the fast path can reach.
pub(crate) fn fast_links(pins: &Path) -> BTreeSet<u32> {
    let map = Map::from_map_data(MapData::from_pin(pins.join("fast_pods")).unwrap()).unwrap();
    let map: HashMap<_, [u8; 16], [u8; 20]> = HashMap::try_from(map).unwrap();
    let rows = map.iter().map(|row| row.unwrap().1);
    rows.map(|row| u32::from_ne_bytes([row[0], row[1], row[2], row[3]])).collect()
}

#[test]
fn the_fast_path_reaches_the_pods_whose_links_have_no_queue() {
    let test = "the_fast_path_reaches_the_pods_whose_links_have_no_queue";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    let pins = agent.pins.clone();
    let [a, b] = ["a", "b"].map(|pod| if_nametoindex(pod).unwrap());
    assert_eq!(fast_links(&pins), [a, b].into());
    let begun = |agent: &Agent| agent.other().counters().unwrap()["fast_path"];
    assert!(answered(at(vip(1), 80)) && answered(at(vip(1), 80)));
    assert!(begun(&agent) > 0);
    let tc = |args: &str| {
        let words = args.split_whitespace();
        assert!(std::process::Command::new("tc").args(words).status().unwrap().success());
    };
    tc("qdisc add dev b root pfifo limit 100");
    agent.until(|_| fast_links(&pins) == [a].into());
    let before = begun(&agent);
    assert!(answered(at(vip(1), 80)));
    assert_eq!(begun(&agent), before, "its packets pass the queue");
    tc("qdisc del dev b root");
    agent.until(|_| fast_links(&pins) == [a, b].into());
    // Another process removes a row.
    let map = Map::from_map_data(MapData::from_pin(pins.join("fast_pods")).unwrap()).unwrap();
    let mut map: HashMap<_, [u8; 16], [u8; 20]> = HashMap::try_from(map).unwrap();
    let key = map.keys().next().unwrap().unwrap();
    map.remove(&key).unwrap();
    agent.until(|_| fast_links(&pins) == [a, b].into());
    // The rows are those of the next process too.
    let mut agent = agent.restart();
    assert_eq!(fast_links(&pins), [a, b].into());
    agent.apply();
    assert_eq!(fast_links(&pins), [a, b].into());
}

#[test]
fn the_first_connection_to_a_pod_that_has_sent_nothing_takes_the_fast_path() {
    let test = "the_first_connection_to_a_pod_that_has_sent_nothing_takes_the_fast_path";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    // The kernel asks both pods for their MACs.
    agent.until(|programs| programs.silent_pods().unwrap().is_empty());
    let begun = |agent: &Agent| agent.other().counters().unwrap()["fast_path"];
    assert_eq!(begun(&agent), 0);
    assert!(answered(at([10, 0, 0, 2], 8080)));
    assert_eq!(begun(&agent), 1);
    assert!(answered(at(vip(1), 80)));
    assert_eq!(begun(&agent), 2);
    let figures = agent.run(async |backend, _| backend.figures());
    assert_eq!(figures.packets["fast_path"], 2);
    assert!(!figures.packets.contains_key("chosen_for_pod"), "{figures:?}");
    assert_eq!(figures.services.unwrap().choices["pod"], 1);
}

fn port(number: u8) -> Place {
    Place::Port(vip(number), 80, Protocol::Tcp)
}

#[test]
fn the_next_process_takes_services_over() {
    let Some(object) = object("the_next_process_takes_services_over") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    agent.change(put(2, &[b(8081)]));
    let rows = agent.other().read_services().unwrap();
    let services = Arc::clone(&agent.desired.services);
    let mut agent = agent.restart();
    assert!(answered(at(vip(1), 80)));
    // No source has sent Services to this process yet.
    agent.desired.services = Arc::default();
    assert_eq!(agent.apply(), BTreeMap::new());
    assert_eq!(agent.other().read_services().unwrap(), rows, "the rows stay");
    agent.desired.services = services;
    assert_eq!(agent.apply(), BTreeMap::new());
    assert_eq!(agent.other().read_services().unwrap(), rows, "a state in force needs no write");
    assert!(answered(at(vip(1), 80)) && answered(at(vip(2), 80)));
    // Services have changed while no process ran.
    let mut agent = agent.restart();
    let mut services = (*agent.desired.services).clone();
    remove(1)(&mut services, &mut ServiceChanges::default());
    put(2, &[b(8080)])(&mut services, &mut ServiceChanges::default());
    agent.desired.services = Arc::new(services);
    assert_eq!(agent.apply(), BTreeMap::new());
    assert!(agent.is_in_force());
    assert!(answered(at(vip(2), 80)));
}

#[test]
fn rows_of_services_that_another_process_changes_are_repaired() {
    let name = "rows_of_services_that_another_process_changes_are_repaired";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080), b(8081)]));
    agent.change(put(2, &[b(8081)]));
    let held = |agent: &Agent| -> Held { agent.other().read_services().unwrap() };
    type Change = fn(&Held) -> Write;
    fn row(held: &Held) -> FrontendRow {
        held.frontends[&port(1)]
    }
    fn table(held: &Held) -> service_abi::TableSlot {
        let Word::Table { slot, .. } = held.words[&row(held).word] else { panic!("{held:?}") };
        slot
    }
    let changes: [(&str, Change); 8] = [
        ("a removed frontend", |_| Write::RemoveFrontend(port(1))),
        ("a foreign frontend", |held| Write::Frontend(port(9), row(held))),
        ("words of another frontend", |held| {
            Write::Frontend(port(1), FrontendRow { word: 2, ..row(held) })
        }),
        ("another affinity", |held| {
            Write::Frontend(port(1), FrontendRow { affinity: 9, ..row(held) })
        }),
        ("another word", |held| Write::Word(row(held).word, Word::NoEndpoints)),
        ("an empty table", |held| Write::Table(table(held), [0; 16].as_slice().into())),
        ("a removed backend", |held| {
            let number = held.tables[&table(held)][0];
            Write::Backend(number, BackendRow { is_present: false, ..held.backends[number] })
        }),
        ("a moved backend", |held| {
            let number = held.tables[&table(held)][1];
            let at = Some(SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 1)));
            Write::Backend(number, BackendRow { at, ..held.backends[number] })
        }),
    ];
    for (what, change) in changes {
        let write = change(&held(&agent));
        agent.other().write_services(&[write]).unwrap();
        assert!(!agent.is_in_force(), "{what}");
        let services = Arc::clone(&agent.desired.services);
        let failing = agent.until(|programs| is_in_force(&services, programs));
        assert_eq!(failing, BTreeMap::new(), "{what}");
        for _ in 0..4 {
            assert!(answered(at(vip(1), 80)), "{what}");
        }
    }
    // A key that no release writes.
    let pin = MapData::from_pin(agent.pins.join("frontends")).unwrap();
    let mut frontends = HashMap::<_, [u8; 24], [u8; 8]>::try_from(Map::HashMap(pin)).unwrap();
    let mut key = FrontendKey::from(port(1)).0;
    key[23] = 1;
    frontends.insert(key, [0; 8], 0).unwrap();
    agent.until(|_| frontends.get(&key, 0).is_err());
    assert!(answered(at(vip(1), 80)));
}

/// A Service with a load balancer's address for clients in these ranges.
fn put_balancer(
    number: u8,
    ranges: &[&str],
) -> impl FnOnce(&mut Services, &mut ServiceChanges) + use<> {
    let service = json!({
        "metadata": {"namespace": "x", "name": format!("s{number}")},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": [vip(number).to_string()],
            "ports": [{"port": 80}], "loadBalancerSourceRanges": ranges,
        },
        "status": {"loadBalancer": {"ingress": [{"ip": external(number).to_string()}]}},
    });
    let service = Arc::new(Service::read(&service).unwrap());
    move |services, changes| {
        put(number, &[b(8080)])(services, changes);
        services.services.insert(service.name.clone(), service);
    }
}

/// The address of a load balancer.
fn external(number: u8) -> IpAddr {
    IpAddr::from([203, 0, 113, number])
}

#[test]
fn source_ranges_are_in_force_and_rows_that_another_process_changes_are_repaired() {
    let test = "source_ranges_are_in_force_and_rows_that_another_process_changes_are_repaired";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    // A range that cannot be read does not count.
    assert_eq!(agent.change(put_balancer(1, &["10.0.0.2/32", "10.0.0.1/33"])), BTreeMap::new());
    assert_eq!(connect_error(at(external(1), 80)), Some(ErrorKind::TimedOut));
    assert!(answered(at(vip(1), 80)), "the cluster IP has no ranges");
    agent.change(put_balancer(2, &["0.0.0.0/0"]));
    agent.change(put_balancer(1, &["10.0.0.0/24", "192.0.2.0/24"]));
    assert!(answered(at(external(1), 80)) && answered(at(external(2), 80)));
    let is_in_force = |agent: &Agent| {
        let services = Arc::clone(&agent.desired.services);
        move |programs: &Programs| is_in_force(&services, programs)
    };
    // The rows of earlier ranges are removed.
    agent.until(is_in_force(&agent));
    let agent_row = |agent: &Agent| {
        let held = agent.other().read_services().unwrap();
        held.frontends[&Place::Port(external(1), 80, Protocol::Tcp)]
    };
    let of = |range: &str| SourceRange::from(range.parse::<ipnet::IpNet>().unwrap());
    type Change = fn(FrontendRow, SourceRange) -> Vec<Write>;
    let changes: [(&str, &str, Change); 4] = [
        ("a removed range", "10.0.0.0/24", |row, range| vec![Write::RemoveSource(row.word, range)]),
        ("an added range", "0.0.0.0/0", |row, range| vec![Write::Source(row.word, range)]),
        ("a range of no frontend", "0.0.0.0/0", |_, range| vec![Write::Source(40, range)]),
        ("a row without ranges", "::/0", |row, _| {
            let place = Place::Port(external(1), 80, Protocol::Tcp);
            vec![Write::Frontend(place, FrontendRow { has_sources: false, ..row })]
        }),
    ];
    for (what, range, change) in changes {
        let writes = change(agent_row(&agent), of(range));
        agent.other().write_services(&writes).unwrap();
        assert!(!agent.is_in_force(), "{what}");
        assert_eq!(agent.until(is_in_force(&agent)), BTreeMap::new(), "{what}");
        assert!(answered(at(external(1), 80)), "{what}");
    }
    // A key that no release writes: all clients of all frontends.
    let pin = MapData::from_pin(agent.pins.join("source_ranges")).unwrap();
    let mut sources = LpmTrie::<_, [u8; 20], u32>::try_from(Map::LpmTrie(pin)).unwrap();
    let key = Key::new(0, [0; 20]);
    sources.insert(&key, 1, 0).unwrap();
    agent.until(|_| sources.get(&key, 0).is_err());
    agent.until(is_in_force(&agent));
    // The next process finds the ranges.
    let rows = agent.other().read_services().unwrap();
    let mut agent = agent.restart();
    assert_eq!(agent.apply(), BTreeMap::new());
    assert_eq!(agent.other().read_services().unwrap(), rows);
    assert_eq!(rows.sources.values().map(|of| of.len()).sum::<usize>(), 3, "{rows:?}");
    agent.change(put_balancer(1, &["192.0.2.0/24"]));
    assert_eq!(connect_error(at(external(1), 80)), Some(ErrorKind::TimedOut));
    agent.until(is_in_force(&agent));
    let row = agent_row(&agent);
    let held = agent.other().read_services().unwrap();
    assert_eq!(
        held.sources[&row.word]
            .iter()
            .map(|of| SourceKey::new(row.word, *of).length)
            .collect::<Vec<_>>(),
        [32 + 96 + 24]
    );
}

/// An API server refuses these objects today. Objects of an earlier API server can have such parts.
#[test]
fn parts_that_cannot_be_read_are_left_out_and_other_services_are_served() {
    let test = "parts_that_cannot_be_read_are_left_out_and_other_services_are_served";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    let unusable = ["fd00::1", "127.0.0.1", "169.254.169.254", "10.0.0.2.1"];
    let slice = |addresses: &[&str]| {
        let endpoints: Vec<_> = addresses.iter().map(|at| json!({"addresses": [at]})).collect();
        let slice = json!({
            "metadata": {
                "namespace": "x", "name": "s2-8080", "labels": {"kubernetes.io/service-name": "s2"},
            },
            "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints,
        });
        Arc::new(Slice::read(&slice).unwrap())
    };
    let with = |slice: Arc<Slice>| {
        move |services: &mut Services, changes: &mut ServiceChanges| {
            put(2, &[])(services, changes);
            services.slices.insert(slice.name.clone(), slice);
        }
    };
    let bad = slice(&unusable);
    assert_eq!(bad.problems.len(), unusable.len(), "{bad:?}");
    assert_eq!(agent.change(with(bad)), BTreeMap::new());
    let refused = connect_error(at(vip(2), 80));
    assert_eq!(refused, Some(ErrorKind::ConnectionRefused), "no endpoint can be used");
    let mixed = slice(&[&unusable[..], &["10.0.0.2"]].concat());
    assert_eq!(agent.change(with(mixed)), BTreeMap::new());
    for _ in 0..8 {
        assert!(answered(at(vip(2), 80)), "the usable endpoint has all clients");
    }
    agent.change(put_balancer(3, &["10.0.0.0/33"]));
    assert!(!answered(at(external(3), 80)), "no range is left");
    assert!(answered(at(vip(3), 80)), "the ranges are those of the load balancer's address");
    agent.change(put_balancer(3, &["10.0.0.0/33", "10.0.0.0/8"]));
    assert!(answered(at(external(3), 80)));
    assert!(answered(at(vip(1), 80)) && agent.is_in_force());
}

#[test]
fn a_service_without_room_for_its_source_ranges_serves_no_client_there() {
    let test = "a_service_without_room_for_its_source_ranges_serves_no_client_there";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    let many = |count: u16| -> Vec<String> {
        let range = |number: u16| {
            let [high, low] = number.to_be_bytes();
            format!("10.7.{high}.{low}/32")
        };
        (0..count).map(range).chain(["10.0.0.0/24".to_owned()]).collect()
    };
    let of =
        |ranges: &[String]| put_balancer(1, &ranges.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(agent.change(of(&many(8191))), BTreeMap::new());
    assert!(answered(at(external(1), 80)));
    let failing = agent.change(put_balancer(2, &["10.0.0.0/24"]));
    let why = "the map source_ranges is full: it has 8192 rows; remove Services, endpoints or source ranges";
    assert_eq!(failing, BTreeMap::from([(name(2), why.to_owned())]));
    // The node has no kube-proxy, which would serve it.
    assert!(connect_error(at(external(2), 80)).is_some());
    assert!(answered(at(vip(2), 80)));
    agent.change(of(&many(10)));
    agent.until(|_| (1..=2).all(|number| connect_error(at(external(number), 80)).is_none()));
    assert_eq!(agent.change(|_, _| {}), BTreeMap::new(), "it is no longer reported");
    assert!(answered(at(external(1), 80)));
}

#[test]
fn a_service_without_room_is_reported_and_follows_when_there_is_some() {
    let test = "a_service_without_room_is_reported_and_follows_when_there_is_some";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    // A large table each. Of 600 backends each Service lacks another one.
    let of = |number: u8| -> Vec<SocketAddr> {
        let all = (0..600_u16).filter(|last| *last != u16::from(number));
        all.map(|last| {
            let [high, low] = last.to_be_bytes();
            at([10, 8, high, low], 8080)
        })
        .collect()
    };
    for number in 1..=32 {
        assert_eq!(agent.change(put(number, &of(number))), BTreeMap::new(), "Service {number}");
    }
    let failing = agent.change(put(33, &of(33)));
    let why = format!(
        "the map {} is full: it has 32 rows; remove Services, endpoints or source ranges",
        TableSize::Large.map()
    );
    assert_eq!(failing, BTreeMap::from([(name(33), why)]));
    // Other Services are in force, also those that come later.
    assert_eq!(agent.change(put(34, &[b(8080)])).len(), 1);
    assert!(answered(at(vip(34), 80)));
    agent.change(remove(1));
    let has_row =
        |programs: &Programs| programs.read_services().unwrap().frontends.contains_key(&port(33));
    agent.until(has_row);
    let failing = agent.change(|_, _| {});
    assert_eq!(failing, BTreeMap::new(), "it is no longer reported");
    assert!(agent.is_in_force());
}

/// True if a process of the node reaches a Service.
fn reached(number: u8) -> bool {
    TcpStream::connect_timeout(&at(vip(number), 80), SILENCE).is_ok()
}

#[test]
fn processes_of_the_node_are_served_again_after_their_programs_were_removed() {
    let test = "processes_of_the_node_are_served_again_after_their_programs_were_removed";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path()).with_sockets(Path::new(CGROUP));
    agent.apply();
    assert!(!reached(1));
    assert_eq!(agent.change(put(1, &[b(8080)])), BTreeMap::new());
    assert!(reached(1));
    let pins = bpffs.path().join("sockets");
    let count = move || std::fs::read_dir(&pins).map_or(0, Iterator::count);
    let all = count();
    std::fs::remove_dir_all(bpffs.path().join("sockets")).unwrap();
    agent.until(|_| count() == all);
    assert!(reached(1));
    // The next process serves no Services.
    drop(agent);
    let other = bpffs.path().join("other");
    let programs = Programs::load(&object, Some(&other), &connections()).unwrap();
    let backend = EbpfBackend::over(programs, &other, connections()).unwrap();
    backend.with_sockets(Path::new(CGROUP)).unwrap();
    assert_eq!(count(), 0);
    // The kernel detaches them after a grace period.
    let end = std::time::Instant::now() + PATIENCE;
    while reached(1) {
        assert!(std::time::Instant::now() < end, "the programs are attached");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn the_network_namespace_of_the_node_is_repaired() {
    let Some(object) = object("the_network_namespace_of_the_node_is_repaired") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path()).with_sockets(Path::new(CGROUP));
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    let pin = MapData::from_pin(agent.pins.join("node_namespace")).unwrap();
    let mut namespace = Array::<_, u64>::try_from(Map::Array(pin)).unwrap();
    let own = namespace.get(&0, 0).unwrap();
    for other in [0, own + 1] {
        namespace.set(0, other, 0).unwrap();
        assert!(!reached(1), "processes of this namespace have no Services");
        agent.until(|_| namespace.get(&0, 0).unwrap() == own);
        assert!(reached(1));
    }
}

/// A Service with node port 30080 and one endpoint.
fn put_node_port(
    number: u8,
    endpoint: SocketAddr,
) -> impl FnOnce(&mut Services, &mut ServiceChanges) {
    let endpoints = [endpoint];
    let service = json!({
        "metadata": {"namespace": "x", "name": format!("s{number}")},
        "spec": {
            "type": "NodePort", "clusterIPs": [vip(number).to_string()],
            "ports": [{"port": 80, "nodePort": 30_080}],
        },
    });
    let service = Arc::new(Service::read(&service).unwrap());
    move |services, changes| {
        put(number, &endpoints)(services, changes);
        services.services.insert(service.name.clone(), service);
    }
}

/// True if a client outside reaches the node port.
fn reached_from_outside() -> bool {
    in_pod("out", || TcpStream::connect_timeout(&at([10, 9, 0, 1], 30_080), SILENCE).is_ok())
}

#[test]
fn clients_outside_are_served_again_after_their_program_or_address_was_removed() {
    let test = "clients_outside_are_served_again_after_their_program_or_address_was_removed";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    wire();
    ip("route add default via 10.9.0.2 dev wire");
    answer(in_pod("out", || listen("0.0.0.0:8080")));
    agent.apply();
    // The backend is on another node, which is that of the client.
    assert_eq!(agent.change(put_node_port(1, at([10, 9, 0, 2], 8080))), BTreeMap::new());
    assert!(reached_from_outside());
    let pin = MapData::from_pin(agent.pins.join("wires")).unwrap();
    let mut wires = HashMap::<_, u32, [u8; 64]>::try_from(Map::HashMap(pin)).unwrap();
    let link = if_nametoindex("wire").unwrap();
    let row = wires.get(&link, 0).unwrap();
    let keys = ["10.9.0.1", "::", "10.9.0.2", "::"].map(|at| match at.parse::<IpAddr>().unwrap() {
        IpAddr::V4(at) => at.to_ipv6_mapped().octets(),
        IpAddr::V6(at) => at.octets(),
    });
    assert_eq!(row.as_slice(), keys.as_flattened(), "addresses, then gateways");
    // New links have events for a while. None of the later changes has one beside it.
    for gateway in [[10, 9, 0, 3], [10, 9, 0, 2]].repeat(4).into_iter().map(Ipv4Addr::from) {
        ip(&format!("route replace default via {gateway} dev wire"));
        let key = gateway.to_ipv6_mapped().octets();
        agent.until(|_| wires.get(&link, 0).is_ok_and(|row| row[32..48] == key));
    }
    let foreign = [7; 64];
    for (key, value) in [(link, None), (link, Some(foreign)), (u32::MAX, Some(foreign))] {
        match value {
            Some(value) => wires.insert(key, value, 0).unwrap(),
            None => wires.remove(&key).unwrap(),
        }
        agent.until(|_| {
            wires.get(&link, 0).is_ok_and(|of| of == row) && wires.get(&u32::MAX, 0).is_err()
        });
        assert!(reached_from_outside());
    }
    detach(Hook::FromWire, "wire");
    assert!(!reached_from_outside());
    agent.until(|_| reached_from_outside());
    // The address of a link that comes later.
    ip("link add name later type veth peer name later netns out");
    ip("link set later up");
    ip("addr add 10.7.0.1/24 dev later");
    let later = if_nametoindex("later").unwrap();
    agent.until(|_| wires.get(&later, 0).is_ok());
    ip("addr del 10.7.0.1/24 dev later");
    agent.until(|_| wires.get(&later, 0).is_err());
    // The next process serves no Services.
    drop(agent);
    let none = bpffs.path().join("none");
    let programs = Programs::load(&object, Some(&none), &connections()).unwrap();
    let mut backend = EbpfBackend::over(programs, &none, connections()).unwrap();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let applied = runtime.block_on(backend.apply(&desired(1, &[])));
    assert_eq!(applied.in_force, Ok(()));
    assert!(!reached_from_outside());
    let mut socket = Socket::open().unwrap();
    let index = socket.index_of("wire").unwrap().unwrap();
    assert_eq!(socket.bpf_filters(index, Side::Ingress).unwrap(), []);
    assert_eq!(socket.bpf_filters(index, Side::Egress).unwrap().len(), 1);
}

#[test]
fn without_cgroup_v2_pods_are_served_and_each_service_has_the_cause() {
    let test = "without_cgroup_v2_pods_are_served_and_each_service_has_the_cause";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path()).with_sockets(empty.path());
    agent.apply();
    let failing = agent.change(put(1, &[b(8080)]));
    let cause = failing.get(&name(1)).map_or("", String::as_str);
    assert!(cause.contains("has no cgroup v2"), "{failing:?}");
    assert!(answered(at(vip(1), 80)) && !reached(1));
}

/// A Service for datagrams at an address, port 53, with these endpoints. Their port is 5353.
fn put_datagrams(
    number: u8,
    endpoints: &[SocketAddr],
) -> impl FnOnce(&mut Services, &mut ServiceChanges) {
    let (ports, label) = ([53, 5353], format!("s{number}"));
    let [port, of_endpoints] = ports.map(|port| json!([{"port": port, "protocol": "UDP"}]));
    let service = json!({
        "metadata": {"namespace": "x", "name": label},
        "spec": {"clusterIPs": [vip(number).to_string()], "ports": port},
    });
    let addresses: Vec<_> =
        endpoints.iter().map(|at| json!({"addresses": [at.ip().to_string()]})).collect();
    let slice = json!({
        "metadata": {
            "namespace": "x", "name": format!("{label}-udp"),
            "labels": {"kubernetes.io/service-name": label},
        },
        "addressType": "IPv4", "ports": of_endpoints, "endpoints": addresses,
    });
    let service = Arc::new(Service::read(&service).unwrap());
    let slice = Arc::new(Slice::read(&slice).unwrap());
    move |services, changes| {
        changes.slices.insert(slice.name.clone());
        services.slices.insert(slice.name.clone(), slice);
        changes.services.insert(service.name.clone());
        services.services.insert(service.name.clone(), service);
    }
}

/// A UDP socket of the node with a peer.
fn connected(from: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(from).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.connect(to).unwrap();
    socket
}

fn is_answered(socket: &UdpSocket) -> bool {
    socket.send(&[7]).is_ok() && socket.recv(&mut [0; 64]).is_ok()
}

/// True if the kernel has closed all sockets.
fn are_closed(sockets: &[UdpSocket]) -> bool {
    sockets.iter().all(|socket| socket.peer_addr().is_err())
}

#[test]
fn connected_sockets_of_removed_backends_are_closed() {
    let Some(object) = object("connected_sockets_of_removed_backends_are_closed") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path()).with_sockets(Path::new(CGROUP));
    agent.apply();
    for pod in ["a", "b"] {
        answer_datagrams(pod, 5353);
    }
    let [old, new] = [2, 1].map(|last| at([10, 0, 0, last], 5353));
    assert_eq!(agent.change(put_datagrams(1, &[old])), BTreeMap::new());
    let IpAddr::V4(address) = vip(1) else { panic!("it is an IPv4 address") };
    let services = [at(vip(1), 53), at(address.to_ipv6_mapped(), 53)];
    let sockets = [connected("0.0.0.0:0", services[0]), connected("[::]:0", services[1])];
    // These have no removed backend: the pod itself is the peer, or the socket has no peer.
    let direct = connected("0.0.0.0:0", old);
    let without_peer = UdpSocket::bind("0.0.0.0:0").unwrap();
    without_peer.set_read_timeout(Some(SILENCE)).unwrap();
    let ask = || {
        without_peer.send_to(&[7], services[0]).unwrap();
        without_peer.recv_from(&mut [0; 64]).map(|(_, from)| from).map_err(|error| error.kind())
    };
    assert!(sockets.iter().chain([&direct]).all(is_answered));
    assert_eq!(ask(), Ok(services[0]));
    // A second backend changes nothing.
    agent.change(put_datagrams(1, &[old, new]));
    agent.change(put_datagrams(1, &[new]));
    agent.until(|_| are_closed(&sockets));
    for (socket, service) in sockets.iter().zip(services) {
        let error = socket.recv(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(error, Err(ErrorKind::ConnectionAborted), "{service}");
        // The process connects again, and gets a backend that exists.
        socket.connect(service).unwrap();
        assert!(is_answered(socket), "{service}");
    }
    assert_eq!(ask(), Ok(services[0]));
    assert!(is_answered(&direct));
    assert_eq!(direct.peer_addr().unwrap(), old);
}

#[test]
fn the_next_process_closes_sockets_of_backends_that_were_removed_before() {
    let test = "the_next_process_closes_sockets_of_backends_that_were_removed_before";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path()).with_sockets(Path::new(CGROUP));
    agent.apply();
    let [old, new] = [2, 1].map(|last| at([10, 0, 0, last], 5353));
    agent.change(put_datagrams(1, &[old]));
    agent.change(put_datagrams(2, &[new]));
    let gone = [connected("0.0.0.0:0", at(vip(1), 53))];
    let kept = connected("0.0.0.0:0", at(vip(2), 53));
    // The process ends after the rows are written, and before it looks for sockets.
    agent.change(put_datagrams(1, &[new]));
    assert!(!are_closed(&gone));
    let mut agent = agent.restart().with_sockets(Path::new(CGROUP));
    assert_eq!(agent.apply(), BTreeMap::new());
    agent.until(|_| are_closed(&gone));
    assert_eq!(kept.peer_addr().unwrap(), at(vip(2), 53));
}

/// A connection of pod a from this port. Its end leaves no socket that waits.
fn connect_from(port: u16, to: SocketAddr) -> TcpStream {
    in_pod("a", move || connect_by(any(to, port), to, SILENCE).unwrap())
}

#[test]
fn a_process_without_services_keeps_the_open_connections_of_an_earlier_one() {
    let test = "a_process_without_services_keeps_the_open_connections_of_an_earlier_one";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    for port in [8080, 8081] {
        answer(in_pod("b", move || listen(&format!("0.0.0.0:{port}"))));
    }
    let pins = bpffs.path().join("pins");
    let start = |connections| {
        let backend = EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap();
        let (desired, pins) = (desired(1, &[]), pins.clone());
        Agent { backend, desired, object: object.clone(), pins }
    };
    let without_services = || Connections { services: false, ..with_services() };
    let count = |pins: &Path| fs::read_dir(pins).unwrap().count();
    let mut agent = start(with_services());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    let stream = connect_to(at(vip(1), 80)).unwrap();
    assert!(answers(&stream) && answered(at(vip(1), 80)));
    assert!(answers(&connect_from(40_000, at(vip(1), 80))));
    drop(agent);
    // Twice: the second process finds no frontends.
    for _ in 0..2 {
        let mut agent = start(without_services());
        assert!(answers(&stream), "before the first state");
        agent.apply();
        assert!(answers(&stream));
        // Not even the stack translates a new connection.
        assert!(connect_error(at(vip(1), 80)).is_some());
        assert!(agent.backend.health_checks().is_none());
    }
    // netfilter translates a new connection. An earlier one from the same port does not lead its packets elsewhere.
    let chain = "type nat hook prerouting priority -100";
    let rule = "ip daddr 172.20.0.1 tcp dport 80 dnat to 10.0.0.2:8081";
    nft(&format!("table ip t {{ chain c {{ {chain}; {rule}\n}}\n}}"));
    assert!(answers(&connect_from(40_000, at(vip(1), 80))));
    nft("flush ruleset");
    // The Services are switched on again.
    let mut agent = start(with_services());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    assert!(answers(&stream) && answered(at(vip(1), 80)));
    drop(agent);
    // All connections have ended.
    let mut folders = fs::read_dir(&pins).unwrap().flatten().map(|entry| entry.path());
    let folder = folders.find(|path| path.join("choices").exists()).unwrap();
    let choices = MapData::from_pin(folder.join("choices")).unwrap();
    let mut choices = HashMap::<_, [u8; 40], [u8; 32]>::try_from(Map::LruHashMap(choices)).unwrap();
    for key in choices.keys().collect::<Result<Vec<_>, _>>().unwrap() {
        choices.remove(&key).unwrap();
    }
    let mut agent = start(without_services());
    agent.apply();
    assert!(!answers(&stream));
    assert!(!folder.exists() && count(&pins) == 1, "the maps of Services are removed");
}

#[test]
fn a_client_keeps_its_backend_for_a_minute_after_its_last_packet() {
    let test = "a_client_keeps_its_backend_for_a_minute_after_its_last_packet";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(1, &[b(8080)]));
    drop(connect_from(40_000, at(vip(1), 80)));
    let choices = MapData::from_pin(agent.pins.join("choices")).unwrap();
    let mut choices = HashMap::<_, [u8; 40], [u8; 32]>::try_from(Map::LruHashMap(choices)).unwrap();
    let rows: Vec<_> = choices.iter().collect::<Result<_, _>>().unwrap();
    let [(key, row)] = rows[..] else { panic!("{rows:?}") };
    for (age, is_kept) in
        [(0, true), (59_000, true), (61_000, false), (-500, true), (-2_000, false)]
    {
        let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
        let then = i64::try_from(now.as_millis()).unwrap() - age;
        let seen = (u64::try_from(then).unwrap() * 1_000_000) >> 20;
        let mut earlier = row;
        earlier[28..].copy_from_slice(&seen.to_ne_bytes()[..4]);
        choices.insert(key, earlier, 0).unwrap();
        let mut chosen = || agent.backend.programs().counters().unwrap()["chosen_for_pod"];
        let before = chosen();
        drop(connect_from(40_000, at(vip(1), 80)));
        assert_eq!(chosen() == before, is_kept, "{age} ms");
    }
}

#[test]
fn a_client_leaves_a_backend_that_stays_in_another_service_only() {
    let test = "a_client_leaves_a_backend_that_stays_in_another_service_only";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(&object, bpffs.path());
    agent.apply();
    agent.change(put(2, &[b(8080)]));
    let mut ports = Vec::new();
    for port in [8080, 8081] {
        agent.change(put(1, &[b(port)]));
        drop(connect_from(40_000, at(vip(1), 80)));
        let choices = MapData::from_pin(agent.pins.join("choices")).unwrap();
        let choices = HashMap::<_, [u8; 40], [u8; 32]>::try_from(Map::LruHashMap(choices)).unwrap();
        for row in choices.iter() {
            let (_, choice) = row.unwrap();
            ports.push(u16::from_ne_bytes([choice[16], choice[17]]));
        }
    }
    assert_eq!(ports, [8080, 8081]);
}
