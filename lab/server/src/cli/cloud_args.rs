//! The part of the command line that speaks of the cloud itself.

use crate::control::{EniOrder, EniSpec, SubnetOrder};
use clap::{Args, Subcommand};
use config_model::{CardIndex, DeviceIndex};
use ipnet::Ipv4Net;
use lab_cloud::{Bucket, InterfaceKind, LaunchInterface};

/// A subnet of `up`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetArg {
    /// Its address block.
    pub cidr: Ipv4Net,
    /// The letter of its zone; its own if absent.
    pub zone: Option<char>,
    /// Its tags.
    pub tags: Vec<(String, String)>,
}

/// `CIDR[,zone=LETTER][,KEY=VALUE]...`.
pub(super) fn subnet(text: &str) -> Result<SubnetArg, String> {
    let mut parts = text.split(',');
    let cidr = parts.next().unwrap_or_default();
    let cidr = cidr.parse().map_err(|_| format!("{cidr:?} is no address block"))?;
    let mut subnet = SubnetArg { cidr, zone: None, tags: Vec::new() };
    for part in parts {
        let (key, value) =
            part.split_once('=').ok_or_else(|| format!("{part:?} is no KEY=VALUE"))?;
        match (key, value.as_bytes()) {
            ("zone", [letter]) if letter.is_ascii_lowercase() => {
                subnet.zone = Some(char::from(*letter));
            }
            ("zone", _) => return Err(format!("zone {value:?} is no letter from a to z")),
            ("Name", _) => return Err("subnets are called by letters, in turn".to_owned()),
            _ => subnet.tags.push((key.to_owned(), value.to_owned())),
        }
    }
    Ok(subnet)
}

/// `BURST:PER_SECOND`.
pub(super) fn bucket(text: &str) -> Result<Bucket, String> {
    let form = || "it has the form BURST:PER_SECOND, such as 100:5".to_owned();
    let (burst, refill) = text.split_once(':').ok_or_else(form)?;
    Ok(Bucket::new(burst.parse().map_err(|_| form())?, refill.parse().map_err(|_| form())?))
}

/// `CARD:DEVICE[:KIND]`.
pub(super) fn interface(text: &str) -> Result<LaunchInterface, String> {
    let form =
        || "it has the form CARD:DEVICE or CARD:DEVICE:KIND, such as 1:0:efa-only".to_owned();
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

/// What to do with subnets; each is called by its letter or id.
#[derive(Debug, Subcommand)]
pub enum SubnetVerb {
    /// All subnets.
    List,
    /// Make one more, called by the next letter. A block outside of the VPC is associated with it
    /// first, and nodes that run see that as they would on EC2.
    Add {
        /// Its block, zone and tags.
        #[arg(value_parser = subnet, value_name = "CIDR[,K=V]...")]
        subnet: SubnetArg,
    },
    /// Take one address of each /28 that is whole, as other workloads would: single addresses are
    /// left, and no prefix.
    Fragment {
        /// The subnet.
        subnet: String,
    },
    /// Take single addresses, as other workloads would.
    Take {
        /// The subnet.
        subnet: String,
        /// How many.
        count: usize,
    },
    /// Give back what `fragment` and `take` took.
    Free {
        /// The subnet.
        subnet: String,
        /// How many; default: all.
        count: Option<usize>,
    },
    /// Give it a tag, such as `kubernetes.io/role/cni=1`.
    Tag {
        /// The subnet.
        subnet: String,
        /// Key and value.
        #[arg(value_parser = super::args::key_value, value_name = "K=V")]
        tag: (String, String),
    },
    /// Take a tag from it.
    Untag {
        /// The subnet.
        subnet: String,
        /// The key.
        key: String,
    },
    /// Reserve /28 blocks of it for prefixes.
    Reserve {
        /// The subnet.
        subnet: String,
        /// Which.
        cidr: Ipv4Net,
    },
}

impl SubnetVerb {
    /// The subnet and the order; none for `list` and `add`.
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

/// What to do with ENIs behind the daemons' backs.
#[derive(Debug, Subcommand)]
pub enum EniVerb {
    /// All ENIs of the VPC, attached or not.
    List,
    /// Make one, as other software would, and attach it if a node is named.
    Add(EniArgs),
    /// Give one a tag.
    Tag {
        /// The ENI.
        eni: String,
        /// Key and value.
        #[arg(value_parser = super::args::key_value, value_name = "K=V")]
        tag: (String, String),
    },
    /// Take a tag from one.
    Untag {
        /// The ENI.
        eni: String,
        /// The key.
        key: String,
    },
    /// Give one other security groups.
    Groups {
        /// The ENI.
        eni: String,
        /// The groups, by name or id.
        #[arg(required = true)]
        groups: Vec<String>,
    },
    /// Let one outlive its instance.
    Keep {
        /// The ENI.
        eni: String,
    },
    /// Let one go with its instance.
    LetGo {
        /// The ENI.
        eni: String,
    },
}

/// An ENI to be made.
#[derive(Debug, Args)]
pub struct EniArgs {
    /// The subnet, by letter or id.
    subnet: String,
    /// Its description.
    #[arg(long, default_value = "")]
    description: String,
    /// A tag, such as `node.k8s.amazonaws.com/no_manage=true`; may be given often.
    #[arg(long = "tag", value_parser = super::args::key_value, value_name = "K=V")]
    tags: Vec<(String, String)>,
    /// A security group, by name or id; may be given often. The VPC's default one if none is.
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// How many addresses it has beside its primary one.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    addresses: u32,
    /// The node to attach it to, at the first free place of card 0.
    #[arg(long, value_name = "NODE")]
    attach: Option<String>,
}

impl EniArgs {
    /// The ENI that these ask for.
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
    /// The ENI and the order; none for `list` and `add`.
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

/// What to do with security groups.
#[derive(Debug, Subcommand)]
pub enum GroupVerb {
    /// All security groups.
    List,
    /// Make one; everything may come in and go out.
    Add {
        /// Its name.
        group: String,
        /// Nothing may come in.
        #[arg(long)]
        closed: bool,
    },
}

/// What the nodes' role may do.
#[derive(Debug, Subcommand)]
pub enum IamVerb {
    /// What is denied.
    List,
    /// Deny these actions, and no others.
    Deny {
        /// EC2's action names, such as `CreateNetworkInterface` or `Describe*`.
        #[arg(required = true)]
        actions: Vec<String>,
        /// The role.
        #[arg(long, default_value = "lab-node")]
        role: String,
    },
    /// Allow everything again.
    Allow {
        /// The role.
        #[arg(long, default_value = "lab-node")]
        role: String,
    },
}

/// What to do with branch ENIs, in the place of the VPC resource controller.
#[derive(Debug, Subcommand)]
pub enum BranchVerb {
    /// All pods that have or wait for a branch, with the annotation that tells it.
    List,
    /// A pod is to have a branch of its node's trunk (see `node trunk`).
    Add {
        /// The node.
        node: String,
        /// The pod: `name` or `namespace/name`.
        pod: String,
        /// A security group of the branch, by name or id; may be given often.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
    },
    /// The pod is gone; its branch goes a minute later.
    Remove {
        /// The pod.
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
