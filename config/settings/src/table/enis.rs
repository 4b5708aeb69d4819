//! Which ENIs there are, where they are made and what they carry.

use super::{AMAZON, Kind, Setting};
use crate::parse;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "ADDITIONAL_ENI_TAGS",
        kind: Kind::Tags,
        default: "{}",
        since: "1.6",
        meaning: "More tags for the ENIs that are created. Keys with `k8s.amazonaws.com` in them \
                  or `aws:` before them are left out with a warning.",
        empty_is_unset: true,
        set: |d, v| parse::tags(v, &mut d.notes).map(|tags| d.settings.eni_tags = tags),
        ..AMAZON
    },
    Setting {
        name: "CLUSTER_NAME",
        meaning: "The cluster's name; ENIs that are created carry it as \
                  `cluster.k8s.amazonaws.com/name`. Without it no leaked ENIs are collected, and \
                  subnets' cluster tags are not looked at.",
        set: |d, v| {
            d.settings.cluster_name = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "MANAGE_UNTAGGED_ENI",
        kind: Kind::Bool,
        default: "true",
        meaning: "ENIs without this node's `node.k8s.amazonaws.com/instance_id` tag are used too. \
                  One with the tag `node.k8s.amazonaws.com/no_manage=true` never is.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.manage_untagged = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_MANAGE_ENIS_NON_SCHEDULABLE",
        kind: Kind::Bool,
        default: "false",
        since: "1.12.6",
        meaning: "ENIs are attached and detached also while the node takes no new pods.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.manage_enis_non_schedulable = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_SUBNET_DISCOVERY",
        kind: Kind::Bool,
        default: "true",
        since: "1.18",
        meaning: "ENIs are made in the subnet with the most free addresses among the primary \
                  one and those that are tagged for it (`kubernetes.io/role/cni`). Not used with \
                  `AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG`.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.subnet_discovery = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        kind: Kind::Bool,
        default: "false",
        meaning: "ENIs are made as the node's ENIConfig says, and the primary ENI gives pods no \
                  addresses. The daemon waits for the API server.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.modes.custom_networking = b),
        ..AMAZON
    },
    Setting {
        name: "ENI_CONFIG_ANNOTATION_DEF",
        default: "k8s.amazonaws.com/eniConfig",
        meaning: "The node's annotation that names its ENIConfig.",
        empty_is_unset: true,
        set: |d, v| {
            d.modes.eni_config_annotation = v.to_owned();
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "ENI_CONFIG_LABEL_DEF",
        default: "k8s.amazonaws.com/eniConfig",
        meaning: "The node's label that names its ENIConfig if the annotation does not, such as \
                  `topology.kubernetes.io/zone`.",
        empty_is_unset: true,
        set: |d, v| {
            d.modes.eni_config_label = v.to_owned();
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "ENABLE_MULTI_NIC",
        kind: Kind::Bool,
        default: "false",
        since: "1.20",
        meaning: "Network cards beyond the first are used; pods that ask for it get an interface \
                  on each.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.multi_nic = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_POD_ENI",
        kind: Kind::Bool,
        default: "false",
        since: "1.7",
        meaning: "Security groups for pods, by branch ENIs: a place is kept for the trunk ENI, and \
                  the node's CNINode asks for it. The daemon waits for the API server.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.pod_eni = b),
        ..AMAZON
    },
    Setting {
        name: "POD_SECURITY_GROUP_ENFORCING_MODE",
        kind: Kind::Choice("strict or standard"),
        default: "strict",
        since: "1.11",
        meaning: "How branch ENIs are routed, with `ENABLE_POD_ENI` only; a value that does not \
                  fit is then refused.",
        empty_is_unset: true,
        set: |d, v| {
            d.modes.pod_eni_mode = v.to_owned();
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "DISABLE_NETWORK_RESOURCE_PROVISIONING",
        kind: Kind::Bool,
        default: "false",
        since: "1.9.1",
        meaning: "Nothing is created, attached, assigned or tagged in EC2: the daemon uses what \
                  the node has. Leaked ENIs are not collected then.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.provisioning = !b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IMDS_ONLY_MODE",
        kind: Kind::Bool,
        default: "false",
        since: "1.19.6",
        meaning: "EC2 is not asked what the node has; the instance's metadata is. Nothing is \
                  changed in EC2 either, as with `DISABLE_NETWORK_RESOURCE_PROVISIONING`.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.imds_only = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_LEAKED_ENI_CLEANUP",
        kind: Kind::Bool,
        default: "false",
        since: "1.13",
        meaning: "ENIs that were left behind by nodes of this node group that are gone are not \
                  looked for. Otherwise one daemon of the group, elected by a Lease, deletes them.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.collect_leaks = !b),
        ..AMAZON
    },
];
