//! What is seen of a node, in the words of the plan.

use config_model::{CardIndex, DeviceIndex, Mac, Migration, PodKey, PodName, TableId};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr};

/// What was looked at, or why it could not be.
pub type Looked<T> = Result<T, String>;

/// Everything that the plan asks for.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The files in the runtime's folder of network configurations.
    pub conflists: Looked<Vec<File>>,
    /// amazon-vpc-cni.
    pub theirs: Theirs,
    /// Ferrule.
    pub ours: Ours,
    /// Calls of plugins that are under way.
    pub calls: Looked<Calls>,
    /// Links, rules and routes.
    pub kernel: Looked<Kernel>,
    /// The node's ENIs, as its metadata service tells them.
    pub enis: Looked<Vec<Eni>>,
    /// What the runtime keeps of ADDs, by file name.
    pub results: Looked<Vec<File>>,
    /// Which way the node was last told to go.
    pub journal: Looked<Option<Migration>>,
    /// Nanoseconds since 1970.
    pub unix_nanos: u64,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in its folder.
    pub name: String,
    /// What it holds.
    pub bytes: Looked<Vec<u8>>,
}

/// amazon-vpc-cni.
#[derive(Clone, Debug)]
pub struct Theirs {
    /// Whether its agent answers at its socket, and not our daemon in its place.
    pub serves: bool,
    /// Its checkpoints: `ipam.json`, and one for each further network card.
    pub checkpoints: Looked<Vec<File>>,
    /// The policy agent beside it.
    pub policy: Policy,
}

/// aws-network-policy-agent.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Its socket.
    pub socket: String,
    /// Whether it answers there.
    pub serves: bool,
    /// The BPF programs on the host's veths, whosoever they are.
    pub programs: Looked<Vec<Program>>,
    /// Its folder of pins.
    pub folder: String,
    /// What lies below that folder, whosoever it is, such as `maps/global_policy_events`.
    pub pins: Looked<Vec<String>>,
}

/// A BPF program on a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// The link.
    pub link: String,
    /// Whether it sees what the link receives, not what it sends.
    pub ingress: bool,
    /// What whoever attached it calls it.
    pub name: String,
    /// The chain of filters that it is in.
    pub chain: u32,
    /// Its place there.
    pub priority: u16,
    /// The ethertype that it sees, 3 for all.
    pub protocol: u16,
    /// Its number among those of its priority.
    pub handle: u32,
}

/// Ferrule.
#[derive(Clone, Debug)]
pub struct Ours {
    /// Whether a daemon has the checkpoint.
    pub runs: bool,
    /// Whether the daemon says that it serves.
    pub ready: bool,
    /// Whether the daemon is told to serve a policy agent.
    pub policy_agent: bool,
    /// What its checkpoint holds; `None` if there is none.
    pub held: Looked<Option<Vec<Held>>>,
    /// The interfaces whose DEL the daemon has not heard of yet.
    pub buried: Looked<Vec<PodKey>>,
    /// Whether netfilter has a table of ours.
    pub table: Looked<bool>,
}

/// An interface that our daemon holds addresses for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The interface.
    pub key: PodKey,
    /// Its pod; `None` if it is not known.
    pub pod: Option<PodName>,
    /// Its addresses, one for each network card, each with its ENI's place.
    pub addresses: Vec<(IpAddr, CardIndex, DeviceIndex)>,
    /// Whether its ADD came to its end.
    pub confirmed: bool,
}

/// Plugins that run just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Of amazon-vpc-cni.
    pub theirs: usize,
    /// Of Ferrule.
    pub ours: usize,
}

/// The kernel's routing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Every link.
    pub links: Vec<LinkView>,
    /// Every rule.
    pub rules: Vec<RuleView>,
    /// Every route to one address in table main.
    pub routes: Vec<RouteView>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is one end of a veth pair.
    pub veth: bool,
    /// The interface that its alias names.
    pub key: Option<PodKey>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    /// Its priority.
    pub pref: u32,
    /// Source.
    pub src: Option<IpNet>,
    /// Destination.
    pub dst: Option<IpNet>,
    /// The table.
    pub table: TableId,
    /// Who made it.
    pub protocol: u8,
    /// As `ip rule` takes it.
    pub text: String,
}

/// A route to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteView {
    /// The address.
    pub address: IpAddr,
    /// The number of its link.
    pub dev: Option<u32>,
}

/// An ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eni {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its network card.
    pub card: CardIndex,
    /// Its place on it.
    pub device: DeviceIndex,
    /// Its addresses and prefixes.
    pub blocks: Vec<IpNet>,
}

impl Eni {
    /// The table of its pods.
    pub fn table(&self) -> TableId {
        TableId::of_eni(self.card, self.device)
    }
}

impl Kernel {
    /// The link of this name.
    pub(crate) fn link(&self, name: &str) -> Option<&LinkView> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The links that a route leads to this address by.
    pub(crate) fn leading_to(&self, address: IpAddr) -> Vec<u32> {
        let to = self.routes.iter().filter(|route| route.address == address);
        to.filter_map(|route| route.dev).collect()
    }

    /// The addresses that lead to each link.
    pub(crate) fn addresses(&self) -> BTreeMap<u32, Vec<IpAddr>> {
        let mut by_link: BTreeMap<u32, Vec<IpAddr>> = BTreeMap::new();
        for route in &self.routes {
            if let Some(dev) = route.dev {
                by_link.entry(dev).or_default().push(route.address);
            }
        }
        by_link
    }
}
