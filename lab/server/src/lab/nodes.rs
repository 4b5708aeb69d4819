//! Nodes: instances of the cloud that the fabric turns into namespaces.

use super::{
    Lab, LabError, blocking, desired::subnets, names, provision, supervisor::Supervisor, vpc_cni,
};
use crate::control::{Cni, DaemonOrder, NodeSpec, Profile};
use config_model::{InstanceId, Time};
use lab_cloud::{Cloud, InstanceState, Launch, OperateError, TruthInstance};
use lab_fabric::Node;
use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The lab's data of a node besides its instance.
pub(super) struct NodeEntry {
    pub(super) instance: InstanceId,
    pub(super) instance_type: String,
    pub(super) profile: Profile,
    /// The daemon's settings.
    pub(super) env: Mutex<BTreeMap<String, String>>,
    /// Project of the running daemon.
    pub(super) cni: Mutex<Cni>,
    /// Folder of amazon-vpc-cni's programs; `None` unless the node started with that CNI.
    pub(super) cni_dir: Option<PathBuf>,
    pub(super) supervisor: Supervisor,
}

impl NodeEntry {
    pub(super) fn env(&self) -> BTreeMap<String, String> {
        self.env.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cni(&self) -> Cni {
        *self.cni.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder of amazon-vpc-cni's programs while it is in charge.
    fn vpc_cni(&self) -> Option<&Path> {
        self.cni_dir.as_deref().filter(|_| self.cni() == Cni::AmazonVpcCni)
    }
}

impl Lab {
    /// Launches an instance and waits until it is a node; its name.
    pub(crate) async fn add_node(&self, spec: NodeSpec) -> Result<String, LabError> {
        let name = self.launch(spec)?;
        self.reach(&name, InstanceState::Running).await?;
        Ok(name)
    }

    fn launch(&self, spec: NodeSpec) -> Result<String, LabError> {
        let mut nodes = self.nodes();
        let name = spec.name.clone().unwrap_or_else(|| free_name(&nodes));
        names::check("node", &name, 32)?;
        if nodes.contains_key(&name) {
            return Err(LabError::NodeExists(name));
        }
        let truth = self.cloud.truth();
        let subnets = subnets(&truth);
        let index = spec.subnet.unwrap_or(nodes.len() % subnets.len().max(1));
        let subnet = subnets.get(index);
        let count = subnets.len();
        let subnet = subnet.ok_or(LabError::NoSubnet { index, count })?.id.clone();
        // Under the lock of the nodes, so that a reader of the instance finds its profile.
        let launch = Launch {
            shown_type: spec.shown_type,
            interfaces: spec.interfaces,
            ..Launch::new(&name, &spec.instance_type, subnet)
        };
        let instance = self.cloud.with(|cloud, now| cloud.launch(now, launch))?;
        let entry = NodeEntry {
            instance,
            instance_type: spec.instance_type,
            profile: spec.profile,
            env: Mutex::new(spec.env),
            cni: Mutex::new(spec.cni),
            cni_dir: spec.cni_dir.filter(|_| spec.cni == Cni::AmazonVpcCni),
            supervisor: Supervisor::new(name.clone(), spec.daemon),
        };
        nodes.insert(name.clone(), Arc::new(entry));
        Ok(name)
    }

    /// Terminates the instance, forgets the node and its pods.
    pub(crate) async fn remove_node(&self, name: &str) -> Result<(), LabError> {
        self.terminate_node(name).await?;
        let entry = self.nodes().remove(name);
        if let Some(entry) = entry {
            entry.supervisor.end().await;
        }
        Ok(())
    }

    pub(crate) async fn terminate_node(&self, name: &str) -> Result<(), LabError> {
        self.entry(name)?;
        let gone = self.state(name).is_none_or(|state| state == InstanceState::Terminated);
        if !gone {
            self.operate("terminate", name, Cloud::terminate)?;
        }
        self.reach(name, InstanceState::Terminated).await?;
        self.pods.forget_node(name);
        Ok(())
    }

    pub(crate) async fn reboot_node(&self, name: &str) -> Result<(), LabError> {
        self.operate("reboot", name, Cloud::reboot)?;
        self.reach(name, InstanceState::Running).await
    }

    pub(crate) async fn stop_node(&self, name: &str) -> Result<(), LabError> {
        self.operate("stop", name, Cloud::stop)?;
        self.reach(name, InstanceState::Stopped).await
    }

    pub(crate) async fn start_node(&self, name: &str) -> Result<(), LabError> {
        self.operate("start", name, Cloud::start)?;
        self.reach(name, InstanceState::Running).await
    }

    pub(crate) async fn order_daemon(
        &self,
        name: &str,
        order: DaemonOrder,
    ) -> Result<(), LabError> {
        let entry = self.entry(name)?;
        match order {
            DaemonOrder::Start { env, cni } => {
                entry.env.lock().unwrap_or_else(PoisonError::into_inner).extend(env);
                let node = self.fabric.node(name)?;
                if let Some(cni) = cni {
                    if cni == Cni::AmazonVpcCni && entry.cni_dir.is_none() {
                        return Err(LabError::NotVpcCni(name.to_owned()));
                    }
                    *entry.cni.lock().unwrap_or_else(PoisonError::into_inner) = cni;
                }
                if node.is_up() {
                    self.give_conflist(&entry, &node)?;
                }
                let command = self.daemon_command(&entry, &node);
                entry.supervisor.start(command).await;
                Ok(())
            }
            // The lab writes the conflist of amazon-vpc-cni's nodes.
            DaemonOrder::Install if entry.vpc_cni().is_some() => Ok(()),
            DaemonOrder::Install => {
                let node = self.fabric.node(name)?;
                let env = self.daemon_env(&entry, &node);
                provision::run_installer(&node, &self.bin_dir, &env).await
            }
            DaemonOrder::Stop => {
                entry.supervisor.stop().await;
                Ok(())
            }
            DaemonOrder::Signal { signal } => entry.supervisor.signal(signal, name).await,
        }
    }

    pub(super) fn profiles(&self) -> BTreeMap<String, Profile> {
        self.nodes().iter().map(|(name, entry)| (name.clone(), entry.profile)).collect()
    }

    /// The instance of a node as the cloud has it; `None` once EC2 has forgotten it.
    pub(super) fn instance(&self, name: &str) -> Option<TruthInstance> {
        let id = self.entry(name).ok()?.instance.clone();
        self.cloud.truth().instances.into_iter().find(|instance| instance.id == id)
    }

    pub(super) fn state(&self, name: &str) -> Option<InstanceState> {
        self.instance(name).map(|instance| instance.state)
    }

    /// The fabric is about to take the node down: all that runs in it goes.
    pub(super) async fn halted(&self, name: &str) {
        if let Ok(entry) = self.entry(name) {
            entry.supervisor.power_off().await;
        }
        self.pods.lose_namespaces(name);
    }

    /// The fabric brought the node up: what an image and a DaemonSet would put there, then the
    /// daemon.
    pub(super) async fn booted(&self, name: &str) -> Result<(), LabError> {
        let entry = self.entry(name)?;
        let node = self.fabric.node(name)?;
        let bin_dir = self.bin_dir.clone();
        let prepared = node.clone();
        let cluster = self.cluster.clone();
        let programs = entry.vpc_cni().map(Path::to_owned);
        blocking(move || {
            provision::prepare(&prepared, &bin_dir, cluster.as_ref())?;
            programs.map_or(Ok(()), |programs| vpc_cni::prepare(&prepared, &programs))
        })
        .await?;
        self.give_conflist(&entry, &node)?;
        entry.supervisor.power_on(self.daemon_command(&entry, &node)).await;
        Ok(())
    }

    /// Writes our conflist with the daemon's settings; amazon-vpc-cni writes its own once its agent serves. The lab
    /// does not write ours on a node that started with amazon-vpc-cni.
    fn give_conflist(&self, entry: &Arc<NodeEntry>, node: &Node) -> Result<(), LabError> {
        if entry.cni_dir.is_none() {
            let env = self.daemon_env(entry, node);
            return provision::make_network(node, &self.bin_dir, &env);
        }
        if entry.vpc_cni().is_some() {
            let primary = self
                .instance(node.name())
                .and_then(|instance| instance.enis.first().map(|eni| eni.primary));
            let address = primary.ok_or_else(|| LabError::NoNode(node.name().to_owned()))?;
            tokio::spawn(give_theirs(Arc::clone(entry), node.clone(), address));
        }
        Ok(())
    }

    fn daemon_command(&self, entry: &NodeEntry, node: &Node) -> provision::DaemonCommand {
        let ours = self.daemon_env(entry, node);
        let (node, url) = (node.clone(), self.ec2_url());
        match entry.vpc_cni() {
            Some(programs) => provision::DaemonCommand {
                is_deaf: true,
                node,
                program: programs.join(vpc_cni::AGENT),
                env: vpc_cni::env(&url).into_iter().chain(ours).collect(),
            },
            None => provision::DaemonCommand {
                is_deaf: false,
                node,
                program: self.bin_dir.join(provision::DAEMON),
                env: ours,
            },
        }
    }

    fn daemon_env(&self, entry: &NodeEntry, node: &Node) -> BTreeMap<String, String> {
        provision::daemon_env(node.name(), &self.ec2_url(), self.cluster.as_ref(), &entry.env())
    }

    fn operate(
        &self,
        order: &'static str,
        name: &str,
        act: impl FnOnce(&mut Cloud, Time, &InstanceId) -> Result<(), OperateError>,
    ) -> Result<(), LabError> {
        let instance = self.entry(name)?.instance.clone();
        let node = name.to_owned();
        let outcome = self.cloud.with(|cloud, now| act(cloud, now, &instance));
        outcome.map_err(|cause| LabError::Order { order, node, cause })
    }

    /// Waits until the instance is in this state and the network shows it.
    async fn reach(&self, name: &str, state: InstanceState) -> Result<(), LabError> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let now = self.state(name).unwrap_or(InstanceState::Terminated);
            if now == state {
                return self.settled().await;
            }
            if Instant::now() > give_up {
                let what = format!("node {name} was {}", state.as_str());
                return Err(LabError::Timeout { what, seconds: PATIENCE.as_secs() });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits for amazon-vpc-cni's agent and writes its conflist, unless it has lost its place meanwhile.
async fn give_theirs(entry: Arc<NodeEntry>, node: Node, address: Ipv4Addr) {
    while let Some(programs) = entry.vpc_cni()
        && node.is_up()
    {
        if vpc_cni::serves(&node) {
            let written = vpc_cni::write_conflist(&node, programs, &entry.env(), address);
            if let Err(err) = written {
                tracing::error!(node = node.name(), err = err.chain(), "no conflist");
            }
            return;
        }
        tokio::time::sleep(vpc_cni::LOOK_AGAIN).await;
    }
}

fn free_name(nodes: &BTreeMap<String, Arc<NodeEntry>>) -> String {
    let names = (1..).map(|number: u32| format!("node{number}"));
    let mut free = names.filter(|name| !nodes.contains_key(name));
    free.next().expect("nodes are fewer than numbers")
}

const PATIENCE: Duration = Duration::from_secs(60);
