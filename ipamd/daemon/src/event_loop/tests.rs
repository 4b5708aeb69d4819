//! The loop alone, on a disk that is as slow as the test wants.

#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::checkpoint::{Folder, HEADER, Opened, Writer, Written};
use async_trait::async_trait;
use config_model::{
    CardIndex, DeviceIndex, EnforcingMode, EniId, Mac, PodKey, PodName, Span, SubnetId, VpcId,
};
use datapath_rpc::{Admission, Admitted, Agent, AgentPod, wire::StatusReply};
use ipamd_cloud::{Node, TypeLimits};
use ipamd_core::{
    AttachmentState, Cards, Checkpoint, CloudAnswer, CloudFault, NodeFacts, Record, SeenAttachment,
    SeenEni, Start,
};
use runtime_socket::server::{Health, listen};
use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc as blocking,
    },
};

/// A cloud without calls: the pool is large enough.
struct NoCloud;

#[async_trait]
impl Cloud for NoCloud {
    async fn execute(&self, _: CloudCall) -> Result<CloudAnswer, CloudFault> {
        std::future::pending().await
    }

    async fn look(&self, _: Witness, _: &InstanceId) -> Result<Vec<SeenEni>, CloudFault> {
        std::future::pending().await
    }

    async fn node(&self) -> Result<Node, CloudFault> {
        std::future::pending().await
    }

    async fn type_limits(&self, _: &str) -> Result<TypeLimits, CloudFault> {
        std::future::pending().await
    }
}

/// A disk whose appends wait for leave and report how many records they have. A rewrite does not wait.
#[derive(Clone)]
struct SlowDisk {
    /// True if no file can be created.
    is_full: Arc<AtomicBool>,
    leave: Arc<Mutex<blocking::Receiver<()>>>,
    writes: mpsc::UnboundedSender<usize>,
}

impl SlowDisk {
    fn new(leave: blocking::Receiver<()>, writes: mpsc::UnboundedSender<usize>) -> Self {
        Self { is_full: Arc::default(), leave: Arc::new(Mutex::new(leave)), writes }
    }
}

impl Folder for SlowDisk {
    type File = Self;

    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn create(&self, _: &str) -> io::Result<Self> {
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(self.clone()),
        }
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }
}

impl Written for SlowDisk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.starts_with(HEADER) {
            return Ok(());
        }
        let leave = self.leave.lock().unwrap().recv();
        leave.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let _ = self.writes.send(bytes.iter().filter(|byte| **byte == b'\n').count());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const ADDRESSES: u8 = 40;

fn primary() -> SeenEni {
    SeenEni {
        id: EniId::new("eni-0"),
        mac: Mac([2, 0, 0, 0, 0, 0]),
        subnet: SubnetId::new("subnet-1"),
        subnet_cidr: Some("10.0.0.0/24".parse().unwrap()),
        subnet_cidr_v6: None,
        primary_address: Some(Ipv4Addr::new(10, 0, 0, 4)),
        ipv6_addresses: Vec::new(),
        blocks: (0..ADDRESSES).map(|n| IpAddr::from([10, 0, 0, 10 + n]).into()).collect(),
        kind: None,
        groups: None,
        attachment: Some(SeenAttachment {
            id: None,
            instance: InstanceId::new("i-1"),
            card: CardIndex(0),
            device: DeviceIndex(0),
            state: AttachmentState::Attached,
            delete_on_termination: Some(true),
        }),
        tags: Some(BTreeMap::new()),
    }
}

fn beginning(disk: SlowDisk, reservation_lifetime: Span) -> StartState {
    let eni = primary();
    let node = NodeFacts {
        instance_id: InstanceId::new("i-1"),
        primary_eni: eni.id,
        vpc: VpcId::new("vpc-1"),
        zone: "zone-a".to_owned(),
        subnet: eni.subnet,
        subnet_cidr: eni.subnet_cidr,
        subnet_cidr_v6: None,
        security_groups: Vec::new(),
        description: String::new(),
        tags: BTreeMap::new(),
    };
    let limits = Limits::one_card(1, u16::from(ADDRESSES) + 1);
    let targets = PoolConfig { cooldown: Span(0), reservation_lifetime, ..PoolConfig::default() };
    let start = Start { boot_id: "boot".to_owned(), seed: 7 };
    let restored = Checkpoint::default();
    let mut opened = Opened::within(disk).unwrap();
    opened.rewrite(&restored).unwrap();
    let writer = Writer::start(opened.journal, restored.clone()).unwrap();
    StartState {
        core: Core::new(targets.clone(), node, limits.clone(), restored, start, clock::now()),
        cloud: Arc::new(NoCloud),
        instance: InstanceId::new("i-1"),
        limits,
        unknown_limits: None,
        targets,
        writer,
        notices: Vec::new(),
        tombstoned: Vec::new(),
    }
}

fn reserve(n: u8) -> Question {
    Question::Reserve {
        key: PodKey::new("aws-cni", format!("c{n}"), "eth0").unwrap(),
        pod: PodName { namespace: "default".to_owned(), name: format!("pod-{n}") },
        cards: Cards::First,
        branch: None,
        give_up_at: clock::now() + Span::seconds(60),
    }
}

/// A loop that has no address book yet.
fn starting() -> (Inbox, tokio::task::JoinHandle<()>) {
    starting_beside(None)
}

fn starting_beside(agent: Option<AgentAt>) -> (Inbox, tokio::task::JoinHandle<()>) {
    let (inbox, inputs) = Inbox::open();
    let (_, starting) = watch::channel(String::new());
    let around = Deps {
        inbox: inbox.clone(),
        metrics: Arc::new(Metrics::new()),
        repair: Trigger::default(),
        cluster: Cluster::default(),
        agent,
        starting,
        background: tokio::runtime::Handle::current(),
    };
    (inbox, tokio::spawn(EventLoop::new(inputs, around).run()))
}

/// From here on the loop has a book with all addresses.
async fn begin_with(inbox: &Inbox, begin: StartState) {
    inbox.send(Input::Start(Box::new(begin))).await.unwrap();
    let now = clock::now();
    for event in [
        Event::Sighting { witness: Witness::Imds, started: now, enis: vec![primary()] },
        Event::Sighting { witness: Witness::Ec2, started: now, enis: vec![primary()] },
        Event::EniReady { eni: EniId::new("eni-0") },
    ] {
        inbox.send(Input::Cloud(event)).await.unwrap();
    }
    let seen = RepairOutcome {
        started: clock::now(),
        in_use: Default::default(),
        ready: Vec::new(),
        not_ready: Vec::new(),
        disconnected: Vec::new(),
    };
    inbox.send(Input::Repaired(seen)).await.unwrap();
    while inbox.view().await.unwrap().snapshot.counts.usable < u64::from(ADDRESSES) {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn requests_abandoned_during_the_start_are_dropped() {
    let (inbox, task) = starting();
    let key = PodKey::new("aws-cni", "c1", "eth0").unwrap();
    for _ in 0..50 {
        let question = Question::Release { key: key.clone(), cause: ReleaseCause::PodDeleted };
        let asked = tokio::time::timeout(Duration::from_millis(1), inbox.ask(question));
        assert!(asked.await.is_err(), "there is no book yet");
    }
    assert_eq!(inbox.view().await.unwrap().queued, 1);
    inbox.send(Input::Finish).await.unwrap();
    task.await.unwrap();
}

#[tokio::test]
async fn a_burst_of_requests_shares_one_slow_write_and_none_is_answered_before_it() {
    let (leave, wait) = blocking::channel();
    let (told, mut writes) = mpsc::unbounded_channel();
    let (inbox, task) = starting();
    let begin = beginning(SlowDisk::new(wait, told), Span::seconds(60));
    begin_with(&inbox, begin).await;

    let mut burst = JoinSet::new();
    for n in 0..ADDRESSES {
        let inbox = inbox.clone();
        burst.spawn(async move { inbox.ask(reserve(n)).await });
    }
    // The book has assigned all addresses, and the disk has no record yet, so there is no answer.
    while inbox.view().await.unwrap().snapshot.counts.assigned < u32::from(ADDRESSES) {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(burst.try_join_next().is_none(), "answered before it was durable");
    for _ in 0..3 {
        leave.send(()).unwrap();
    }
    let mut addresses = std::collections::BTreeSet::new();
    while let Some(answer) = burst.join_next().await {
        let Answer::Reserved { addresses: held } = answer.unwrap().unwrap() else { panic!() };
        addresses.insert(held[0].address);
    }
    assert_eq!(addresses.len(), usize::from(ADDRESSES), "each has its own");
    inbox.send(Input::Finish).await.unwrap();
    drop(leave);
    task.await.unwrap();
    let mut sizes = Vec::new();
    while let Some(size) = writes.recv().await {
        sizes.push(size);
    }
    assert!(sizes.len() <= 3, "forty requests in {} writes: {sizes:?}", sizes.len());
}

/// The daemon must be able to exit, so the thread of its event loop may not wait for the disk.
#[test]
fn a_full_disk_at_the_end_does_not_hold_the_thread_of_the_event_loop() {
    let (_, wait) = blocking::channel();
    let (written, _writes) = mpsc::unbounded_channel();
    let disk = SlowDisk::new(wait, written);
    let is_full = Arc::clone(&disk.is_full);
    let (report, reported) = blocking::channel();
    let ended = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let begin = beginning(disk.clone(), Span::seconds(60));
            // The append fails, and so does each rewrite from now on.
            disk.is_full.store(true, Ordering::SeqCst);
            begin.writer.write(vec![Record::EniSettled { token: "t".to_owned() }]);
            let background = tokio::runtime::Handle::current();
            let task = tokio::spawn(finish(begin.writer, background));
            // The task starts meanwhile.
            for _ in 0..100 {
                sleep(Duration::from_millis(1)).await;
            }
            report.send(()).unwrap();
            task.await.unwrap();
        });
    });
    reported.recv_timeout(Duration::from_secs(60)).expect("the thread waits for the disk");
    is_full.store(false, Ordering::SeqCst);
    ended.join().unwrap();
}

/// An agent that reports the forgotten pods to the test.
struct Forgetful(mpsc::UnboundedSender<AgentPod>);

impl Agent for Forgetful {
    async fn admit(&self, _: Admission) -> Result<Admitted, tonic::Status> {
        Err(tonic::Status::unimplemented("nobody asks"))
    }

    async fn forget(&self, pod: AgentPod) -> Result<(), tonic::Status> {
        let _ = self.0.send(pod);
        Ok(())
    }

    async fn status(&self) -> Result<StatusReply, tonic::Status> {
        Err(tonic::Status::unimplemented("nobody asks"))
    }
}

#[tokio::test]
async fn a_pod_that_never_started_is_reported_to_the_agent_unless_it_has_another_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("agent.sock");
    let incoming = listen(&socket).await.unwrap();
    let (told, mut forgotten) = mpsc::unbounded_channel();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(async move {
        let health = Health::starting().await;
        let agent = Arc::new(Forgetful(told));
        let stopped = async { drop(stopped.await) };
        datapath_rpc::serve(incoming, agent, &health, stopped).await
    });
    let (leave, wait) = blocking::channel();
    let (written, _writes) = mpsc::unbounded_channel();
    for _ in 0..100 {
        leave.send(()).unwrap();
    }
    let (inbox, task) = starting_beside(Some(AgentAt { socket, mode: EnforcingMode::Strict }));
    let disk = SlowDisk::new(wait, written);
    begin_with(&inbox, beginning(disk, Span::seconds(5))).await;
    // Of pod 1 another sandbox comes to be; that of pod 3 does as well; that of pod 2 never does.
    let mut again = reserve(1);
    let Question::Reserve { key: second, .. } = &mut again else { panic!() };
    *second = PodKey::new("aws-cni", "c1-again", "eth0").unwrap();
    let second = second.clone();
    for question in [reserve(1), again, reserve(3), reserve(2)] {
        let answer = inbox.ask(question).await.unwrap();
        assert!(matches!(answer, Answer::Reserved { .. }), "{answer:?}");
    }
    let third = PodKey::new("aws-cni", "c3", "eth0").unwrap();
    for key in [second, third] {
        let host_interface = "eni0".to_owned();
        let answer = inbox.ask(Question::Confirm { key, host_interface }).await.unwrap();
        assert_eq!(answer, Answer::Confirmed { confirmed: true });
    }
    // Pod 4 reserves when pod 2 has lapsed, and lapses seconds later. A wrong report of pod 1 would arrive between
    // them.
    for pod in [2, 4] {
        if pod == 4 {
            assert!(matches!(inbox.ask(reserve(4)).await.unwrap(), Answer::Reserved { .. }));
        }
        let gone = tokio::time::timeout(Duration::from_secs(60), forgotten.recv()).await;
        let gone = gone.expect("the agent got no report").unwrap();
        let (name, container) = (format!("pod-{pod}"), format!("c{pod}"));
        assert_eq!((gone.name.name.as_str(), gone.container.as_str()), (&*name, &*container));
    }
    inbox.send(Input::Finish).await.unwrap();
    task.await.unwrap();
    stop.send(()).unwrap();
    // Wait until every report has arrived.
    let more = tokio::time::timeout(Duration::from_secs(60), forgotten.recv()).await;
    assert!(more.expect("a report to the agent may still arrive").is_none());
    serving.await.unwrap().unwrap();
}
