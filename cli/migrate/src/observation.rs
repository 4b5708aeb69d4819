//! The observation of a node, in the terms of the plan.

use config_model::{CardIndex, DeviceIndex, Mac, Migration, PodKey, PodName, TableId};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// A value, or the reason why it could not be read.
pub type Observed<T> = Result<T, String>;

/// The input of the plan.
#[derive(Clone, Debug)]
pub struct Observation {
    pub conflists: Observed<Vec<File>>,
    pub vpc_cni: VpcCni,
    pub ferrule: Ferrule,
    pub settings: Settings,
    /// The DaemonSets of both networks, if the API server is known.
    pub cluster: Observed<Cluster>,
    /// Running plugin processes.
    pub calls: Observed<Calls>,
    pub kernel: Observed<Kernel>,
    /// The node's ENIs, from its metadata service.
    pub enis: Observed<Vec<Eni>>,
    /// The runtime's cached ADD results, by file name.
    pub results: Observed<Vec<File>>,
    /// The last requested owner.
    pub journal: Observed<Option<Migration>>,
    /// Nanoseconds since 1970.
    pub unix_nanos: u64,
}

/// The settings that amazon-vpc-cni and Ferrule have by the same name.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The environment of the running agent of amazon-vpc-cni; `None` if none runs.
    pub vpc_cni: Observed<Option<BTreeMap<String, String>>>,
    /// The environment of the running ferrule-ipamd; `None` if none runs.
    pub ferrule: Option<BTreeMap<String, String>>,
    /// The compared settings with their defaults.
    pub defaults: BTreeMap<String, String>,
}

/// The DaemonSets of a cluster; `None` if one does not exist.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub vpc_cni: Option<DaemonSet>,
    pub ferrule: Option<DaemonSet>,
}

/// The settings and the credentials of a DaemonSet's pods.
#[derive(Clone, Debug)]
pub struct DaemonSet {
    pub settings: BTreeMap<String, String>,
    /// Settings whose values are in other objects, such as a ConfigMap.
    pub unread: BTreeSet<String>,
    /// `NAMESPACE:NAME` of the service account.
    pub account: String,
    /// The role in the account's annotation.
    pub role: Option<String>,
    /// True if a pod has credentials of EKS Pod Identity.
    pub pod_identity: Observed<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub name: String,
    pub bytes: Observed<Vec<u8>>,
}

/// The state of amazon-vpc-cni.
#[derive(Clone, Debug)]
pub struct VpcCni {
    /// True if its agent accepts connections at its socket. ferrule-ipamd at that socket does not count.
    pub serves: bool,
    /// `ipam.json`, and one file for each further network card.
    pub checkpoints: Observed<Vec<File>>,
    pub policy: Policy,
}

/// The state of aws-network-policy-agent.
#[derive(Clone, Debug)]
pub struct Policy {
    pub socket: String,
    /// True if the agent accepts connections.
    pub serves: bool,
    /// The BPF programs on host veths, of all owners: those of a link and a side in the order in which the kernel runs
    /// them.
    pub programs: Observed<Vec<Program>>,
    pub folder: String,
    /// The pins below that folder, of all owners, such as `maps/global_policy_events`.
    pub pins: Observed<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    pub link: String,
    /// True if the program is on the link's ingress.
    pub ingress: bool,
    /// The program's name.
    pub name: String,
    /// The filter chain.
    pub chain: u32,
    pub priority: u16,
    /// The ethertype, 3 for all.
    pub protocol: u16,
    /// Unique within its priority.
    pub handle: u32,
    /// True if a TCX link has the program. The kernel runs it before all filters, and the numbers above are 0.
    pub is_tcx: bool,
}

/// The state of Ferrule.
#[derive(Clone, Debug)]
pub struct Ferrule {
    /// True if a daemon holds the lock of the checkpoint.
    pub runs: bool,
    /// True if the daemon reports that it serves.
    pub ready: bool,
    /// The reasons for which the daemon does not serve, from its STATUS.
    pub unavailable: Vec<String>,
    /// True if the daemon is configured to call a policy agent.
    pub policy_agent: bool,
    /// The checkpoint's assignments; `None` without a checkpoint.
    pub assignments: Observed<Option<Vec<Assignment>>>,
    /// Interfaces with a tombstone that the daemon has not processed.
    pub tombstones: Observed<Vec<PodKey>>,
    /// The answer of ferrule-agent: its policies are in force on each pod of the node, or the reason why not.
    pub enforces: Observed<()>,
    /// True if ferrule-agent runs.
    pub agent_runs: bool,
    /// The number of the filters, TCX links and folders of pins by which ferrule-agent enforces policies.
    pub attachments: Observed<usize>,
    /// The existing tables of nftables that amazon-vpc-cni does not need.
    pub tables: Observed<Vec<NftTable>>,
}

/// An interface with addresses in ferrule-ipamd's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub key: PodKey,
    /// `None` if the pod is unknown.
    pub pod: Option<PodName>,
    /// One address per network card, with its ENI's position.
    pub addresses: Vec<(IpAddr, CardIndex, DeviceIndex)>,
    /// True if its ADD was completed.
    pub confirmed: bool,
}

/// The number of running plugin processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub vpc_cni: usize,
    pub ferrule: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub links: Vec<LinkView>,
    pub rules: Vec<RuleView>,
    pub routes: Vec<RouteView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    pub index: u32,
    pub name: String,
    /// True if the link is one end of a veth pair.
    pub veth: bool,
    /// The pod key in its alias.
    pub key: Option<PodKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    pub pref: u32,
    pub src: Option<IpNet>,
    pub dst: Option<IpNet>,
    pub table: TableId,
    pub protocol: u8,
    /// In the syntax of `ip rule`.
    pub text: String,
}

/// A host route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteView {
    pub address: IpAddr,
    /// The index of the link.
    pub dev: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eni {
    pub mac: Mac,
    pub card: CardIndex,
    pub device: DeviceIndex,
    pub blocks: Vec<IpNet>,
}

impl Eni {
    /// Returns the route table of the ENI's pods.
    pub fn table(&self) -> TableId {
        TableId::of_eni(self.card, self.device)
    }
}

impl Kernel {
    pub(crate) fn link(&self, name: &str) -> Option<&LinkView> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Returns the links of the routes to this address.
    pub(crate) fn leading_to(&self, address: IpAddr) -> Vec<u32> {
        let to = self.routes.iter().filter(|route| route.address == address);
        to.filter_map(|route| route.dev).collect()
    }

    /// Returns the addresses with routes over each link.
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

/// A table of nftables that Ferrule creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NftTable {
    /// SNAT and marks.
    Nat,
    /// The check of pods' source addresses.
    SourceCheck,
}

impl NftTable {
    pub const ALL: [Self; 2] = [Self::Nat, Self::SourceCheck];
}

impl fmt::Display for NftTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nat => "ip ferrule",
            Self::SourceCheck => "inet ferrule-source-check",
        })
    }
}
