//! Arguments of the verbs that change the cloud: subnets, ENIs, groups, IAM, branches.

use crate::control::{EniOrder, EniSpec, SubnetOrder};
use clap::{Args, Subcommand};
use config_model::{CardIndex, DeviceIndex};
use ipnet::Ipv4Net;
use lab_cloud::{Bucket, InterfaceKind, LaunchInterface};

/// A subnet of `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetArg {
    pub cidr: Ipv4Net,
    /// Letter of the zone; `None` is the letter of the subnet.
    pub zone: Option<char>,
    pub tags: Vec<(String, String)>,
}

/// Parses `CIDR[,zone=LETTER][,KEY=VALUE]...`.
pub(super) fn subnet(text: &str) -> Result<SubnetArg, String> {
    let mut parts = text.split(',');
    let cidr = parts.next().unwrap_or_default();
    let cidr = cidr.parse().map_err(|_| format!("{cidr:?} is not an address block"))?;
    let mut subnet = SubnetArg { cidr, zone: None, tags: Vec::new() };
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("{part:?} is not of the form KEY=VALUE"))?;
        match (key, value.as_bytes()) {
            ("zone", [letter]) if letter.is_ascii_lowercase() => {
                subnet.zone = Some(char::from(*letter));
            }
            ("zone", _) => return Err(format!("zone {value:?} is not a letter from a to z")),
            ("Name", _) => {
                return Err("cannot set the tag Name: subnets are named by letters".to_owned());
            }
            _ => subnet.tags.push((key.to_owned(), value.to_owned())),
        }
    }
    Ok(subnet)
}

/// Parses `BURST:PER_SECOND`.
pub(super) fn bucket(text: &str) -> Result<Bucket, String> {
    let form = || "not of the form BURST:PER_SECOND, such as 100:5".to_owned();
    let (burst, refill) = text.split_once(':').ok_or_else(form)?;
    Ok(Bucket::new(burst.parse().map_err(|_| form())?, refill.parse().map_err(|_| form())?))
}

/// Parses `CARD:DEVICE[:KIND]`.
pub(super) fn interface(text: &str) -> Result<LaunchInterface, String> {
    let form =
        || "not of the form CARD:DEVICE or CARD:DEVICE:KIND, such as 1:0:efa-only".to_owned();
    let mut parts = text.splitn(3, ':');
    let mut number = || parts.next()?.parse().ok();
    let (card, device) = (number().ok_or_else(form)?, number().ok_or_else(form)?);
    let kind = match parts.next() {
        None | Some("interface") => InterfaceKind::Interface,
        Some("efa") => InterfaceKind::Efa,
        Some("efa-only") => InterfaceKind::EfaOnly,
        Some(other) => return Err(format!("{other:?} is neither interface, efa nor efa-only")),
    };
    Ok(LaunchInterface { card: CardIndex(card), device: DeviceIndex(device), kind })
}

/// Operations on subnets; a letter or an id identifies each.
#[derive(Debug, Subcommand)]
pub enum SubnetVerb {
    /// List all subnets.
    List,
    /// Create a subnet, named by the next letter. A block outside the VPC is associated with the VPC first, and
    /// running nodes observe the change as on EC2.
    Add {
        /// Address block, zone and tags.
        #[arg(value_parser = subnet, value_name = "CIDR[,K=V]...")]
        subnet: SubnetArg,
    },
    /// Take one address of each free /28, like other workloads: single addresses remain, and no prefix.
    Fragment {
        /// Letter or id of the subnet.
        subnet: String,
    },
    /// Take single addresses, like other workloads.
    Take {
        /// Letter or id of the subnet.
        subnet: String,
        /// Number of addresses.
        count: usize,
    },
    /// Release addresses of `fragment` and `take`.
    Free {
        /// Letter or id of the subnet.
        subnet: String,
        /// Number of addresses; default: all.
        count: Option<usize>,
    },
    /// Add a tag, such as `kubernetes.io/role/cni=1`.
    Tag {
        /// Letter or id of the subnet.
        subnet: String,
        /// Key and value.
        #[arg(value_parser = super::key_value::key_value, value_name = "K=V")]
        tag: (String, String),
    },
    /// Remove a tag.
    Untag {
        /// Letter or id of the subnet.
        subnet: String,
        /// Key of the tag.
        key: String,
    },
    /// Reserve a block for prefixes, as a subnet CIDR reservation.
    Reserve {
        /// Letter or id of the subnet.
        subnet: String,
        /// Address block within the subnet.
        cidr: Ipv4Net,
    },
}

impl SubnetVerb {
    /// Returns the subnet and the order; `None` for `list` and `add`.
    pub(super) fn order(self) -> Option<(String, SubnetOrder)> {
        Some(match self {
            Self::List | Self::Add { .. } => return None,
            Self::Fragment { subnet } => (subnet, SubnetOrder::Fragment),
            Self::Take { subnet, count } => (subnet, SubnetOrder::Take { count }),
            Self::Free { subnet, count } => (subnet, SubnetOrder::Free { count }),
            Self::Tag { subnet, tag: (key, value) } => (subnet, SubnetOrder::Tag { key, value }),
            Self::Untag { subnet, key } => (subnet, SubnetOrder::Untag { key }),
            Self::Reserve { subnet, cidr } => (subnet, SubnetOrder::Reserve { cidr }),
        })
    }
}

/// Operations on ENIs without their daemons.
#[derive(Debug, Subcommand)]
pub enum EniVerb {
    /// List all ENIs of the VPC, attached or not.
    List,
    /// Create an ENI, like other software, and attach it if a node is given.
    Add(EniArgs),
    /// Add a tag to an ENI.
    Tag {
        /// Id of the ENI.
        eni: String,
        /// Key and value.
        #[arg(value_parser = super::key_value::key_value, value_name = "K=V")]
        tag: (String, String),
    },
    /// Remove a tag from an ENI.
    Untag {
        /// Id of the ENI.
        eni: String,
        /// Key of the tag.
        key: String,
    },
    /// Replace the security groups of an ENI.
    Groups {
        /// Id of the ENI.
        eni: String,
        /// Security groups, by name or id.
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Clear `DeleteOnTermination` of an ENI: it outlives its instance.
    Keep {
        /// Id of the ENI.
        eni: String,
    },
    /// Set `DeleteOnTermination` of an ENI: it is deleted with its instance.
    LetGo {
        /// Id of the ENI.
        eni: String,
    },
}

/// Properties of a new ENI.
#[derive(Debug, Args)]
pub struct EniArgs {
    /// Letter or id of the subnet.
    subnet: String,
    /// Text of the EC2 field `Description`.
    #[arg(long, default_value = "")]
    description: String,
    /// Tag, such as `node.k8s.amazonaws.com/no_manage=true`; repeatable.
    #[arg(long = "tag", value_parser = super::key_value::key_value, value_name = "K=V")]
    tags: Vec<(String, String)>,
    /// Security group, by name or id; repeatable. Default: the VPC's default group.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Number of secondary addresses.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    addresses: u32,
    /// Node for the attachment, at the first free device of card 0.
    #[arg(long, value_name = "NODE")]
    attach: Option<String>,
}

impl EniArgs {
    pub(super) fn spec(&self) -> EniSpec {
        EniSpec {
            subnet: self.subnet.clone(),
            description: self.description.clone(),
            tags: self.tags.iter().cloned().collect(),
            groups: self.groups.clone(),
            addresses: self.addresses,
            node: self.attach.clone(),
        }
    }
}

impl EniVerb {
    /// Returns the ENI and the order; `None` for `list` and `add`.
    pub(super) fn order(self) -> Option<(String, EniOrder)> {
        Some(match self {
            Self::List | Self::Add(_) => return None,
            Self::Tag { eni, tag: (key, value) } => (eni, EniOrder::Tag { key, value }),
            Self::Untag { eni, key } => (eni, EniOrder::Untag { key }),
            Self::Groups { eni, groups } => (eni, EniOrder::Groups { groups }),
            Self::Keep { eni } => (eni, EniOrder::DeleteOnTermination { goes: false }),
            Self::LetGo { eni } => (eni, EniOrder::DeleteOnTermination { goes: true }),
        })
    }
}

/// Operations on security groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// List all security groups.
    List,
    /// Create a group that allows all traffic in both directions.
    Add {
        /// Name, unique in the VPC.
        group: String,
        /// Deny all ingress.
        #[arg(long)]
        closed: bool,
    },
}

/// Operations on the EC2 permissions of the nodes' role.
#[derive(Debug, Subcommand)]
pub enum IamVerb {
    /// List the denied actions of each role.
    List,
    /// Deny exactly these actions.
    Deny {
        /// Names of EC2 actions, such as `CreateNetworkInterface` or `Describe*`.
        #[arg(required = true)]
        actions: Vec<String>,
        /// IAM role of the nodes.
        #[arg(long, default_value = "lab-node")]
        role: String,
    },
    /// Allow all actions again.
    Allow {
        /// IAM role of the nodes.
        #[arg(long, default_value = "lab-node")]
        role: String,
    },
}

/// Operations on branch ENIs, in place of the VPC resource controller.
#[derive(Debug, Subcommand)]
pub enum BranchVerb {
    /// List all pods with a branch or a request for one, and their annotations.
    List,
    /// Request a branch of the node's trunk for a pod (see `node trunk`).
    Add {
        /// Node name, such as node1.
        node: String,
        /// The pod: `name` or `namespace/name`.
        pod: String,
        /// Security group of the branch, by name or id; repeatable.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// Report the pod as deleted; its branch is deleted one minute later.
    Remove {
        /// The pod: `name` or `namespace/name`.
        pod: String,
    },
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_subnet_may_have_a_zone_and_tags() {
        let plain = subnet("10.0.0.0/20").unwrap();
        assert_eq!((plain.zone, plain.tags.len()), (None, 0));
        let full = subnet("10.0.0.0/20,zone=b,kubernetes.io/role/cni=1,empty=").unwrap();
        let tags = [("kubernetes.io/role/cni", "1"), ("empty", "")];
        assert_eq!(full.zone, Some('b'));
        assert_eq!(full.tags, tags.map(|(k, v)| (k.to_owned(), v.to_owned())));
        for bad in ["", "10.0.0.0", "10.0.0.0/20,zone=", "10.0.0.0/20,x", "10.0.0.0/20,Name=x"] {
            assert!(subnet(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn interfaces_and_buckets_are_read() {
        let efa = interface("1:0:efa-only").unwrap();
        assert_eq!((efa.card.0, efa.device.0, efa.kind), (1, 0, InterfaceKind::EfaOnly));
        assert_eq!(interface("0:2").unwrap().kind, InterfaceKind::Interface);
        for bad in ["", "1", "1:x", "1:2:trunk", "1:2:efa:3"] {
            assert!(interface(bad).is_err(), "{bad}");
        }
        assert_eq!(bucket("100:5"), Ok(Bucket::new(100, 5)));
        assert!(bucket("100").is_err() && bucket("a:b").is_err());
    }
}
