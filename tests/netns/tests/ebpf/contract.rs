//! The contract of backends, for the eBPF backend in the kernel.

use crate::{connections, object, tcx::has_tcx};
use async_trait::async_trait;
use config_model::HostLink;
use datapath_backend::{Backend, BackendError};
use datapath_ebpf::{EbpfBackend, Effects, Hook, Method, Programs};
use datapath_node::{Applied, BackendEvent, Desired, Observed, Retire, Trace};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};
use routing_netlink::{Side, Socket};
use routing_plan::IfIndex;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::PathBuf,
    process::Command,
    sync::{Arc, Mutex},
    thread,
};
use tests_datapath::{Faults, Subject, contract_suite, world};

/// The pods of the suite.
const PODS: [u8; 4] = [1, 2, 3, 4];

/// A network namespace with the host links of the suite's pods, and pinned maps.
struct Node {
    netns: Arc<File>,
    pins: Arc<Pins>,
    effects: Arc<Effects>,
}

/// A folder of pins, and programs with these maps. To load programs takes a long time, so a test uses them again.
struct Pins {
    folder: PathBuf,
    /// The programs that no process has.
    free: Mutex<Vec<Programs>>,
}

thread_local! {
    /// The folders that no node has.
    static FREE: RefCell<Vec<Arc<Pins>>> = const { RefCell::new(Vec::new()) };
}

impl Pins {
    fn new() -> Arc<Self> {
        if let Some(pins) = FREE.with_borrow_mut(Vec::pop) {
            return pins;
        }
        let folder = tempfile::tempdir().unwrap().keep();
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("bpf"), &folder, Some("bpf"), MsFlags::empty(), none).unwrap();
        Arc::new(Self { folder: folder.join("maps"), free: Mutex::default() })
    }

    fn take(&self) -> Programs {
        let free = self.free.lock().unwrap().pop();
        free.unwrap_or_else(|| {
            Programs::load(&object("contract").unwrap(), Some(&self.folder), &connections())
                .unwrap()
        })
    }

    fn give(&self, mut programs: Programs) {
        programs.count_in(Arc::default());
        self.free.lock().unwrap().push(programs);
    }
}

/// A process of the backend on a node.
struct Process {
    netns: Arc<File>,
    pins: Arc<Pins>,
    backend: Option<EbpfBackend>,
}

impl Process {
    fn backend(&mut self) -> &mut EbpfBackend {
        setns(&*self.netns, CloneFlags::CLONE_NEWNET).unwrap();
        self.backend.as_mut().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(backend) = self.backend.take() {
            self.pins.give(backend.into_programs());
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        self.enter();
        // The next node starts with empty maps.
        let mut backend =
            EbpfBackend::over(self.pins.take(), &self.pins.folder, connections()).unwrap();
        backend.clear().unwrap();
        self.pins.give(backend.into_programs());
        FREE.with_borrow_mut(|free| free.push(Arc::clone(&self.pins)));
    }
}

#[async_trait]
impl Backend for Process {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    async fn observe(&mut self) -> Result<Observed, BackendError> {
        self.backend().observe().await
    }

    async fn apply(&mut self, desired: &Desired) -> Applied {
        self.backend().apply(desired).await
    }

    async fn event(&mut self) -> BackendEvent {
        self.backend().event().await
    }

    async fn trace(&mut self, trace: &Trace) -> Result<(), BackendError> {
        self.backend().trace(trace).await
    }

    async fn retire(&mut self, retire: Retire) -> Result<(), BackendError> {
        self.backend().retire(retire).await
    }
}

fn ip(args: &str) {
    let output = Command::new("ip").args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
}

fn add_link(pod: u8) {
    let HostLink { ifindex, name, .. } = world::link(pod);
    ip(&format!("link add index {ifindex} name {name} type veth peer name peer{pod}"));
}

fn pod_of(uid: &str) -> u8 {
    PODS.into_iter().find(|pod| world::uid(*pod) == uid).unwrap()
}

impl Node {
    fn new() -> Self {
        let pins = Pins::new();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let netns = Arc::new(File::open("/proc/thread-self/ns/net").unwrap());
        PODS.into_iter().for_each(add_link);
        Self { netns, pins, effects: Arc::default() }
    }

    fn enter(&self) {
        setns(&*self.netns, CloneFlags::CLONE_NEWNET).unwrap();
    }
}

impl Subject for Node {
    type Backend = Process;

    fn start(&self) -> Process {
        self.enter();
        self.effects.stop_after(None);
        let mut programs = self.pins.take();
        programs.count_in(Arc::clone(&self.effects));
        let backend = EbpfBackend::over(programs, &self.pins.folder, connections()).unwrap();
        let (netns, pins) = (Arc::clone(&self.netns), Arc::clone(&self.pins));
        Process { netns, pins, backend: Some(backend) }
    }

    /// Verdicts, addresses and filters of the pods. Numbers that depend on the history are left out.
    fn in_force(&self) -> Option<BTreeMap<String, String>> {
        self.enter();
        let programs = self.pins.take();
        let held = programs.read().unwrap();
        self.pins.give(programs);
        let half = usize::from(held.generation % 2 == 1);
        let mut state = BTreeMap::new();
        let mut sets = BTreeSet::new();
        for (link, endpoint) in &held.endpoints {
            let row = held.row_of(endpoint);
            sets.extend(row.iter().flat_map(|row| row.0));
            let of = (&endpoint.uid, endpoint.v4, endpoint.v6, row);
            state.insert(format!("endpoint {link}"), format!("{of:?}"));
        }
        let classes = held.classes.iter().filter(|(_, of)| of[half] != u64::MAX);
        state.extend(classes.map(|(at, of)| (format!("class of {at:?}"), of[half].to_string())));
        for (key, number) in held.set_rows.iter().filter(|((set, ..), _)| sets.contains(set)) {
            let table = held.small_tables.get(number);
            state.insert(format!("row {key:?}"), format!("{table:?}"));
        }
        let mut socket = Socket::open().unwrap();
        for pod in PODS {
            for side in [Side::Ingress, Side::Egress] {
                let filters = socket.bpf_filters(IfIndex(world::link(pod).ifindex), side).unwrap();
                let others = filters.iter().filter(|filter| filter.name != Hook::ToWire.name());
                let key = format!("filter {pod} {side:?}");
                state.extend(others.map(|filter| (key.clone(), filter.name.clone())));
            }
        }
        Some(state)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        Some(self)
    }
}

impl Faults for Node {
    fn refuse_endpoint(&self, uid: &str, refused: bool) {
        self.enter();
        let pod = pod_of(uid);
        match refused {
            true => ip(&format!("link del {}", world::link(pod).name)),
            false => add_link(pod),
        }
    }

    fn remove_endpoint(&self, uid: &str, _: bool) {
        self.enter();
        let mut socket = Socket::open().unwrap();
        let link = IfIndex(world::link(pod_of(uid)).ifindex);
        for filter in socket.bpf_filters(link, Side::Ingress).unwrap() {
            assert!(socket.delete_bpf_filter(&filter).unwrap());
        }
    }

    fn cut_after(&self, effects: usize) {
        self.effects.stop_after(Some(effects));
    }

    fn effects(&self) -> usize {
        self.effects.done()
    }
}

contract_suite!(ebpf, Node::new(), |test: &str| object(test).is_some());

/// A message names what is wrong, and the fix.
#[test]
fn a_missing_file_a_wrong_file_and_a_folder_without_bpffs_are_named() {
    let test = "a_missing_file_a_wrong_file_and_a_folder_without_bpffs_are_named";
    let Some(object) = object(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let open = |object: &std::path::Path| match EbpfBackend::open(
        object,
        folder.path(),
        connections(),
        Method::Filters,
    ) {
        Ok(_) => panic!("it opens"),
        Err(error) => error.to_string(),
    };
    let missing = open(&folder.path().join("none.o"));
    assert!(
        missing.contains("none.o") && missing.contains("FERRULE_AGENT_BPF_OBJECT"),
        "{missing}"
    );
    let no_bpffs = open(&object);
    assert!(no_bpffs.contains("mount a bpffs"), "{no_bpffs}");
    let wrong = folder.path().join("wrong.o");
    std::fs::write(&wrong, "no program").unwrap();
    let none = Programs::load(&wrong, None, &connections()).map(drop).unwrap_err().to_string();
    assert!(none.starts_with("cannot load the eBPF programs"), "{none}");
}

/// Its processes may still run when its object is gone.
#[tokio::test]
async fn a_pod_that_has_ended_is_closed_while_its_link_exists() {
    if object("a_pod_that_has_ended_is_closed_while_its_link_exists").is_none() {
        return;
    }
    let node = Node::new();
    let mut series = world::Series::new();
    let mut process = node.start();
    process.apply(&series.next(vec![world::entry(1), world::entry(2)], &[1, 2])).await;
    let state = series.next(Vec::new(), &[2]);
    assert_eq!(process.apply(&state).await, Applied::complete(&state));
    let closed = format!("{:?}", datapath_abi::Row::CLOSED);
    let is_closed = |state: &BTreeMap<String, String>| state["endpoint 11"].contains(&closed);
    let in_force = node.in_force().unwrap();
    assert!(is_closed(&in_force), "{in_force:?}");
    assert_eq!(in_force["filter 1 Ingress"], "from_pod");
    assert_eq!(process.observe().await.unwrap().endpoints, [world::uid(2)].into());
    node.refuse_endpoint(&world::uid(1), true);
    process.apply(&world::whole(&series.next(Vec::new(), &[2]))).await;
    assert!(!node.in_force().unwrap().contains_key("endpoint 11"), "its link is gone");
}

/// The bandwidth plugin adds such a queue. Without the check the kernel would put both programs on its side.
#[tokio::test]
async fn a_link_with_a_queue_for_one_side_needs_tcx() {
    if object("a_link_with_a_queue_for_one_side_needs_tcx").is_none() {
        return;
    }
    let node = Node::new();
    let run = |args: &str| Command::new("tc").args(args.split_whitespace()).status().unwrap();
    assert!(run("qdisc add dev eni1 ingress").success());
    let mut series = world::Series::new();
    let state = series.next(vec![world::entry(1), world::entry(2)], &[1, 2]);
    let mut process = node.start();
    let applied = process.apply(&state).await;
    if has_tcx() {
        assert_eq!(applied, Applied::complete(&state));
        assert_eq!(process.observe().await.unwrap().endpoints.len(), 2);
        return;
    }
    let why = applied.endpoints[&world::uid(1)].as_ref().unwrap_err();
    assert!(why.contains("eni1") && why.contains("ingress"), "{why}");
    assert_eq!(applied.endpoints[&world::uid(2)], Ok(()), "the other pod is enforced");
    assert_eq!(process.observe().await.unwrap().endpoints, [world::uid(2)].into());
    assert!(run("qdisc del dev eni1 ingress").success());
    assert_eq!(process.apply(&world::whole(&state)).await, Applied::complete(&state));
}
