//! The registry of shared numbers: what other software on the node can see of us.
//!
//! Values that amazon-vpc-cni uses too are marked *shared*; changing one breaks a takeover.

mod reserved;

pub use reserved::{
    BPF_DIR, BPF_LINKS, BPF_MAPS, EGRESS_MARKS, EGRESS_TABLES, GATEWAY_PORT_SUFFIX, MARK_JUDGED,
    MARK_TRACED, MARK_TUNNELED, OVERLAY_ROUTES, OVS_BRIDGE, PREF_EGRESS, TRACE_DSCP,
    TRACE_DSCP_NUMBER, TUNNEL_KEY, TUNNEL_LINK, TUNNEL_PORT,
};

use crate::Mark;
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

/// Rule priority within a pod: traffic from the address of a further interface goes to that
/// interface's table. *Shared.*
pub const PREF_IN_POD: u32 = 1;
/// Rule priority: what comes in by a strict branch pod's veth or VLAN goes to its branch's table.
/// *Shared.*
pub const PREF_BRANCH: u32 = 10;
/// Rule priority of table `local`, as the kernel has it.
pub const PREF_LOCAL: u32 = 0;
/// Rule priority of table `local` where branch pods are strict: after theirs. *Shared.*
pub const PREF_LOCAL_LATE: u32 = 20;
/// Rule priority: traffic to a pod goes to table main. *Shared.*
pub const PREF_TO_POD: u32 = 512;
/// Rule priority: marked traffic (node ports, SNAT) goes to table main. *Shared.*
pub const PREF_MARKED: u32 = 1024;
/// Rule priority: traffic to external Services goes to table main. *Shared.*
pub const PREF_EXTERNAL: u32 = 1535;
/// Rule priority: traffic from a pod goes to its ENI's table. *Shared.*
pub const PREF_FROM_POD: u32 = 1536;
/// Rule priority: traffic from an ENI's primary address goes to its table. *Shared.*
pub const PREF_FROM_ENI: u32 = 32_765;

/// The connection mark of traffic that must use the primary ENI. *Shared; a setting.*
pub const CONNMARK: Mark = Mark { value: 0x80, mask: 0x80 };

/// The first address of the pods' link-local gateways; interface i uses this plus i. *Shared.*
pub const POD_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The same for IPv6. *Shared.*
pub const POD_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Addresses by which IPv6 pods reach IPv4 destinations; each is known on its node alone, which
/// translates it. *Shared.*
pub const EGRESS_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 172, 0);
/// The length of that range's prefix.
pub const EGRESS_V4_BITS: u8 = 22;

/// The same for IPv4 pods: a unique local range (RFC 4193), whose last bits are a pod's own address.
pub const EGRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd66, 0x6572, 0x7275, 0x6c65, 0, 0, 0, 0);
/// The length of that range's prefix.
pub const EGRESS_V6_BITS: u8 = 96;

/// The VPC's IPv6 router, the same on every ENI. *Shared; AWS's.*
pub const VPC_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0x0ec2, 0, 0, 0, 0, 0, 1);

/// Name prefix of a pod's interfaces beyond its first; their number follows. *Shared.*
pub const FURTHER_INTERFACE: &str = "mNicIf";

/// The table of a branch ENI is its VLAN plus this. *Shared.*
pub const BRANCH_TABLES: u32 = 100;

/// Name prefix of the host veths of strict branch pods, instead of the prefix that is a setting.
/// *Shared.*
pub const STRICT_VETH_PREFIX: &str = "vlan";

/// Name prefix of the link of a branch ENI; its VLAN follows. *Shared.*
pub const VLAN_LINK: &str = "vlan.eth.";

/// The link of a branch ENI has this number plus its VLAN, far from those that the kernel gives.
pub const VLAN_INDEX: u32 = 0x0076_0000;

/// The protocol number (`rtm_protocol`, `FRA_PROTOCOL`) of the routes and rules we add.
pub const ROUTE_PROTOCOL: u8 = 70;

/// The table of the routes to pods, where pods share their rules ("FE"). Far from the tables of ENIs
/// (2 to 16, from 10000 on) and of VLANs (101 to 4194).
pub const POD_ROUTES: u32 = 0x4645;

/// The bits of a packet's mark that identify the ENI of its source, a single address, if pods share
/// their rules. Distinct from those of kube-proxy (0xc000), Calico (0xffff0000) and [`CONNMARK`].
pub const SOURCE_MARKS: u32 = 0x3f00;

/// The device group that a host veth joins when its pod is gone and it may be deleted.
pub const GROUP_REAP: u32 = 0x4645_5252;

/// The device group of a host veth from its creation until it has its alias, which identifies the pod.
pub const GROUP_NEW: u32 = 0x4645_524e;

/// The CNI network's name. *Shared:* under another name a runtime hands DEL no `prevResult`.
pub const CNI_NETWORK: &str = "aws-cni";

/// TCP port of `/metrics`. *Shared.*
pub const METRICS_PORT: u16 = 61_678;

/// Listen address of introspection. *Shared; a setting.*
pub const INTROSPECTION_ADDRESS: &str = "127.0.0.1:61679";
/// The port of the former.
pub const INTROSPECTION_PORT: u16 = 61679;

/// Listen address of the node's health for load balancers of Services. *Shared with kube-proxy; a setting.*
pub const SERVICE_HEALTH_ADDRESS: &str = "[::]:10256";

/// Source ports of packets to backends on other nodes, for clients outside the node. `datapath/bpf/outside.h` has them too.
pub const SOURCE_PORTS: RangeInclusive<u16> = 61_000..=65_535;

/// TCP port where nodes follow a replica of the policy controller; with its node's network.
pub const CONTROLLER_PORT: u16 = 61_690;

/// TCP port of the policy controller's `/livez`, `/readyz` and `/metrics`.
pub const CONTROLLER_HEALTH_PORT: u16 = 61_691;

/// The name that the policy controller's certificate is for, the audience of tokens for it, and its Lease.
pub const CONTROLLER_NAME: &str = "ferrule-controller";

/// The ConfigMap whose entry `ca.crt` has the certificates by which nodes know the policy controller.
pub const CONTROLLER_CA: &str = "ferrule-controller-ca";

/// The daemon's socket.
pub const IPAMD_SOCKET: &str = "/run/ferrule/ipamd.sock";

/// The socket of the agent that enforces policy.
pub const AGENT_SOCKET: &str = "/run/ferrule/agent/agent.sock";

/// The file with the addresses of the policy controller's replicas: the daemon writes it, and the agent reads it.
pub const CONTROLLER_REPLICAS: &str = "/run/ferrule/controller/replicas";

/// The folder that outlives the agent process: the policy that it received.
pub const AGENT_STATE_DIR: &str = "/var/lib/ferrule/agent";

/// The object file of the compiled eBPF programs in the image.
pub const BPF_OBJECT: &str = "/usr/local/lib/ferrule/policy.bpf.o";

/// The folder with the cgroup trees of a node.
pub const CGROUP: &str = "/sys/fs/cgroup";

/// The folder that survives the daemon: checkpoint and tombstones.
pub const STATE_DIR: &str = "/var/lib/ferrule";

/// The folder within [`STATE_DIR`] where the plugin writes tombstones of DELs that the daemon missed.
pub const TOMBSTONE_DIR: &str = "tombstones";

/// The largest MTU of an ENI, in bytes. *Shared.*
pub const ENI_MTU: u32 = 9001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_have_the_source_ports_of_the_registry() {
        let header = include_str!("../../../datapath/bpf/outside.h");
        let count = u32::from(SOURCE_PORTS.end() - SOURCE_PORTS.start()) + 1;
        for line in [
            format!("#define FIRST_SOURCE_PORT {}\n", SOURCE_PORTS.start()),
            format!("#define SOURCE_PORTS {count}\n"),
        ] {
            assert!(header.contains(&line), "{line}");
        }
    }
}
