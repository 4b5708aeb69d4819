//! A scripted daemon behind the real server on the real socket.

use crate::node::Node;
use config_model::{
    DeviceIndex, EnforcingMode, EniId, HostEndMode, HostLink, PodKey, PodName, RuleLayout, TableId,
};
use datapath_rpc::{Admission, Admitted, AgentPod};
use ipamd_npa::wire as agent;
use ipamd_rpc::{
    Assignment, Branch, Collect, Collected, Confirm, Enforcer, PodAddress, PoolStatus, Reason,
    Refusal, Release, Released, Reservation, Reserve, ReserveOutcome,
    server::{self, CallFailed},
    wire,
};
use runtime_socket::server::{self as socket, Health, ListenError};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

/// The daemon's treatment of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DaemonBehavior {
    /// ScriptedAgent like the real daemon.
    #[default]
    Serving,
    /// Never answers.
    Hanging,
    /// Refuses a reserve with this reason.
    Empty(Reason),
    /// ScriptedAgent a reserve, and drops the reservation before its confirm.
    Forgetful,
    /// ScriptedAgent a reserve with the book's branch ENI.
    Branching,
}

type Hook = Box<dyn FnMut(&Reserve) + Send>;

/// The daemon's script, assignments and received requests.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) behavior: DaemonBehavior,
    /// The table of the addresses; `None` is table main.
    pub(crate) table: Option<TableId>,
    /// The branch ENI for the next pod.
    pub(crate) branch: Option<Branch>,
    /// The layout of the rules of pods.
    pub(crate) rules: RuleLayout,
    /// The next addresses to assign, the last one first. If empty, the daemon assigns unused addresses.
    pub(crate) next: Vec<Ipv4Addr>,
    pub(crate) held: BTreeMap<PodKey, (Vec<PodAddress>, bool)>,
    /// The pod of each key, from its reserve.
    pub(crate) names: BTreeMap<PodKey, PodName>,
    /// True if the daemon assigns IPv6 addresses.
    pub(crate) ipv6: bool,
    /// True with dual egress.
    pub(crate) egress: bool,
    /// The mode of host ends.
    pub(crate) host_end: HostEndMode,
    /// The number of network cards. A pod with the annotation gets an address of each.
    pub(crate) cards: u8,
    pub(crate) asked: Vec<String>,
    /// True if the daemon stops answering at the first confirm.
    pub(crate) hangs_on_confirm: bool,
    /// Runs before the answer to a reserve, in the host's namespaces.
    pub(crate) before_reserve: Option<Hook>,
    pub(crate) given: BTreeSet<Ipv4Addr>,
    /// The answer to a status request.
    pub(crate) status: PoolStatus,
    /// The container IDs whose addresses the daemon cannot release.
    pub(crate) unreleasable: BTreeSet<String>,
    /// The policy agent in the answer to a reserve.
    pub(crate) policy: Option<Enforcer>,
    /// The host ends that ferrule-agent received, one list for each admit.
    pub(crate) links: Vec<Vec<HostLink>>,
    /// The delay of aws-network-policy-agent's answers.
    pub(crate) agent_delay: Duration,
    /// The `traceparent` of each request.
    pub(crate) traces: Vec<Option<String>>,
}

impl Book {
    /// Returns a book with addresses of the ENI with table 2.
    pub(crate) fn on_table_2() -> Self {
        Self { table: Some(TableId(2)), ..Self::default() }
    }

    /// Returns a book with aws-network-policy-agent at the node's `npa.sock`.
    pub(crate) fn with_aws_agent(node: &Node) -> Self {
        let mode = EnforcingMode::Strict;
        let policy = Enforcer::NetworkPolicyAgent { socket: node.path(AWS_AGENT), mode };
        Self { policy: Some(policy), ..Self::on_table_2() }
    }

    /// Returns a book with ferrule-agent at the node's `agent.sock`.
    pub(crate) fn with_ferrule_agent(node: &Node, mode: EnforcingMode) -> Self {
        let own = Enforcer::FerruleAgent { socket: node.path(FERRULE_AGENT), mode };
        Self { policy: Some(own), ..Self::on_table_2() }
    }
}

/// A running daemon.
pub(crate) struct Daemon {
    book: Arc<Scripted>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Scripted(Mutex<Book>);

impl Daemon {
    /// Starts a daemon at the node's socket.
    pub(crate) fn start(node: &Node) -> Self {
        Self::start_with(node, Book::default())
    }

    pub(crate) fn start_with(node: &Node, book: Book) -> Self {
        let book = Arc::new(Scripted(Mutex::new(book)));
        let ipam = Arc::clone(&book);
        let serve = async move |incoming| {
            let health = Health::starting().await;
            server::serve(incoming, ipam, &health, pending()).await.unwrap();
        };
        let (stop, thread) = on_a_thread(node, "ipamd.sock", serve);
        Self { book, stop: Some(stop), thread: Some(thread) }
    }

    /// Starts a daemon without a common protocol version with the plugin.
    pub(crate) fn start_of_another_version(node: &Node) -> Self {
        let book = Arc::new(Scripted(Mutex::default()));
        let other = OtherVersion(Arc::clone(&book));
        let serve = async |incoming| {
            let service = wire::ipam_server::IpamServer::new(other);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        };
        let (stop, thread) = on_a_thread(node, "ipamd.sock", serve);
        Self { book, stop: Some(stop), thread: Some(thread) }
    }

    /// Reads or changes the book.
    pub(crate) fn book<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        work(&mut self.book.0.lock().unwrap())
    }

    /// Stops the daemon like SIGKILL: connections break, and the socket's file stays.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// Listens, then serves on a new thread, which inherits the node's namespaces.
fn on_a_thread<F: Future<Output = ()>>(
    node: &Node,
    socket: &str,
    serve: impl FnOnce(socket::Incoming) -> F + Send + 'static,
) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let socket = node.path(socket);
    let (stop, stopped) = oneshot::channel::<()>();
    let (ready, listening) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = listen(&socket).await;
            ready.send(()).unwrap();
            tokio::select! {
                () = serve(incoming) => {}
                _ = stopped => {}
            }
        });
        // Hanging requests must not block the end of the thread.
        runtime.shutdown_background();
    });
    listening.recv().unwrap();
    (stop, thread)
}

/// Listens as soon as the socket is free. A child that another test forks keeps the listener of a killed daemon open
/// until it calls exec.
async fn listen(path: &Path) -> socket::Incoming {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        match socket::listen(path).await {
            Err(ListenError::Served { .. }) if Instant::now() < patience => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome.unwrap(),
        }
    }
}

impl Scripted {
    fn ask(&self, what: &str, key: &PodKey) -> DaemonBehavior {
        let mut book = self.0.lock().unwrap();
        book.asked.push(format!("{what} {}", key.container_id));
        book.behavior
    }

    fn hold(&self, key: &PodKey, every_card: bool) -> Vec<PodAddress> {
        let mut book = self.0.lock().unwrap();
        if let Some((addresses, _)) = book.held.get(key) {
            return addresses.clone();
        }
        let cards = if every_card { book.cards.max(1) } else { 1 };
        let addresses: Vec<PodAddress> =
            (0..cards).map(|card| Self::fresh(&mut book, card)).collect();
        book.held.insert(key.clone(), (addresses.clone(), false));
        addresses
    }

    fn fresh(book: &mut Book, card: u8) -> PodAddress {
        let fresh = (100..250).map(|host| Ipv4Addr::new(10, 0, 0, host));
        let taken = &book.given;
        let fresh = fresh.into_iter().find(|address| !taken.contains(address)).unwrap();
        let ipv4 = book.next.pop().unwrap_or(fresh);
        let table = match card {
            0 => book.table.unwrap_or(TableId::MAIN),
            _ => TableId(10_000 + 100 * u32::from(card)),
        };
        let device = DeviceIndex(if table == TableId::MAIN { 0 } else { 1 });
        let eni = EniId::new("eni-0123456789abcdef0");
        book.given.insert(ipv4);
        let [.., host] = ipv4.octets();
        let ipv6 = format!("2001:db8::{host}").parse().unwrap();
        let (ipv4, ipv6) = if book.ipv6 { (None, Some(ipv6)) } else { (Some(ipv4), None) };
        PodAddress { ipv4, ipv6, device, table, eni: Some(eni) }
    }
}

impl server::Ipam for Scripted {
    async fn reserve(&self, request: Reserve) -> Result<ReserveOutcome, CallFailed> {
        let behavior = self.ask("reserve", &request.key);
        let (key, pod) = (request.key.clone(), request.pod.name.clone());
        self.0.lock().unwrap().names.insert(key, pod);
        match behavior {
            DaemonBehavior::Hanging => pending().await,
            DaemonBehavior::Empty(reason) => Ok(ReserveOutcome::Refused(Refusal {
                reason,
                message: "subnet-0 has no free address".into(),
                next_step: "add a subnet".into(),
            })),
            DaemonBehavior::Branching => {
                let mut book = self.0.lock().unwrap();
                book.held.insert(request.key, (Vec::new(), false));
                let branch = book.branch.clone().unwrap();
                Ok(ReserveOutcome::ReservedBranch(branch))
            }
            DaemonBehavior::Serving | DaemonBehavior::Forgetful => {
                let hook = self.0.lock().unwrap().before_reserve.take();
                if let Some(mut hook) = hook {
                    hook(&request);
                }
                let (rules, egress, host_end) = {
                    let book = self.0.lock().unwrap();
                    (book.rules, book.egress, book.host_end.clone())
                };
                Ok(ReserveOutcome::Reserved(Reservation {
                    addresses: self.hold(&request.key, request.multi_nic),
                    vpc_v4_cidrs: vec!["10.0.0.0/16".parse().unwrap()],
                    use_external_snat: false,
                    rules,
                    egress,
                    host_end,
                }))
            }
        }
    }

    async fn confirm(&self, request: Confirm) -> Result<bool, CallFailed> {
        let behavior = self.ask("confirm", &request.key);
        let is_hanging = {
            let mut book = self.0.lock().unwrap();
            if book.hangs_on_confirm {
                book.behavior = DaemonBehavior::Hanging;
            }
            book.hangs_on_confirm
        };
        if is_hanging || behavior == DaemonBehavior::Hanging {
            pending::<()>().await;
        }
        let mut book = self.0.lock().unwrap();
        if book.behavior == DaemonBehavior::Forgetful {
            book.held.remove(&request.key);
        }
        Ok(match book.held.get_mut(&request.key) {
            Some((_, confirmed)) => {
                *confirmed = true;
                true
            }
            None => false,
        })
    }

    async fn release(&self, request: Release) -> Result<Released, CallFailed> {
        if self.ask(&format!("release {:?}", request.cause), &request.key)
            == DaemonBehavior::Hanging
        {
            pending::<()>().await;
        }
        let held = self.0.lock().unwrap().held.remove(&request.key);
        Ok(held.map_or(Released::Unknown, |(address, _)| Released::Known(address)))
    }

    async fn inspect(&self, key: PodKey) -> Result<Option<Assignment>, CallFailed> {
        if self.ask("inspect", &key) == DaemonBehavior::Hanging {
            pending::<()>().await;
        }
        let book = self.0.lock().unwrap();
        let pod = book.names.get(&key).cloned();
        Ok(book.held.get(&key).map(|(addresses, confirmed)| Assignment {
            pod,
            addresses: addresses.clone(),
            branch: book.branch.clone().filter(|_| addresses.is_empty()),
            confirmed: *confirmed,
            rules: book.rules,
            host_end: book.host_end.clone(),
        }))
    }

    async fn holds(&self, pod: &PodName) -> Result<bool, CallFailed> {
        let book = self.0.lock().unwrap();
        Ok(book.held.keys().any(|key| book.names.get(key) == Some(pod)))
    }

    fn host_end(&self) -> HostEndMode {
        self.0.lock().unwrap().host_end.clone()
    }

    fn enforcer(&self) -> Option<Enforcer> {
        self.0.lock().unwrap().policy.clone()
    }

    async fn status(&self) -> Result<PoolStatus, CallFailed> {
        let behavior = {
            let mut book = self.0.lock().unwrap();
            book.asked.push("status".to_owned());
            book.behavior
        };
        if behavior == DaemonBehavior::Hanging {
            pending::<()>().await;
        }
        Ok(self.0.lock().unwrap().status.clone())
    }

    /// Spares all reservations without a confirm, as if they were young.
    async fn collect(&self, request: Collect) -> Result<Collected, CallFailed> {
        let behavior = self.0.lock().unwrap().behavior;
        if behavior == DaemonBehavior::Hanging {
            pending::<()>().await;
        }
        let mut book = self.0.lock().unwrap();
        let stale = book.held.keys().filter(|key| key.network == request.network);
        let stale = stale.filter(|key| !request.valid.contains(key)).cloned();
        let mut collected = Collected::default();
        for key in stale.collect::<Vec<_>>() {
            if !book.held[&key].1 {
                collected.spared.insert(key);
            } else if book.unreleasable.contains(&key.container_id) {
                collected.failed.insert(key, "its record cannot be written".into());
            } else if let Some((addresses, _)) = book.held.remove(&key) {
                collected.released.insert(key, addresses);
            }
        }
        Ok(collected)
    }
}

/// Refuses every request like a daemon of a much later release.
struct OtherVersion(Arc<Scripted>);

fn too_old<T, R>(other: &OtherVersion, request: &Request<R>) -> Result<Response<T>, Status> {
    let trace = request.metadata().get("traceparent").map(|it| it.to_str().unwrap().to_owned());
    other.0.0.lock().unwrap().traces.push(trace);
    Err(Status::failed_precondition("the daemon speaks protocol version 8 to 9, was asked in 1"))
}

#[tonic::async_trait]
impl wire::ipam_server::Ipam for OtherVersion {
    async fn reserve(
        &self,
        request: Request<wire::ReserveRequest>,
    ) -> Result<Response<wire::ReserveReply>, Status> {
        too_old(self, &request)
    }

    async fn confirm(
        &self,
        request: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::ConfirmReply>, Status> {
        too_old(self, &request)
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseReply>, Status> {
        too_old(self, &request)
    }

    async fn inspect(
        &self,
        request: Request<wire::InspectRequest>,
    ) -> Result<Response<wire::InspectReply>, Status> {
        too_old(self, &request)
    }

    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusReply>, Status> {
        too_old(self, &request)
    }

    async fn collect(
        &self,
        request: Request<wire::CollectRequest>,
    ) -> Result<Response<wire::CollectReply>, Status> {
        too_old(self, &request)
    }
}

/// A scripted aws-network-policy-agent. It records its calls in a daemon's book.
pub(crate) struct AwsAgent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AwsAgent {
    /// Starts the agent at the node's `npa.sock`. It refuses pods if `refusal` is given.
    pub(crate) fn start(node: &Node, daemon: &Daemon, refusal: Option<&'static str>) -> Self {
        let backend = Backend { book: Arc::clone(&daemon.book), refusal };
        let serve = async |incoming| {
            let service = agent::np_backend_server::NpBackendServer::new(backend);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        };
        let (stop, thread) = on_a_thread(node, AWS_AGENT, serve);
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for AwsAgent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

struct Backend {
    book: Arc<Scripted>,
    refusal: Option<&'static str>,
}

#[tonic::async_trait]
impl agent::np_backend_server::NpBackend for Backend {
    async fn enforce_np_to_pod(
        &self,
        asked: Request<agent::EnforceNpRequest>,
    ) -> Result<Response<agent::EnforceNpReply>, Status> {
        let asked = asked.into_inner();
        // The links in the namespace of this thread.
        let links = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let names = links.lines().filter_map(|line| line.split_once(':')).map(|it| it.0.trim());
        let veths: Vec<&str> = names.filter(|name| name.starts_with("eni")).collect();
        let (pod, count) = (asked.k8s_pod_name, asked.interface_count);
        let (namespace, mode) = (asked.k8s_pod_namespace, asked.network_policy_mode);
        let call = format!("enforce {namespace}/{pod} {mode} {count} with {}", veths.join(" "));
        let slow = {
            let mut book = self.book.0.lock().unwrap();
            book.asked.push(call);
            book.agent_delay
        };
        tokio::time::sleep(slow).await;
        match self.refusal {
            Some(why) => Err(Status::internal(why)),
            None => Ok(Response::new(agent::EnforceNpReply { success: true })),
        }
    }

    async fn delete_pod_np(
        &self,
        asked: Request<agent::DeleteNpRequest>,
    ) -> Result<Response<agent::DeleteNpReply>, Status> {
        let asked = asked.into_inner();
        let call = format!("delete {}/{}", asked.k8s_pod_namespace, asked.k8s_pod_name);
        self.book.0.lock().unwrap().asked.push(call);
        Ok(Response::new(agent::DeleteNpReply { success: true }))
    }
}

/// A scripted ferrule-agent. It records its calls in a daemon's book and has one answer for all pods.
pub(crate) struct FerruleAgent {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct ScriptedAgent {
    book: Arc<Scripted>,
    /// True if the first call gets the status `unavailable`, as during a restart.
    ends: AtomicBool,
    answer: Admitted,
}

impl FerruleAgent {
    /// Starts the agent at the node's `agent.sock`.
    pub(crate) fn start(node: &Node, daemon: &Daemon, answer: Admitted) -> Self {
        Self::serve(node, daemon, false, answer)
    }

    /// Starts an agent whose first call fails as during a restart.
    pub(crate) fn restarted(node: &Node, daemon: &Daemon, answer: Admitted) -> Self {
        Self::serve(node, daemon, true, answer)
    }

    fn serve(node: &Node, daemon: &Daemon, ends: bool, answer: Admitted) -> Self {
        let book = Arc::clone(&daemon.book);
        let answers = Arc::new(ScriptedAgent { book, ends: ends.into(), answer });
        let serve = async |incoming| {
            let health = Health::starting().await;
            datapath_rpc::serve(incoming, answers, &health, pending()).await.unwrap();
        };
        let (stop, thread) = on_a_thread(node, FERRULE_AGENT, serve);
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for FerruleAgent {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl datapath_rpc::Agent for ScriptedAgent {
    async fn admit(&self, admission: Admission) -> Result<Admitted, Status> {
        let Admission { pod, addresses, links, mode } = admission;
        let mut book = self.book.0.lock().unwrap();
        let AgentPod { uid, name, container } = pod;
        book.asked.push(format!("admit {name} {uid} in {container} {addresses:?} {mode:?}"));
        book.links.push(links);
        match self.ends.swap(false, Ordering::SeqCst) {
            true => Err(Status::unavailable("the agent is stopping")),
            false => Ok(self.answer.clone()),
        }
    }

    async fn forget(&self, pod: AgentPod) -> Result<(), Status> {
        let mut book = self.book.0.lock().unwrap();
        book.asked.push(format!("forget {} {} in {}", pod.name, pod.uid, pod.container));
        Ok(())
    }

    async fn status(&self) -> Result<datapath_rpc::wire::StatusReply, Status> {
        Ok(Default::default())
    }
}

/// ferrule-agent's socket.
const FERRULE_AGENT: &str = "agent.sock";
/// aws-network-policy-agent's socket.
const AWS_AGENT: &str = "npa.sock";
