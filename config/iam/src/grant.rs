//! The EC2 calls of the code.

/// Modes of the daemon that require different EC2 calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// IPv4: secondary addresses or /28 prefixes, custom networking, subnet discovery, several
    /// network cards, security groups for pods. All use the same calls.
    Ipv4,
    /// IPv6: one /80 prefix of the primary ENI serves all pods.
    Ipv6,
    /// IPv6 on nodes that create ENIs: with several network cards, or if the primary ENI serves no pods.
    Ipv6Enis,
    /// `DISABLE_NETWORK_RESOURCE_PROVISIONING=true`: another component provides ENIs and addresses.
    ReadOnly,
}

impl Mode {
    /// All modes with a policy. `ENABLE_IMDS_ONLY_MODE=true` needs none.
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
    /// The subnet of the ENI.
    Subnet,
    /// A security group of the ENI.
    SecurityGroup,
    /// The instance of the ENI.
    Instance,
}

impl Resource {
    /// Resource type in an ARN.
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
    /// Name of the action in the EC2 API.
    pub action: &'static str,
    /// Resources on which EC2 checks the action; empty for actions without resources.
    pub on: &'static [Resource],
    pub modes: &'static [Mode],
    pub purpose: &'static str,
    pub without: &'static str,
    /// Test that observes the call.
    pub coverage: Coverage,
}

/// Returns every EC2 call of the daemon. The policy controller, the agent and the plugin call no AWS API.
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
        purpose: "reads the instance type's limits of ENIs and addresses, once per start",
        without: "Running pods keep running, and free addresses are assigned. The pool does not \
                  grow, because the limits are unknown.",
        coverage: Coverage::Elsewhere(
            "before the start of the core: `ipamd/daemon/tests`, `tests/lab`",
        ),
    },
    Grant {
        action: "DescribeNetworkInterfaces",
        on: &[],
        modes: Mode::ALL,
        purpose: "reads the node's ENIs as the second witness beside IMDS; finds the result of a call \
                  with a lost reply; finds leaked ENIs",
        without: "The daemon does not start, because IMDS alone is not sufficient. If the right is \
                  lost later, the daemon returns no addresses and drops none that disappeared.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "DescribeSubnets",
        on: &[],
        modes: MAKING,
        purpose: "finds the subnets of the zone with free addresses (`ENABLE_SUBNET_DISCOVERY`)",
        without: "The daemon creates ENIs in the node's own subnet. It detects free addresses in a full \
                  subnet only by the next attempt.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "CreateNetworkInterface",
        on: &[NetworkInterface, Subnet, SecurityGroup],
        modes: MAKING,
        purpose: "creates ENIs",
        without: "The pool is limited to the attached ENIs. When it is empty, ADDs wait and fail with \
                  code 11.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AttachNetworkInterface",
        on: &[NetworkInterface, Instance],
        modes: MAKING,
        purpose: "attaches ENIs to the node",
        without: "The same as without CreateNetworkInterface. The daemon deletes the created ENI.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "ModifyNetworkInterfaceAttribute",
        on: &[NetworkInterface, Instance, SecurityGroup],
        modes: MAKING,
        purpose: "makes EC2 delete an ENI with its instance; sets the primary ENI's security groups",
        without: "ENIs remain after their instances are terminated, and use addresses until the \
                  collector deletes them. Changed security groups are not applied.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AssignPrivateIpAddresses",
        on: &[NetworkInterface],
        modes: &[Ipv4],
        purpose: "assigns secondary addresses and /28 prefixes",
        without: "An ENI has only the addresses of its creation, and the primary one has none for pods. \
                  The pool grows by whole ENIs up to their limit.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "UnassignPrivateIpAddresses",
        on: &[NetworkInterface],
        modes: &[Ipv4],
        purpose: "returns free addresses to the subnet",
        without: "Free addresses above the warm targets stay with the node, and the subnet is exhausted \
                  sooner.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "AssignIpv6Addresses",
        on: &[NetworkInterface],
        modes: &[Ipv6, Ipv6Enis],
        purpose: "assigns a /80 prefix to an ENI",
        without: "The primary ENI has no addresses for pods. ADDs wait and fail with code 11.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "UnassignIpv6Addresses",
        on: &[NetworkInterface],
        modes: &[Ipv6Enis],
        purpose: "returns a /80 prefix",
        without: "Unused prefixes stay assigned.",
        coverage: Coverage::Elsewhere(
            "`ipamd/cloud/tests/lab`: no simulated node of IPv6 has several ENIs",
        ),
    },
    Grant {
        action: "DetachNetworkInterface",
        on: &[NetworkInterface, Instance],
        modes: MAKING,
        purpose: "detaches ENIs that no pod uses",
        without: "Unused ENIs stay attached.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "DeleteNetworkInterface",
        on: &[NetworkInterface],
        modes: MAKING,
        purpose: "deletes detached ENIs; with `CLUSTER_NAME`, also leaked ENIs of the cluster",
        without: "Detached ENIs stay in the subnet.",
        coverage: Coverage::Simulation,
    },
    Grant {
        action: "CreateTags",
        on: &[NetworkInterface],
        modes: &[Ipv4, Ipv6, Ipv6Enis],
        purpose: "tags ENIs with their owner, at the creation or later",
        without: "The daemon cannot create ENIs, because each creation carries tags. It uses ENIs of \
                  others without tagging them.",
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
