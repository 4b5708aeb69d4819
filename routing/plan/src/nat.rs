//! What netfilter does to packets of pods: they leave the VPC with the node's address, by the
//! primary ENI, and so do replies of node ports.
//!
//! Pods' connections out of the VPC get a mark that routing rule 1024 sends to table main, and on
//! their way out the primary ENI's address. What reaches the node by the primary ENI is marked as
//! well: a node port's reply comes from a pod of any ENI, and must go back the same way.
//!
//! Two backends say the same: [`iptables`] with amazon-vpc-cni's own chains and comments, so that
//! either takes over from the other without a gap, and [`nftables`] with a table of our own. Each
//! plans whole rulesets, to be applied in one transaction, and touches nothing that is not ours.

mod choice;
pub mod egress;
pub mod iptables;
pub mod nftables;
pub mod sources;

pub use choice::{Backend, Change, Netfilter, Tables, fitting, plan};

use config_model::Mark;
use ipnet::Ipv4Net;
use std::{collections::BTreeSet, net::Ipv4Addr};

/// What netfilter should do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatDesired {
    /// The name of the primary ENI's link, as netfilter matches it.
    pub primary_link: String,
    /// The address that pods have outside of the VPC.
    pub primary_address: Ipv4Addr,
    /// The VPC's ranges: there pods keep their own addresses.
    pub vpc: BTreeSet<Ipv4Net>,
    /// Further ranges where they keep them: `AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS`.
    pub excluded: BTreeSet<Ipv4Net>,
    /// How source ports are chosen; `None` if somebody else translates
    /// (`AWS_VPC_K8S_CNI_EXTERNALSNAT`).
    pub snat: Option<Ports>,
    /// Whether replies of node ports must leave by the primary ENI.
    pub node_ports: bool,
    /// The mark of what must leave by the primary ENI: in the connection, and in its packets.
    pub mark: Mark,
    /// What host veths begin with.
    pub veth_prefix: String,
}

/// How a connection that is translated gets its source port: `AWS_VPC_K8S_CNI_RANDOMIZESNAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Its own, if that is free.
    Kept,
    /// By a hash of its addresses and ports.
    Hashed,
    /// By chance.
    Random,
}

impl Ports {
    /// As `nft` says it, behind a translation.
    fn flags(self) -> &'static str {
        match self {
            Self::Kept => "",
            Self::Hashed => " random",
            Self::Random => " fully-random",
        }
    }
}

/// What the links of branch ENIs begin with.
const VLAN_PREFIX: &str = "vlan";

impl NatDesired {
    /// Where pods keep their addresses, each once.
    fn exempt(&self) -> impl Iterator<Item = (Ipv4Net, bool)> {
        let excluded = self.excluded.difference(&self.vpc);
        let vpc = self.vpc.iter().map(|net| (net.trunc(), false));
        vpc.chain(excluded.map(|net| (net.trunc(), true)))
    }
}
