//! The desired state of the fabric: the cloud's truth in the fabric's terms.

use crate::FabricError;
use config_model::{CardIndex, DeviceIndex, EniId, Mac, SecurityGroupId, SubnetId};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The facts of a VPC that hold for a lab's whole life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vpc {
    /// Its address ranges. An address in one of them that no ENI holds is dropped and counted.
    pub cidrs: Vec<Ipv4Net>,
    /// Its IPv6 ranges; without one the lab has no IPv6.
    #[serde(default)]
    pub cidrs_v6: Vec<Ipv6Net>,
    /// Its subnets; the router answers for base + 1 of each.
    pub subnets: BTreeMap<SubnetId, Subnet>,
    /// Where EC2's API answers, within the VPC namespace.
    ///
    /// An address that EC2 reserves in a subnet (base + 2, base + 3) cannot collide.
    pub ec2_endpoint: Ipv4Addr,
    /// Where the Kubernetes API server answers, within the VPC namespace, if the lab has one.
    #[serde(default)]
    pub api_server: Option<Ipv4Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its range.
    pub cidr: Ipv4Net,
    /// Its availability zone.
    pub zone: String,
}

impl Subnet {
    /// The address of the subnet's gateway: base + 1.
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.cidr.network()).wrapping_add(1))
    }
}

/// The complete desired state. The fabric removes everything that it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredFabric {
    /// Instances by the lab's name for them. An absent instance is terminated, with its disk.
    pub nodes: BTreeMap<String, NodeSpec>,
    /// ENIs whose attachment is complete. An absent ENI is detached.
    pub enis: BTreeMap<EniId, EniSpec>,
    /// Security groups.
    pub groups: BTreeMap<SecurityGroupId, GroupSpec>,
}

impl DesiredFabric {
    /// Rejects states that no kernel can have, before any change.
    pub(crate) fn check(&self, vpc: &Vpc) -> Result<(), FabricError> {
        let refuse = |why: String| Err(FabricError::Inconsistent(why));
        for name in self.nodes.keys() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                return refuse(format!("{name:?} cannot name a node"));
            }
        }
        let mut macs = BTreeMap::new();
        let (mut holders, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        for (id, eni) in &self.enis {
            if !self.nodes.contains_key(&eni.node) {
                return refuse(format!("{id} is attached to {:?}, which is no node", eni.node));
            }
            if !vpc.subnets.contains_key(&eni.subnet) {
                return refuse(format!("{id} is in {}, which is not a subnet", eni.subnet));
            }
            if let Some(other) = macs.insert(eni.mac, id) {
                return refuse(format!("{id} and {other} have the MAC {}", eni.mac));
            }
            for block in eni.blocks_v6() {
                if let Some(other) = blocks.insert(block, id) {
                    return refuse(format!("{id} and {other} hold {block}"));
                }
            }
            for address in eni.addresses() {
                if let Some(other) = holders.insert(address, id) {
                    return refuse(format!("{id} and {other} hold {address}"));
                }
            }
        }
        Ok(())
    }
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its host name, such as `ip-10-0-1-23`.
    pub hostname: String,
    pub profile: NicProfile,
    pub power: Power,
    /// Counts its boots. When the number differs from the one that runs, the node is rebooted.
    pub boot: u64,
}

/// Power state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    On,
    /// Stopped: only its disk is kept.
    Off,
}

/// Naming and configuration of new ENIs by a node's system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NicProfile {
    /// `eth0`, `eth1`, …; secondary ENIs stay down and unconfigured.
    #[default]
    EthN,
    /// `ens5` for the primary; others appear as `eth1`, … and are renamed to `ens6`, … a little
    /// later, as udev does.
    EnsLateRename,
    /// As `EthN`, but a network manager brings each ENI up with its primary address and a default
    /// route in table main.
    NetworkManager,
}

/// An attached ENI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniSpec {
    /// The node it is attached to, a key of [`DesiredFabric::nodes`].
    pub node: String,
    /// The network card.
    pub card: CardIndex,
    /// The place on the card; 0 on card 0 is the node's primary ENI.
    pub device: DeviceIndex,
    /// The MAC address that the node sees.
    pub mac: Mac,
    pub subnet: SubnetId,
    /// The primary address; the internet gateway knows it.
    pub primary: Ipv4Addr,
    /// The public address of the primary one; `None` takes [`public_address_of`] it, since the
    /// fabric's internet gateway knows every primary address.
    pub public: Option<Ipv4Addr>,
    /// The secondary addresses.
    pub secondary: BTreeSet<Ipv4Addr>,
    /// Delegated prefixes; each address of them is the ENI's.
    pub prefixes: BTreeSet<Ipv4Net>,
    /// The IPv6 addresses; the first is the node's own, where this is its primary ENI.
    #[serde(default)]
    pub ipv6: Vec<Ipv6Addr>,
    /// Delegated IPv6 prefixes; each address of them is the ENI's.
    #[serde(default)]
    pub prefixes_v6: BTreeSet<Ipv6Net>,
    /// The security groups.
    pub groups: BTreeSet<SecurityGroupId>,
    /// EC2's `SourceDestCheck`; when false, any source may leave by this ENI.
    pub source_dest_check: bool,
}

/// The public address to which the internet gateway translates an ENI's primary address.
///
/// Of 198.18.0.0/15, the range set aside for benchmarks: the low 17 bits are the private address's.
pub fn public_address_of(private: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from(0xc612_0000 | (u32::from(private) & 0x0001_ffff))
}

impl EniSpec {
    /// Every address that is mapped to this ENI.
    pub fn addresses(&self) -> BTreeSet<Ipv4Addr> {
        let of_prefixes = self.prefixes.iter().flat_map(|prefix| {
            (u32::from(prefix.network())..=u32::from(prefix.broadcast())).map(Ipv4Addr::from)
        });
        self.secondary.iter().copied().chain([self.primary]).chain(of_prefixes).collect()
    }

    /// Every IPv6 block that is mapped to this ENI, single addresses among them.
    pub fn blocks_v6(&self) -> BTreeSet<Ipv6Net> {
        let singles = self.ipv6.iter().map(|address| Ipv6Net::from(*address));
        singles.chain(self.prefixes_v6.iter().map(Ipv6Net::trunc)).collect()
    }

    /// True if this address, of either family, is mapped to this ENI.
    pub fn holds(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                self.primary == address
                    || self.secondary.contains(&address)
                    || self.prefixes.iter().any(|prefix| prefix.contains(&address))
            }
            IpAddr::V6(address) => self.blocks_v6().iter().any(|block| block.contains(&address)),
        }
    }

    /// The public address that the internet gateway gives the primary one.
    pub fn public_address(&self) -> Ipv4Addr {
        self.public.unwrap_or_else(|| public_address_of(self.primary))
    }

    /// True for the primary ENI of its node.
    pub fn is_primary(&self) -> bool {
        self.card == CardIndex(0) && self.device == DeviceIndex(0)
    }
}

/// A security group: whatever no rule allows is dropped, replies always pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Rules for incoming traffic.
    pub ingress: Vec<GroupRule>,
    /// Rules for outgoing traffic.
    pub egress: Vec<GroupRule>,
}

/// A rule of a security group; rules only ever allow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRule {
    /// Protocol and ports.
    pub protocol: Protocol,
    /// The other side.
    pub peer: Peer,
}

/// Protocol selector of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Any (`-1`).
    All,
    /// TCP to these destination ports, both ends included.
    Tcp {
        /// The first port.
        from: u16,
        /// The last port.
        to: u16,
    },
    /// UDP to these destination ports, both ends included.
    Udp {
        /// The first port.
        from: u16,
        /// The last port.
        to: u16,
    },
    /// ICMP; `None` is any type or code.
    Icmp {
        /// The ICMP type.
        kind: Option<u8>,
        /// The ICMP code.
        code: Option<u8>,
    },
    /// Another protocol by its number.
    Number(u8),
}

/// The other side of a security group's rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Addresses in a range.
    Cidr(Ipv4Net),
    /// IPv6 addresses in a range.
    Cidr6(Ipv6Net),
    /// The addresses of the ENIs that have this group.
    Group(SecurityGroupId),
}
