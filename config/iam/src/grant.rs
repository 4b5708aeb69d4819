//! The calls that the code makes.

/// Modes of address assignment, as far as they need different EC2 calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// IPv4: secondary addresses or /28 prefixes, custom networking, subnet discovery, several
    /// network cards, security groups for pods. All make the same calls.
    Ipv4,
    /// IPv6: one /80 prefix, of the primary ENI, is enough for all pods.
    Ipv6,
    /// IPv6 on nodes that make ENIs: with several network cards, or where the primary ENI is not for
    /// pods.
    Ipv6Enis,
    /// `DISABLE_NETWORK_RESOURCE_PROVISIONING=true`: somebody else makes ENIs and addresses.
    ReadOnly,
}

impl Mode {
    /// All of them. `ENABLE_IMDS_ONLY_MODE=true` needs no policy.
    pub const ALL: &[Self] = &[Self::Ipv4, Self::Ipv6, Self::Ipv6Enis, Self::ReadOnly];

    /// Part of a file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Ipv6Enis => "ipv6-enis",
            Self::ReadOnly => "read-only",
        }
    }
}

/// Resource on which EC2 checks a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    NetworkInterface,
    /// The subnet that it is in.
    Subnet,
    /// A security group that it gets.
    SecurityGroup,
    /// The instance that it is attached to.
    Instance,
}

impl Resource {
    /// Its kind in an ARN.
    pub fn name(self) -> &'static str {
        match self {
            Self::NetworkInterface => "network-interface",
            Self::Subnet => "subnet",
            Self::SecurityGroup => "security-group",
            Self::Instance => "instance",
        }
    }
}

/// Test that observes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    Simulation,
    /// Another place, described by the text.
    Elsewhere(&'static str),
}

/// One action that the daemon calls.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// EC2's name of it.
    pub action: &'static str,
    /// Resources on which EC2 checks the action; empty for actions without resources.
    pub on: &'static [Resource],
    pub modes: &'static [Mode],
    pub purpose: &'static str,
    pub without: &'static str,
    /// Test that observes the call.
    pub coverage: Coverage,
}

/// Every call that the daemon makes. The policy controller, the agent and the plugin make none.
pub fn grants() -> &'static [Grant] {
    GRANTS
}

use Mode::{Ipv4, Ipv6, Ipv6Enis};
use Resource::{Instance, NetworkInterface, SecurityGroup, Subnet};

const MAKING: &[Mode] = &[Ipv4, Ipv6Enis];

const GRANTS: &[Grant] = &[
    Grant {
        action: "DescribeInstanceTypes",
        on: &[],
        modes: Mode::ALL,
        purpose: "how many ENIs and addresses the instance may have; once a start",
        without: "Pods that run keep running and free addresses are given out, but no ENI and no \
                  address is asked for: nobody knows how many the instance may have.",
        coverage: Coverage::Elsewhere("before the core begins: `ipamd/daemon/tests`, `tests/lab`"),
    },
    Grant {
        action: "DescribeNetworkInterfaces",
        on: &[],
        modes: Mode::ALL,
        purpose: "the second witness beside IMDS of what the node has; what became of a call whose \
                  answer was lost; ENIs that nobody uses",
        without: "The daemon does not begin: it takes over no pod on the word of IMDS alone. If the \
                  right is lost later, nothing is given back and nothing that vanished is dropped.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "DescribeSubnets",
        on: &[],
        modes: MAKING,
        purpose: "which subnets of the zone may be used and have room (`ENABLE_SUBNET_DISCOVERY`)",
        without: "New ENIs go to the node's own subnet, and a full one is not noticed to have room again \
                  before it is tried.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "CreateNetworkInterface",
        on: &[NetworkInterface, Subnet, SecurityGroup],
        modes: MAKING,
        purpose: "more ENIs",
        without: "The pool ends with what the attached ENIs hold; then ADDs wait and fail with code 11.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AttachNetworkInterface",
        on: &[NetworkInterface, Instance],
        modes: MAKING,
        purpose: "to the node",
        without: "As without CreateNetworkInterface; what was made is deleted again.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "ModifyNetworkInterfaceAttribute",
        on: &[NetworkInterface, Instance, SecurityGroup],
        modes: MAKING,
        purpose: "so that an ENI goes with its instance, and has the primary ENI's security groups",
        without: "ENIs stay behind when instances are terminated, and use up addresses until the \
                  cluster's collector or a person deletes them; security groups of secondary ENIs are \
                  not mended.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AssignPrivateIpAddresses",
        on: &[NetworkInterface],
        modes: &[Ipv4],
        purpose: "secondary addresses and /28 prefixes",
        without: "An ENI has only what it was made with, and the primary one nothing for pods: the pool \
                  grows by whole ENIs, as long as there may be more.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "UnassignPrivateIpAddresses",
        on: &[NetworkInterface],
        modes: &[Ipv4],
        purpose: "gives free ones back to the subnet",
        without: "Free addresses above the warm targets stay with the node, and the subnet runs dry \
                  sooner.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AssignIpv6Addresses",
        on: &[NetworkInterface],
        modes: &[Ipv6, Ipv6Enis],
        purpose: "a /80 prefix for an ENI",
        without: "The primary ENI has no address for pods, and ADDs wait and fail with code 11.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "UnassignIpv6Addresses",
        on: &[NetworkInterface],
        modes: &[Ipv6Enis],
        purpose: "gives a /80 prefix back",
        without: "A prefix that nobody needs stays.",
        coverage: Coverage::Elsewhere(
            "`ipamd/cloud/tests/lab`: no simulated node of IPv6 has several ENIs",
        ),
    },
    Grant {
        action: "DetachNetworkInterface",
        on: &[NetworkInterface, Instance],
        modes: MAKING,
        purpose: "gives an ENI back that no pod needs",
        without: "ENIs that no pod needs stay attached.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "DeleteNetworkInterface",
        on: &[NetworkInterface],
        modes: MAKING,
        purpose: "and deletes it; also ENIs of the cluster that nobody uses, where CLUSTER_NAME is set",
        without: "ENIs stay in the subnet that are attached to nothing.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "CreateTags",
        on: &[NetworkInterface],
        modes: &[Ipv4, Ipv6, Ipv6Enis],
        purpose: "whose an ENI is: with its creation, and on those that lack it",
        without: "No ENI can be made, since each is made with its tags. ENIs that others made are used, \
                  and not marked as such.",
        coverage: Coverage::Simulation,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_action_is_unique_and_has_a_purpose() {
        let names: BTreeSet<&str> = GRANTS.iter().map(|grant| grant.action).collect();
        assert_eq!(names.len(), GRANTS.len());
        for grant in GRANTS {
            assert!(!grant.modes.is_empty() && !grant.purpose.is_empty(), "{grant:?}");
            assert!(grant.without.ends_with('.'), "{grant:?}");
            assert_eq!(grant.on.is_empty(), grant.action.starts_with("Describe"), "{grant:?}");
        }
    }

    #[test]
    fn the_read_only_mode_allows_no_change() {
        for grant in GRANTS.iter().filter(|grant| grant.modes.contains(&Mode::ReadOnly)) {
            assert!(grant.action.starts_with("Describe"), "{grant:?}");
        }
    }
}
