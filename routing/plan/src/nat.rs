//! SNAT and connection marks for pods. Traffic out of the VPC leaves with the node's address by the primary ENI, and
//! so do replies of node ports.
//!
//! Connections of pods out of the VPC get a mark that routing rule 1024 sends to table main, and SNAT to the primary
//! ENI's address. Packets that arrive by the primary ENI are marked as well. A node port's reply from a pod of
//! another ENI must leave by the primary one.
//!
//! There are two backends. [`iptables`] uses amazon-vpc-cni's own chains and comments, so that each program takes
//! over from the other without a gap. [`nftables`] uses a table of our own. Each plans whole rulesets for one
//! transaction and changes only its own objects.

mod choice;
pub mod egress;
pub mod iptables;
pub mod nftables;
pub mod source_check;
pub mod sources;

pub use choice::{Backend, Change, Netfilter, fitting, plan};
pub use nftables::Tables;

use config_model::Mark;
use ipnet::Ipv4Net;
use std::{collections::BTreeSet, net::Ipv4Addr};

/// The desired state of netfilter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatDesired {
    /// The name of the primary ENI's link.
    pub primary_link: String,
    /// The source address of pods outside of the VPC.
    pub primary_address: Ipv4Addr,
    /// The VPC's ranges, in which pods keep their addresses.
    pub vpc: BTreeSet<Ipv4Net>,
    /// Further ranges in which they keep them: `AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS`.
    pub excluded: BTreeSet<Ipv4Net>,
    /// Choice of source ports; `None` if another device translates (`AWS_VPC_K8S_CNI_EXTERNALSNAT`).
    pub snat: Option<Ports>,
    /// True if replies of node ports must leave by the primary ENI.
    pub node_ports: bool,
    /// The mark of connections and packets that must leave by the primary ENI.
    pub mark: Mark,
    /// The prefix of host veths' names.
    pub veth_prefix: String,
}

/// The choice of the source port of a translated connection: `AWS_VPC_K8S_CNI_RANDOMIZESNAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The original port if it is free.
    Kept,
    /// A hash of the addresses and ports.
    Hashed,
    /// A random port.
    Random,
}

impl Ports {
    /// The flags of an `nft` SNAT statement.
    fn flags(self) -> &'static str {
        match self {
            Self::Kept => "",
            Self::Hashed => " random",
            Self::Random => " fully-random",
        }
    }
}

/// The prefix of branch ENIs' links.
const VLAN_PREFIX: &str = "vlan";

impl NatDesired {
    /// The ranges in which pods keep their addresses, each once. True marks an excluded range.
    fn exempt(&self) -> impl Iterator<Item = (Ipv4Net, bool)> {
        let excluded = self.excluded.difference(&self.vpc);
        let vpc = self.vpc.iter().map(|net| (net.trunc(), false));
        vpc.chain(excluded.map(|net| (net.trunc(), true)))
    }
}
