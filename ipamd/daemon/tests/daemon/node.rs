//! A node for one test: a state folder, a kernel in memory, and the daemons that run on it.

use crate::cloud::{FakeCloud, mac};
use config_model::{PodKey, PodName, Span, registry};
use config_settings::Settings;
use ipamd_cloud::Cloud;
use ipamd_daemon::{Access, Connect, Daemon, Metrics, ProcSys, Trigger};
use ipamd_rpc::{
    Client, Collect, Collected, Confirm, Pod, PodAddress, PoolStatus, Release, ReleaseCause,
    Released, Reserve, ReserveOutcome,
};
use routing_netfilter::Tools;
use routing_netlink::{Kernel, KernelError};
use routing_plan::{Applied, LinkKind, LinkRef, Observed, Op, SysctlName, pod::PodNet};
use runtime_socket::{probe, server::HealthName};
use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tests_support::FakeKernel;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    task::JoinHandle,
};

/// Longer than anything here takes, on a machine with other work as well.
const PATIENCE: Duration = Duration::from_secs(60);

/// Clones are the same kernel.
#[derive(Clone)]
pub(crate) struct SharedKernel(pub(crate) Arc<Mutex<FakeKernel>>);

impl Kernel for SharedKernel {
    async fn observe(&mut self) -> Result<Observed, KernelError> {
        Ok(self.0.lock().unwrap().observe())
    }

    async fn apply(&mut self, ops: &[Op]) -> Applied {
        self.0.lock().unwrap().apply(ops)
    }
}

pub(crate) struct TestNode {
    pub(crate) folder: TempDir,
    pub(crate) cloud: FakeCloud,
    pub(crate) kernel: SharedKernel,
    pub(crate) changes: Trigger,
    pub(crate) metrics: Arc<Metrics>,
    env: Vec<(String, String)>,
    access: Access,
    runtime: Runtime,
}

/// As in production, the event loop and the plugin's requests have a runtime with one thread.
pub(crate) struct Running {
    runtime: Runtime,
    requests: std::thread::JoinHandle<()>,
    end_requests: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
    stop: oneshot::Sender<()>,
}

impl TestNode {
    pub(crate) fn new(cloud: FakeCloud) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sys/net/ipv4")).unwrap();
        fs::write(folder.path().join("sys/net/ipv4/ip_forward"), "1\n").unwrap();
        let mut kernel = FakeKernel::default();
        for n in 0..2 {
            kernel.add_link(&format!("ens{n}"), mac(n), LinkKind::Device);
        }
        let forward = SysctlName::new("net/ipv4/ip_forward").unwrap();
        kernel.state.sysctls.insert(forward, "0".to_owned());
        Self {
            folder,
            cloud,
            kernel: SharedKernel(Arc::new(Mutex::new(kernel))),
            changes: Trigger::default(),
            metrics: Arc::new(Metrics::new()),
            env: Vec::new(),
            access: Access::default(),
            runtime: Runtime::new().unwrap(),
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a kubeconfig with an address where no server listens.
    #[must_use]
    pub(crate) fn with_a_silent_api_server(mut self) -> Self {
        let path = self.folder.path().join("kubeconfig");
        let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
            "clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
            "users":[{"name":"u","user":{}}],
            "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}"#;
        fs::write(&path, text).unwrap();
        self.access = Access { kubeconfig: Some(path), in_pod: false };
        self.with("MY_NODE_NAME", "n1")
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("ipamd.sock")
    }

    pub(crate) fn introspection(&self) -> PathBuf {
        self.folder.path().join("introspection.sock")
    }

    pub(crate) fn tombstones(&self) -> PathBuf {
        self.folder.path().join("state").join(registry::TOMBSTONE_DIR)
    }

    pub(crate) fn start(&self) -> Running {
        self.start_in("boot-1")
    }

    /// A daemon in this boot of the machine.
    pub(crate) fn start_in(&self, boot_id: &str) -> Running {
        let own = [
            ("FERRULE_SOCKET", self.socket().display().to_string()),
            ("FERRULE_STATE_DIR", self.path("state")),
            ("FERRULE_PROC_SYS_NET", self.path("sys/net")),
            ("AWS_VPC_K8S_CNI_BACKING_STORE", self.path("aws-node/ipam.json")),
            ("INTROSPECTION_BIND_ADDRESS", format!("unix:{}", self.introspection().display())),
            ("DISABLE_METRICS", "true".to_owned()),
            ("IP_COOLDOWN_PERIOD", "0".to_owned()),
            ("WARM_IP_TARGET", "1".to_owned()),
            // No netfilter is in reach.
            ("AWS_VPC_K8S_CNI_EXTERNALSNAT", "true".to_owned()),
            ("AWS_VPC_CNI_NODE_PORT_SUPPORT", "false".to_owned()),
        ];
        let env = own.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let (settings, _) = Settings::resolve(env.chain(self.env.iter().cloned())).unwrap();
        let cloud = self.cloud.clone();
        let connect: Connect = Box::new(move || {
            let cloud: Arc<dyn Cloud> = Arc::new(cloud.clone());
            Box::pin(async move { Ok(cloud) })
        });
        let runtime = Runtime::new().unwrap();
        let of_requests = Builder::new_current_thread().enable_all().build().unwrap();
        let requests = of_requests.handle().clone();
        let (end_requests, ended) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || of_requests.block_on(async { drop(ended.await) }));
        let daemon = Daemon {
            requests,
            connect,
            kernel: self.kernel.clone(),
            // This machine's own is not a test's to change.
            netfilter: Tools::none(),
            changes: self.changes.clone(),
            proc_sys: ProcSys::at(&settings.proc_sys_net),
            boot_id: boot_id.to_owned(),
            kubernetes: ipamd_daemon::kubernetes(&settings, self.access.clone(), boot_id),
            metrics: Arc::clone(&self.metrics),
            metrics_port: 0,
            settings,
        };
        let (stop, stopped) = oneshot::channel();
        let task = runtime.spawn(ipamd_daemon::run(daemon, async {
            let _ = stopped.await;
        }));
        Running { runtime, requests: thread, end_requests, task, stop }
    }

    fn client(&self) -> Client {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(Client::connect(&self.socket(), deadline)).unwrap()
    }

    pub(crate) fn reserve(&self, key: &PodKey, wait: Duration) -> ReserveOutcome {
        self.runtime.block_on(self.reserving(key, wait))
    }

    /// The same, to be waited for side by side with other things.
    pub(crate) fn reserving(
        &self,
        key: &PodKey,
        wait: Duration,
    ) -> impl Future<Output = ReserveOutcome> + Send + use<> {
        let (socket, key) = (self.socket(), key.clone());
        async move {
            let deadline = Instant::now() + PATIENCE;
            let client = Client::connect(&socket, deadline).await.unwrap();
            let wait = Span::millis(u64::try_from(wait.as_millis()).unwrap());
            let request = Reserve {
                pod: Pod { name: pod_of(&key), uid: None, infra_container_id: None },
                key,
                netns: "/run/netns/x".to_owned(),
                wait,
                multi_nic: false,
            };
            client.reserve(request, deadline).await.unwrap()
        }
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(future)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn confirm(&self, key: &PodKey) -> bool {
        let request = Confirm { key: key.clone(), host_interface: "eni0".to_owned() };
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.client().confirm(request, deadline)).unwrap()
    }

    pub(crate) fn release(&self, key: &PodKey) -> Released {
        let request = Release { key: key.clone(), pod: None, cause: ReleaseCause::PodDeleted };
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.client().release(request, deadline)).unwrap()
    }

    pub(crate) fn held(&self, key: &PodKey) -> Option<(Ipv4Addr, bool)> {
        let deadline = Instant::now() + PATIENCE;
        let held = self.runtime.block_on(self.client().inspect(key.clone(), deadline)).unwrap()?;
        Some((held.addresses[0].ipv4.unwrap(), held.confirmed))
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.client().status(deadline)).unwrap()
    }

    pub(crate) fn collect(&self, request: Collect) -> Collected {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(self.client().collect(request, deadline)).unwrap()
    }

    pub(crate) fn health(&self, name: HealthName) -> bool {
        let deadline = Instant::now() + PATIENCE;
        self.runtime.block_on(probe(&self.socket(), name, deadline)).unwrap()
    }

    /// Reserves, builds the pod's plumbing in the kernel, confirms: an ADD.
    pub(crate) fn add(&self, key: &PodKey) -> PodAddress {
        let held = address_of(self.reserve(key, PATIENCE));
        self.build(key, &held);
        assert!(self.confirm(key));
        held
    }

    /// The reservation of an ADD that is repeated.
    pub(crate) fn add_again(&self, key: &PodKey) -> PodAddress {
        address_of(self.reserve(key, PATIENCE))
    }

    /// A pod's plumbing as amazon-vpc-cni makes it: the host end carries no key.
    pub(crate) fn build_unmarked(&self, key: &PodKey, address: Ipv4Addr) {
        let held = PodAddress {
            ipv4: Some(address),
            ipv6: None,
            device: config_model::DeviceIndex(0),
            table: config_model::TableId::MAIN,
            eni: Some(config_model::EniId::new("eni-0")),
        };
        self.build(key, &held);
        let mut kernel = self.kernel.0.lock().unwrap();
        let name = config_model::VethName::of("eni", &pod_of(key), 0);
        let link = kernel.state.links.values_mut().find(|link| link.name == name.as_str());
        link.unwrap().alias = None;
    }

    fn build(&self, key: &PodKey, held: &PodAddress) {
        let net = PodNet {
            key: key.clone(),
            veth: config_model::VethName::of("eni", &pod_of(key), 0),
            number: 0,
            address: held.all().next().unwrap(),
            table: held.table,
            layout: config_model::RuleLayout::PerPod,
            host_end: routing_plan::pod::HostEnd::Routed,
            mtu: 9001,
            branch: None,
        };
        let mut kernel = self.kernel.0.lock().unwrap();
        let number = u8::try_from(kernel.state.links.len()).unwrap();
        let index = kernel.add_link(net.veth.as_str(), mac(100 + number), LinkKind::Veth);
        let link = LinkRef { index, name: net.veth.to_string() };
        let up =
            Op::new(routing_plan::Subject::Address(net.address), routing_plan::Action::SetUp(link));
        let applied = kernel.apply(&[vec![up], net.host_batch(index)].concat());
        assert_eq!(applied.refused, []);
    }

    /// Returns whether the kernel has a rule to this address.
    pub(crate) fn is_routed(&self, address: Ipv4Addr) -> bool {
        let observed = self.kernel.0.lock().unwrap().observe();
        routing_plan::addresses_in_use(&observed).contains(&address.into())
    }
}

impl Running {
    /// Ends the daemon as SIGKILL does, without answers or writes.
    pub(crate) fn crash(self) {
        drop(self.end_requests);
        self.requests.join().unwrap();
        self.runtime.shutdown_timeout(PATIENCE);
    }

    /// As by SIGTERM.
    pub(crate) fn terminate(self) {
        self.stop.send(()).unwrap();
        self.runtime.block_on(self.task).unwrap().unwrap();
        drop(self.end_requests);
        self.requests.join().unwrap();
    }
}

pub(crate) fn key(id: &str) -> PodKey {
    PodKey::new(registry::CNI_NETWORK, id, "eth0").unwrap()
}

fn pod_of(key: &PodKey) -> PodName {
    PodName { namespace: "default".to_owned(), name: format!("pod-{}", key.container_id) }
}

pub(crate) fn address_of(outcome: ReserveOutcome) -> PodAddress {
    match outcome {
        ReserveOutcome::Reserved(held) => held.addresses[0].clone(),
        ReserveOutcome::ReservedBranch(branch) => panic!("{branch:?}"),
        ReserveOutcome::Refused(refusal) => panic!("{refusal:?}"),
    }
}
