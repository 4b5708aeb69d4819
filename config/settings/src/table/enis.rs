//! Settings about ENIs: their number, their subnets and their tags.

use super::{AMAZON, Kind, Setting};
use crate::parse;

/// In the order of the reference page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "ADDITIONAL_ENI_TAGS",
        kind: Kind::Tags,
        default: "{}",
        since: "1.6",
        meaning: "Additional tags for created ENIs. Keys that contain `k8s.amazonaws.com` or start \
                  with `aws:` are left out with a warning.",
        empty_is_unset: true,
        set: |d, v| parse::tags(v, &mut d.notes).map(|tags| d.settings.eni_tags = tags),
        ..AMAZON
    },
    Setting {
        name: "CLUSTER_NAME",
        meaning: "The cluster's name. Created ENIs carry it as `cluster.k8s.amazonaws.com/name`. \
                  Without it leaked ENIs are not collected, and cluster tags of subnets are \
                  ignored.",
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
        meaning: "The daemon also uses ENIs without this node's tag \
                  `node.k8s.amazonaws.com/instance_id`. It never uses an ENI with the tag \
                  `node.k8s.amazonaws.com/no_manage=true`.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.manage_untagged = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_MANAGE_ENIS_NON_SCHEDULABLE",
        kind: Kind::Bool,
        default: "false",
        since: "1.12.6",
        meaning: "ENIs are attached and detached even if the node is unschedulable.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.manage_enis_non_schedulable = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_SUBNET_DISCOVERY",
        kind: Kind::Bool,
        default: "true",
        since: "1.18",
        meaning: "ENIs are created in the subnet with the most free addresses, among the primary \
                  subnet and the subnets with the tag `kubernetes.io/role/cni`. Not used with \
                  `AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG`.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.subnet_discovery = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        kind: Kind::Bool,
        default: "false",
        meaning: "ENIs are created according to the node's ENIConfig, and the primary ENI gives \
                  pods no addresses. The daemon waits for the API server.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.modes.custom_networking = b),
        ..AMAZON
    },
    Setting {
        name: "ENI_CONFIG_ANNOTATION_DEF",
        default: "k8s.amazonaws.com/eniConfig",
        meaning: "The node annotation with the name of its ENIConfig.",
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
        meaning: "The node label with the name of its ENIConfig if the annotation is missing, such \
                  as `topology.kubernetes.io/zone`.",
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
        meaning: "Network cards beyond the first are used; pods that request it get an interface \
                  on each.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.multi_nic = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_POD_ENI",
        kind: Kind::Bool,
        default: "false",
        since: "1.7",
        meaning: "Security groups for pods with branch ENIs: a slot is kept for the trunk ENI, and \
                  the node's CNINode requests it. The daemon waits for the API server.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.pod_eni = b),
        ..AMAZON
    },
    Setting {
        name: "POD_SECURITY_GROUP_ENFORCING_MODE",
        kind: Kind::Choice("strict or standard"),
        default: "strict",
        since: "1.11",
        meaning: "The routing of branch ENIs, only with `ENABLE_POD_ENI`. An invalid value is then \
                  refused.",
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
        meaning: "The daemon creates, attaches, assigns and tags nothing in EC2: it uses the \
                  addresses that the node has. Leaked ENIs are not collected.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.provisioning = !b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IMDS_ONLY_MODE",
        kind: Kind::Bool,
        default: "false",
        since: "1.19.6",
        meaning: "The daemon observes the node only through the instance metadata service, not \
                  through EC2. It changes nothing in EC2, as with \
                  `DISABLE_NETWORK_RESOURCE_PROVISIONING`.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.imds_only = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_LEAKED_ENI_CLEANUP",
        kind: Kind::Bool,
        default: "false",
        since: "1.13",
        meaning: "Leaked ENIs of former nodes of this node group are not collected. Otherwise one \
                  daemon of the group, elected by a Lease, deletes them.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.collect_leaks = !b),
        ..AMAZON
    },
];
