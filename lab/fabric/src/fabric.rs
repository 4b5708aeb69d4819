//! One lab's network, and the loop that makes it what is wanted.

use crate::{
    Counters, DesiredFabric, EniSpec, FabricError, Forwarding, INTERNET_HOST, INTERNET_HOST_V6,
    InternetHost, NicProfile, Node, NodeSpec, Power, Removed, Vpc, balancer,
    counters::{Ruleset, RulesetV6},
    enter::{EnterSpec, OWN_BINARY, enter_command},
    internet,
    namespace::{self, Kind, NamespaceSet},
    router, rules,
    state::State,
    tool,
};
use config_model::EniId;
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    net::{IpAddr, SocketAddr, TcpListener},
    path::Path,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// One lab's network.
///
/// Its state is the kernel's and the state directory's: a second process may [`Fabric::open`] it.
/// Dropping it takes nothing down; see [`Fabric::remove`].
#[derive(Debug)]
pub struct Fabric {
    state: State,
    vpc: Vpc,
    /// Links whose late rename is under way, by node and ENI's MAC.
    renaming: Arc<Mutex<BTreeSet<(String, String)>>>,
    /// Changes of calls of [`Fabric::apply`] that failed afterwards.
    unreported: Applied,
}

/// Changes of one [`Fabric::apply`]; all empty if there was no difference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Nodes that came up.
    pub booted: Vec<String>,
    /// Nodes that went down; a rebooted one is in both lists.
    pub halted: Vec<String>,
    /// ENIs that appeared in their node.
    pub attached: Vec<EniId>,
    /// ENIs that vanished.
    pub detached: Vec<EniId>,
    /// Addresses that the router learned or forgot.
    pub remapped: usize,
    /// True if the packet filter changed.
    pub refiltered: bool,
}

impl Fabric {
    /// Creates a lab's VPC and internet namespaces; `state_dir` must be absolute, and empty or absent.
    ///
    /// A call that fails removes its partial work.
    ///
    /// # Errors
    /// A directory that holds a lab already, missing privileges, missing tools.
    pub fn create(state_dir: &Path, vpc: &Vpc) -> Result<Self, FabricError> {
        let fabric = Self::at(State::create(state_dir, vpc)?, vpc.clone());
        match fabric.lay_out() {
            Ok(()) => Ok(fabric),
            Err(error) => {
                // The first error is more useful than an error of the clean-up.
                let _ = Self::remove(state_dir);
                Err(error)
            }
        }
    }

    fn lay_out(&self) -> Result<(), FabricError> {
        self.state.mount_pins()?;
        let (vpc_pin, internet_pin) = (self.state.vpc_pin(), self.state.internet_pin());
        namespace::create("inet", &[(Kind::Net, internet_pin.clone())], || Ok(()))?;
        namespace::create("vpc", &[(Kind::Net, vpc_pin)], || {
            router::set_up(&self.vpc)?;
            internet::connect(&internet_pin, &self.vpc)
        })?;
        self.internet().try_run(|| internet::set_up_host(&self.vpc))
    }

    /// Opens the lab that another process made.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(state_dir: &Path) -> Result<Self, FabricError> {
        let (state, vpc) = State::open(state_dir)?;
        Ok(Self::at(state, vpc))
    }

    fn at(state: State, vpc: Vpc) -> Self {
        Self { state, vpc, renaming: Arc::default(), unreported: Applied::default() }
    }

    /// Removes everything that the directory records, kills the processes in the lab's namespaces, and deletes the
    /// directory. Does nothing if the directory does not exist.
    ///
    /// # Errors
    /// Names the objects that could not be removed; another call continues.
    pub fn remove(state_dir: &Path) -> Result<Removed, FabricError> {
        crate::remove::remove(state_dir)
    }

    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        self.state.root()
    }

    /// The VPC's facts.
    pub fn vpc(&self) -> &Vpc {
        &self.vpc
    }

    /// A handle on a node, which may be off.
    ///
    /// # Errors
    /// When the lab has no node of that name.
    pub fn node(&self, name: &str) -> Result<Node, FabricError> {
        let spec = self.state.node_spec(name)?;
        spec.map(|spec| self.handle(name, spec)).ok_or_else(|| FabricError::NoNode(name.to_owned()))
    }

    /// # Errors
    /// If the state directory cannot be read.
    pub fn nodes(&self) -> Result<Vec<Node>, FabricError> {
        self.state.node_names()?.iter().map(|name| self.node(name)).collect()
    }

    fn handle(&self, name: &str, spec: NodeSpec) -> Node {
        Node::new(self.state.clone(), name, spec)
    }

    fn router(&self) -> NamespaceSet {
        NamespaceSet::net("vpc", &self.state.vpc_pin())
    }

    fn internet(&self) -> NamespaceSet {
        NamespaceSet::net("inet", &self.state.internet_pin())
    }

    /// Counters of the router since the creation of the lab.
    ///
    /// # Errors
    /// If the ruleset cannot be read.
    pub fn counters(&self) -> Result<Counters, FabricError> {
        let (seen, ruleset, v6) = self
            .router()
            .try_run(|| Ok((router::observe()?, Ruleset::observe()?, RulesetV6::observe()?)))?;
        let eni = |alias: String| alias.split(' ').next().map(EniId::new);
        let ports = seen.ports.into_iter().filter_map(|(port, alias)| Some((port, eni(alias)?)));
        Ok(Counters::of(&ruleset, &v6, &ports.collect()))
    }

    /// A TCP listener inside the VPC namespace, where 169.254.169.254 and the EC2 endpoint are.
    ///
    /// # Errors
    /// When the address is taken or is not the VPC's.
    pub fn listen_in_vpc(&self, at: SocketAddr) -> Result<TcpListener, FabricError> {
        self.router().run(|| TcpListener::bind(at))?.map_err(|cause| FabricError::Socket {
            action: "listen",
            place: "vpc".to_owned(),
            cause,
        })
    }

    /// Runs `task` on a thread that is in the VPC's network: the sockets it opens are the VPC's own.
    ///
    /// # Errors
    /// When the VPC is gone.
    pub fn inside_vpc<T: Send>(&self, task: impl FnOnce() -> T + Send) -> Result<T, FabricError> {
        self.router().run(task)
    }

    /// Starts the internet's host: TCP and UDP echo on port 7 of [`crate::INTERNET_HOST`]. ICMP echo
    /// answers without it.
    ///
    /// # Errors
    /// When the ports are taken.
    pub fn serve_internet(&self) -> Result<InternetHost, FabricError> {
        InternetHost::start(&self.internet(), &self.vpc)
    }

    /// As [`Fabric::inside_vpc`], on the internet's host: the sockets it opens are those of a client outside the VPC.
    ///
    /// # Errors
    /// When the host is gone.
    pub fn inside_internet<T: Send>(
        &self,
        task: impl FnOnce() -> T + Send,
    ) -> Result<T, FabricError> {
        self.internet().run(task)
    }

    /// A command that runs on the internet's host, outside the VPC. It has the machine's files.
    pub fn client_command(&self, program: impl AsRef<OsStr>) -> Command {
        let spec = EnterSpec { place: self.internet(), contained: false, cgroup: None };
        enter_command(Path::new(OWN_BINARY), &spec, program.as_ref())
    }

    /// The addresses that a command of [`Fabric::client_command`] has without a choice of its own, one a family.
    pub fn client_addresses(&self) -> Vec<IpAddr> {
        let v6 = (!self.vpc.cidrs_v6.is_empty()).then_some(IpAddr::V6(INTERNET_HOST_V6));
        [IpAddr::V4(INTERNET_HOST)].into_iter().chain(v6).collect()
    }

    /// Makes the router forward new connections for load balancers exactly so. Open connections keep their targets.
    ///
    /// # Errors
    /// If the kernel refuses the rules; the earlier ones then stay.
    pub fn balance(&self, forwardings: &[Forwarding]) -> Result<(), FabricError> {
        let script = balancer::transaction(forwardings, !self.vpc.cidrs_v6.is_empty());
        self.router().try_run(|| tool::nft(&script, "forward connections for load balancers"))
    }

    /// Adds further blocks and subnets to the VPC.
    ///
    /// # Errors
    /// If the router cannot be configured; the next call tries again.
    pub fn grow(&mut self, vpc: &Vpc) -> Result<(), FabricError> {
        if *vpc == self.vpc {
            return Ok(());
        }
        self.router().try_run(|| router::grow(vpc))?;
        self.state.keep_vpc(vpc)?;
        self.vpc = vpc.clone();
        Ok(())
    }

    /// Observes the existing state and changes it to the desired state.
    ///
    /// # Errors
    /// The first step that failed; the next call observes again and continues. The call that succeeds also reports
    /// the changes before that step.
    pub fn apply(&mut self, wanted: &DesiredFabric) -> Result<Applied, FabricError> {
        wanted.check(&self.vpc)?;
        let mut applied = std::mem::take(&mut self.unreported);
        match self.step_by_step(wanted, &mut applied) {
            Ok(()) => Ok(applied),
            Err(err) => {
                self.unreported = applied;
                Err(err)
            }
        }
    }

    fn step_by_step(
        &self,
        wanted: &DesiredFabric,
        applied: &mut Applied,
    ) -> Result<(), FabricError> {
        let gone = self.gone(wanted)?;
        // A node that goes down takes its links with it, at once and not when the kernel finds time.
        let down: BTreeSet<&str> = gone.iter().map(|(node, _)| node.name()).collect();
        let staying = router::plugged(wanted, |node| {
            !down.contains(node)
                && wanted.nodes.get(node).is_some_and(|spec| spec.power == Power::On)
        });
        let (seen, unplugged) = self.router().try_run(|| {
            let seen = router::observe()?;
            let plan = router::plan(&staying, &seen);
            router::remove_ports(&plan.remove)?;
            let seen = if plan.remove.is_empty() { seen } else { router::observe()? };
            Ok((seen, plan.unplugged))
        })?;
        applied.detached.extend(unplugged);
        for (node, ending) in &gone {
            match ending {
                StopKind::Halt => node.halt()?,
                StopKind::Stop => node.halt().and_then(|()| node.note_off())?,
                StopKind::Terminate => node.terminate()?,
            }
            applied.halted.push(node.name().to_owned());
        }
        self.boot(wanted, applied)?;
        self.plug(wanted, &seen, applied)
    }

    /// The nodes that run and are not to, or not in this boot.
    fn gone(&self, wanted: &DesiredFabric) -> Result<Vec<(Node, StopKind)>, FabricError> {
        let mut gone = Vec::new();
        for node in self.nodes()? {
            let ending = match wanted.nodes.get(node.name()) {
                None => StopKind::Terminate,
                Some(spec) if spec.power == Power::Off => StopKind::Stop,
                Some(spec) if spec.boot != node.spec().boot || !node.is_up() => StopKind::Halt,
                Some(_) => continue,
            };
            let was_on = node.spec().power == Power::On;
            if was_on || ending == StopKind::Terminate {
                gone.push((node, ending));
            }
        }
        Ok(gone)
    }

    fn boot(&self, wanted: &DesiredFabric, applied: &mut Applied) -> Result<(), FabricError> {
        for (name, spec) in &wanted.nodes {
            let node = self.handle(name, spec.clone());
            if spec.power == Power::On && !node.is_up() {
                node.boot()?;
                applied.booted.push(name.clone());
            } else if self.state.node_spec(name)?.is_none() {
                self.state.write_node_spec(name, spec)?;
            }
        }
        Ok(())
    }

    /// Ports, routes and rules; the packet filter knows an ENI before its first packet.
    fn plug(
        &self,
        wanted: &DesiredFabric,
        seen: &router::ObservedLinks,
        applied: &mut Applied,
    ) -> Result<(), FabricError> {
        let enis = router::plugged(wanted, |node| {
            wanted.nodes.get(node).is_some_and(|spec| spec.power == Power::On)
        });
        let plan = router::plan(&enis, seen);
        self.router().try_run(|| {
            let ruleset = Ruleset::observe()?;
            let seen_v6 = RulesetV6::observe()?;
            let transactions = [
                rules::transaction(wanted, &enis, &self.vpc, &ruleset),
                rules::v6::transaction(wanted, &enis, &self.vpc, &seen_v6),
            ];
            for transaction in transactions.iter().flatten() {
                rules::commit(transaction)?;
                applied.refiltered = true;
            }
            for (id, index) in plan.attach.iter().zip(seen.top_index + 1..) {
                self.attach(wanted, id, enis[id], index)?;
                applied.detached.retain(|gone| gone != id);
                applied.attached.push(id.clone());
            }
            tool::ip_batch(&plan.mapping, "map addresses to ENIs")
        })?;
        applied.remapped += plan.remapped;
        self.rename_late(wanted, &enis)
    }

    /// Creates the link and configures it as the profile of the node's system requires.
    fn attach(
        &self,
        wanted: &DesiredFabric,
        id: &EniId,
        eni: &EniSpec,
        index: u32,
    ) -> Result<(), FabricError> {
        let spec = &wanted.nodes[&eni.node];
        let node = self.handle(&eni.node, spec.clone());
        let (first, _) = router::link_names(eni, spec.profile);
        router::add_port(id, eni, index, &first, &node.net_pin(), &self.vpc)?;
        match router::configuration(eni, spec.profile, &self.vpc) {
            Some(script) => {
                node.net_place().try_run(|| tool::ip_batch(&script, &format!("configure {first}")))
            }
            None => Ok(()),
        }
    }

    /// Renames what still bears its first name: a little later, on a thread of its own, as udev does.
    fn rename_late(
        &self,
        wanted: &DesiredFabric,
        enis: &BTreeMap<&EniId, &EniSpec>,
    ) -> Result<(), FabricError> {
        for (name, spec) in wanted.nodes.iter().filter(|(_, spec)| {
            spec.power == Power::On && spec.profile == NicProfile::EnsLateRename
        }) {
            let place = self.handle(name, spec.clone()).net_place();
            let links = place.try_run(links)?;
            for eni in enis.values().filter(|eni| eni.node == *name) {
                let (first, last) = router::link_names(eni, spec.profile);
                let mac = eni.mac.to_string();
                let is_due = links.iter().any(|link| link.address == mac && link.ifname == first);
                let key = (name.clone(), mac);
                if is_due && first != last && lock(&self.renaming).insert(key.clone()) {
                    let (place, renaming) = (place.clone(), Arc::clone(&self.renaming));
                    thread::spawn(move || {
                        thread::sleep(RENAME_DELAY);
                        // Gone by now, or not to be renamed while it is up: the next pass looks again.
                        let _ = place.try_run(|| rename(&key.1, &first, &last));
                        lock(&renaming).remove(&key);
                    });
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopKind {
    Halt,
    Stop,
    Terminate,
}

#[derive(serde::Deserialize)]
struct NodeLink {
    ifname: String,
    #[serde(default)]
    address: String,
}

fn links() -> Result<Vec<NodeLink>, FabricError> {
    tool::ip_json(&["link", "show"], "list the node's links")
}

fn rename(mac: &str, first: &str, last: &str) -> Result<(), FabricError> {
    if links()?.iter().any(|link| link.address == mac && link.ifname == first) {
        tool::ip_batch(&format!("link set {first} name {last}\n"), "rename a link late")?;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time between the appearance of a link and its renaming by udev.
const RENAME_DELAY: Duration = Duration::from_millis(100);
