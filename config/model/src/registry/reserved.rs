//! Numbers that are reserved for datapaths (eBPF, OVS, Egress, overlay). Only [`BPF_MAPS`] and [`BPF_LINKS`] are in use.
//!
//! A reservation is a bit, a number or a path that no other feature may take. The test of this module compares all of
//! them with each other, with the numbers in use, and with those of other software.

use crate::Mark;

/// The mark of a packet that a datapath has already judged: a second hook lets it pass.
pub const MARK_JUDGED: Mark = Mark { value: 0x1, mask: 0x1 };

/// The mark of a packet that left a tunnel: its source address is a pod's and is not translated.
pub const MARK_TUNNELED: Mark = Mark { value: 0x2, mask: 0x2 };

/// The mark of a packet that a trace follows.
pub const MARK_TRACED: Mark = Mark { value: 0x4, mask: 0x4 };

/// The bits of a packet's mark with the number of its Egress address, 1 to 15 on one node; 0 means
/// no Egress address.
pub const EGRESS_MARKS: u32 = 0x78;

/// Rule priority: traffic marked for an Egress address goes to the table of that address. It is after the rule to
/// pods (512) and before the rule from pods (1536).
pub const PREF_EGRESS: u32 = 1_030;

/// The table of an Egress address is this plus its number.
pub const EGRESS_TABLES: u32 = 0x4645_0000;

/// The table of the routes to pods on other nodes by a tunnel.
pub const OVERLAY_ROUTES: u32 = 0x4645_0100;

/// The two of the six DSCP bits that mark a traced packet: code points `xxxx11`, which RFC 2474 leaves to local
/// use.
pub const TRACE_DSCP: u8 = 0b00_0011;
/// The bits of DSCP with the number of the trace, 0 to 15.
pub const TRACE_DSCP_NUMBER: u8 = 0b11_1100;

/// The folder of the pinned eBPF objects.
pub const BPF_DIR: &str = "/sys/fs/bpf/ferrule";
/// The folder of the pinned maps.
pub const BPF_MAPS: &str = "/sys/fs/bpf/ferrule/maps";
/// The folder of the pinned TCX links, one for each hook of a link whose queue excludes `clsact`.
pub const BPF_LINKS: &str = "/sys/fs/bpf/ferrule/links";

/// The OVS bridge that host ends are ports of.
pub const OVS_BRIDGE: &str = "ferrule-br0";

/// Suffix of the bridge's gateway port after the prefix of host veths. Rules that match all host veths by their prefix
/// match the port too. Host veths have hex digits after the prefix, so no name is equal.
pub const GATEWAY_PORT_SUFFIX: &str = "gw0";

/// The tunnel's link.
pub const TUNNEL_LINK: &str = "ferrule-tun0";
/// The tunnel's key (VNI, 24 bits), the same on every node ("FER").
pub const TUNNEL_KEY: u32 = 0x0046_4552;
/// The tunnel's UDP port: neither VXLAN's 4789 nor Geneve's 6081 nor Flannel's and Cilium's 8472, so that another
/// overlay may run beside it.
pub const TUNNEL_PORT: u16 = 61_692;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{
        BRANCH_TABLES, CONNMARK, CONTROLLER_HEALTH_PORT, CONTROLLER_PORT, GROUP_NEW, GROUP_REAP,
        INTROSPECTION_PORT, METRICS_PORT, POD_ROUTES, PREF_BRANCH, PREF_EXTERNAL, PREF_FROM_ENI,
        PREF_FROM_POD, PREF_IN_POD, PREF_LOCAL, PREF_LOCAL_LATE, PREF_MARKED, PREF_TO_POD,
        SOURCE_MARKS,
    };
    use std::ops::RangeInclusive;

    /// Every pair, with the names of both.
    fn pairs<T>(all: &[(&'static str, T)], mut check: impl FnMut(&T, &T) -> bool) {
        for (at, (name, one)) in all.iter().enumerate() {
            for (other_name, other) in &all[at + 1..] {
                assert!(check(one, other), "{name} and {other_name} overlap");
            }
        }
    }

    #[test]
    fn no_two_reservations_of_a_mark_share_a_bit() {
        let marks = [
            ("judged", MARK_JUDGED.mask),
            ("tunneled", MARK_TUNNELED.mask),
            ("traced", MARK_TRACED.mask),
            ("Egress", EGRESS_MARKS),
            ("amazon-vpc-cni's and our connection mark", CONNMARK.mask),
            ("sources", SOURCE_MARKS),
            ("kube-proxy", 0xc000),
            ("Calico", 0xffff_0000),
        ];
        assert_eq!(CONNMARK.mask, 0x80);
        pairs(&marks, |one, other| one & other == 0);
        for mark in [MARK_JUDGED, MARK_TUNNELED, MARK_TRACED, CONNMARK] {
            assert_eq!(mark.value & !mark.mask, 0, "{mark}");
        }
        let all: u32 = marks.iter().map(|(_, mask)| mask).sum();
        assert_eq!(all, u32::MAX, "every bit has one owner; a new one needs one of theirs");
    }

    #[test]
    fn no_two_reservations_of_a_table_overlap() {
        // VLANs 153 to 155 have the kernel's own tables, as with amazon-vpc-cni: a takeover leaves no choice.
        let tables: [(&str, RangeInclusive<u32>); 8] = [
            ("ENIs of card 0", 2..=16),
            ("branches up to VLAN 152", BRANCH_TABLES + 1..=252),
            ("the kernel's default, main and local", 253..=255),
            ("branches from VLAN 156 on", 256..=BRANCH_TABLES + 4_094),
            ("ENIs of 32 further cards", 10_100..=13_299),
            ("routes to pods", POD_ROUTES..=POD_ROUTES),
            ("Egress", EGRESS_TABLES..=EGRESS_TABLES + 15),
            ("overlay", OVERLAY_ROUTES..=OVERLAY_ROUTES),
        ];
        pairs(&tables, |one, other| one.end() < other.start() || other.end() < one.start());
    }

    #[test]
    fn no_two_rules_have_one_priority_and_egress_is_in_its_place() {
        let priorities = [
            ("in a pod", PREF_IN_POD),
            ("branch", PREF_BRANCH),
            ("local", PREF_LOCAL),
            ("local, late", PREF_LOCAL_LATE),
            ("to pods", PREF_TO_POD),
            ("marked", PREF_MARKED),
            ("Egress", PREF_EGRESS),
            ("external", PREF_EXTERNAL),
            ("from pods", PREF_FROM_POD),
            ("from ENIs", PREF_FROM_ENI),
            ("the kernel's main", 32_766),
            ("the kernel's default", 32_767),
        ];
        pairs(&priorities, |one, other| one != other);
        assert!((PREF_MARKED..PREF_FROM_POD).contains(&PREF_EGRESS));
    }

    #[test]
    fn the_bits_of_dscp_are_apart_and_no_class_selector_is_a_trace() {
        assert_eq!(TRACE_DSCP & TRACE_DSCP_NUMBER, 0);
        assert_eq!(TRACE_DSCP | TRACE_DSCP_NUMBER, 0x3f);
        // Class selectors are xxx000, assured and expedited forwarding end in 0.
        let standard = (0..8)
            .map(|class| class << 3)
            .chain([10, 12, 14, 18, 20, 22, 26, 28, 30, 34, 36, 38, 46, 44]);
        for point in standard {
            assert_ne!(point & TRACE_DSCP, TRACE_DSCP, "{point}");
        }
    }

    #[test]
    fn names_fit_the_kernel_and_ports_and_keys_are_our_own() {
        for link in [OVS_BRIDGE, TUNNEL_LINK] {
            assert!(link.len() < 16, "{link}: an interface name has at most 15 bytes");
        }
        for folder in [BPF_MAPS, BPF_LINKS] {
            assert!(folder.starts_with(BPF_DIR) && folder.len() > BPF_DIR.len(), "{folder}");
        }
        assert_ne!(BPF_MAPS, BPF_LINKS);
        const { assert!(TUNNEL_KEY < 1 << 24 && TUNNEL_KEY != GROUP_REAP) };
        const { assert!(GROUP_NEW != GROUP_REAP && GROUP_NEW != TUNNEL_KEY) };
        let ports = [
            ("metrics", METRICS_PORT),
            ("introspection", INTROSPECTION_PORT),
            ("the controller's stream", CONTROLLER_PORT),
            ("the controller's health", CONTROLLER_HEALTH_PORT),
            ("the tunnel", TUNNEL_PORT),
            ("VXLAN", 4_789),
            ("Geneve", 6_081),
            ("VXLAN of Flannel and Cilium", 8_472),
        ];
        pairs(&ports, |one, other| one != other);
    }
}
