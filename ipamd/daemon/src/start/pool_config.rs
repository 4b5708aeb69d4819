//! The core's configuration, from the settings and the instance.

use config_model::{CardIndex, InstanceId};
use config_settings::{Family, Settings};
use ipamd_cloud::Node;
use ipamd_core::{CallLimits, Family as CoreFamily, Limits, NodeFacts, PoolConfig};
use std::collections::BTreeMap;

pub(super) fn targets(settings: &Settings, limits: &Limits) -> PoolConfig {
    let defaults = PoolConfig::default();
    PoolConfig {
        family: match settings.family {
            Family::V4 => CoreFamily::V4,
            Family::V6 => CoreFamily::V6,
        },
        prefixes: settings.prefixes,
        warm_eni_target: settings.warm.enis,
        warm_ip_target: Some(settings.warm.ips),
        minimum_ip_target: Some(settings.warm.minimum),
        warm_prefix_target: Some(settings.warm.prefixes),
        max_eni: settings.max_enis,
        max_pods: max_pods(settings.prefixes, limits),
        cooldown: settings.cooldown,
        reservation_lifetime: defaults.reservation_lifetime,
        multi_nic: settings.multi_nic,
        provisioning: settings.provisioning,
        imds_only: settings.imds_only,
        manage_untagged: settings.manage_untagged,
        subnet_discovery: settings.subnet_discovery && settings.custom_networking.is_none(),
        cluster_name: settings.cluster_name.clone(),
        custom_networking: settings.custom_networking.is_some(),
        pod_enis: settings.pod_enis.is_some(),
        manage_unschedulable: settings.manage_enis_non_schedulable,
        collect_leaks: settings.collect_leaks && settings.cluster_name.is_some(),
        calls: CallLimits {
            burst: settings.calls.burst,
            changes_per_second: settings.calls.changes,
            reads_per_second: settings.calls.reads,
        },
        node_cidrs: Vec::new(),
    }
}

/// The pod limit until the Node object has one. As in amazon-vpc-cni's list of instance types, two pods use the
/// node's address. With prefixes it is at least the kubelet's default.
pub(crate) fn max_pods(prefixes: bool, limits: &Limits) -> u32 {
    let by_type = u32::from(limits.enis_on(CardIndex(0))) * limits.secondary_per_eni() + 2;
    if prefixes { by_type.max(KUBELETS_DEFAULT) } else { by_type }
}

/// The reason why the settings do not fit this node, if any.
pub(super) fn misfit(settings: &Settings, node: &Node, limits: &Limits) -> Option<String> {
    if settings.family == Family::V4 {
        return None;
    }
    let instance_type = &node.instance_type;
    if !limits.prefixes {
        return Some(format!(
            "ENABLE_IPv6=true needs an instance type with prefixes, and {instance_type} has none"
        ));
    }
    node.subnet_cidr_v6.is_none().then(|| {
        format!(
            "ENABLE_IPv6=true needs a subnet with IPv6, and the node's {} has none",
            node.subnet
        )
    })
}

/// The node's facts, with the tags and the description of new ENIs.
pub(super) fn facts(node: &Node, settings: &Settings) -> NodeFacts {
    NodeFacts {
        instance_id: node.instance.clone(),
        primary_eni: node.primary_eni.clone(),
        vpc: node.vpc.clone(),
        zone: node.availability_zone.clone(),
        subnet: node.subnet.clone(),
        subnet_cidr: node.subnet_cidr,
        subnet_cidr_v6: node.subnet_cidr_v6,
        security_groups: node.security_groups.clone(),
        description: format!("aws-K8S-{}", node.instance),
        tags: tags(&node.instance, settings),
    }
}

/// The tags of new ENIs: names that amazon-vpc-cni and the cleanup of EKS know, and ours.
fn tags(instance: &InstanceId, settings: &Settings) -> BTreeMap<String, String> {
    let mut tags = settings.eni_tags.clone();
    tags.insert(TAG_INSTANCE.to_owned(), instance.to_string());
    tags.insert(TAG_GROUP.to_owned(), settings.node_group.clone());
    if let Some(cluster) = &settings.cluster_name {
        tags.insert(TAG_CLUSTER.to_owned(), cluster.clone());
        tags.insert(TAG_OWNER.to_owned(), OWNER.to_owned());
    }
    tags
}

/// The kubelet's `maxPods` without a setting.
const KUBELETS_DEFAULT: u32 = 110;
const TAG_INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";
const TAG_CLUSTER: &str = "cluster.k8s.amazonaws.com/name";
const TAG_OWNER: &str = "eks:eni:owner";
const TAG_GROUP: &str = "ferrule.io/node-group";
const OWNER: &str = "amazon-vpc-cni";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::{EniId, Mac, SubnetId, VpcId};

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings::resolve(pairs.iter().copied()).unwrap().0
    }

    fn node() -> Node {
        Node {
            instance: InstanceId::new("i-1"),
            instance_type: "m4.large".to_owned(),
            region: "eu-west-1".to_owned(),
            availability_zone: "eu-west-1a".to_owned(),
            local_ipv4: None,
            local_ipv6: None,
            primary_eni: EniId::new("eni-0"),
            primary_mac: Mac([2, 0, 0, 0, 0, 0]),
            subnet: SubnetId::new("subnet-1"),
            subnet_cidr: None,
            subnet_cidr_v6: None,
            security_groups: Vec::new(),
            vpc: VpcId::new("vpc-1"),
            vpc_v4_cidrs: Vec::new(),
            vpc_v6_cidrs: Vec::new(),
        }
    }

    const IPV6: [(&str, &str); 3] =
        [("ENABLE_IPv4", "false"), ("ENABLE_IPv6", "true"), ("ENABLE_PREFIX_DELEGATION", "true")];

    #[test]
    fn without_settings_only_single_addresses_are_requested() {
        let limits = Limits::one_card(4, 15);
        let targets = targets(&settings(&[]), &limits);
        let expected = PoolConfig {
            warm_ip_target: Some(0),
            minimum_ip_target: Some(0),
            warm_prefix_target: Some(1),
            subnet_discovery: true,
            max_pods: 58,
            ..PoolConfig::default()
        };
        assert_eq!(targets, expected);
    }

    #[test]
    fn leaks_are_collected_within_a_cluster_only() {
        let limits = Limits::one_card(4, 15);
        let collects = |pairs| targets(&settings(pairs), &limits).collect_leaks;
        assert!(!collects(&[]));
        assert!(collects(&[("CLUSTER_NAME", "blue")]));
        assert!(!collects(&[("CLUSTER_NAME", "blue"), ("DISABLE_LEAKED_ENI_CLEANUP", "true")]));
    }

    #[test]
    fn the_calls_that_ec2_may_get_are_the_operators() {
        let limits = Limits::one_card(4, 15);
        let pairs = [
            ("FERRULE_EC2_BURST", "100"),
            ("FERRULE_EC2_CHANGES_PER_SECOND", "30"),
            ("FERRULE_EC2_READS_PER_SECOND", "40"),
        ];
        let wanted = CallLimits { burst: 100, changes_per_second: 30, reads_per_second: 40 };
        assert_eq!(targets(&settings(&pairs), &limits).calls, wanted);
    }

    #[test]
    fn a_small_type_with_prefixes_has_room_for_as_many_pods_as_a_kubelet_runs() {
        let limits = Limits::one_card(3, 10);
        let most = |pairs| targets(&settings(pairs), &limits).max_pods;
        assert_eq!(most(&[]), 29);
        assert_eq!(most(&[("ENABLE_PREFIX_DELEGATION", "true")]), 110);
    }

    #[test]
    fn an_ipv6_node_reports_its_missing_requirements() {
        let (v6, mut node) = (settings(&IPV6), node());
        let old = Limits { prefixes: false, ..Limits::one_card(3, 10) };
        assert!(misfit(&v6, &node, &old).unwrap().contains("m4.large"));
        let new = Limits::one_card(3, 10);
        assert!(misfit(&v6, &node, &new).unwrap().contains("subnet-1"));
        node.subnet_cidr_v6 = Some("2001:db8::/64".parse().unwrap());
        assert_eq!(misfit(&v6, &node, &new), None);
        assert_eq!(misfit(&settings(&[]), &node, &old), None);
    }

    #[test]
    fn new_enis_have_tags_of_their_owner() {
        let pairs = [
            ("CLUSTER_NAME", "blue"),
            ("FERRULE_NODE_GROUP", "gpu"),
            ("ADDITIONAL_ENI_TAGS", r#"{"team":"a","ferrule.io/node-group":"b"}"#),
        ];
        let tags = facts(&node(), &settings(&pairs)).tags;
        let of = |key: &str| tags.get(key).map(String::as_str);
        assert_eq!(of(TAG_INSTANCE), Some("i-1"));
        assert_eq!(of(TAG_GROUP), Some("gpu"), "ours goes before the operator's");
        assert_eq!((of(TAG_CLUSTER), of(TAG_OWNER)), (Some("blue"), Some("amazon-vpc-cni")));
        assert_eq!(of("team"), Some("a"));
    }
}
