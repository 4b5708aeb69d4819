//! The table of settings.

use crate::{
    parse::{self, Wanted},
    values::{Draft, Modes},
};
use config_model::{Span, registry};

/// One setting: all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// The value that counts when it is unset, as one would write it.
    pub default: &'static str,
    /// What a number counts; empty when it is no number.
    pub unit: &'static str,
    /// Whose setting it is.
    pub origin: Origin,
    /// The version of `origin`'s software that brought it; empty if that is not known.
    pub since: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// What comes of it in this version.
    pub effect: Effect,
    /// What happens to a value that does not fit.
    pub on_bad: OnBad,
    /// Whether an empty value counts as none; if not, it is a value like others.
    pub empty_is_unset: bool,
    pub(crate) set: fn(&mut Draft, &str) -> Result<(), Wanted>,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As Go's `ParseBool` reads it.
    Bool,
    /// As Go's `Atoi` reads it; the text says the range.
    Int(&'static str),
    /// Any text.
    Text,
    /// One of a few words.
    Choice(&'static str),
    /// An absolute path.
    Path,
    /// A place to listen at.
    Address,
    /// IPv4 networks between commas.
    Cidrs,
    /// A JSON object of strings.
    Tags,
}

/// Whose setting it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// amazon-vpc-cni has it, by the same name.
    AmazonVpcCni,
    /// Only Ferrule has it.
    Ferrule,
}

/// What comes of a setting in this version.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It does what it says.
    Used,
    /// It is read, and a value other than the default gets a warning with this text.
    NotYet(&'static str),
    /// It is read, and asking for the mode is refused with this text.
    Refused {
        /// Whether the mode is asked for.
        #[expect(private_interfaces, reason = "callers only see that the mode can be refused")]
        asked: fn(&Modes) -> bool,
        /// What is missing.
        why: &'static str,
    },
}

/// What happens to a value that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBad {
    /// The default counts, with a warning.
    UseDefault,
    /// The daemon does not start.
    Refuse,
}

const AMAZON: Setting = Setting {
    name: "",
    kind: Kind::Text,
    default: "",
    unit: "",
    origin: Origin::AmazonVpcCni,
    since: "",
    meaning: "",
    effect: Effect::Used,
    on_bad: OnBad::UseDefault,
    empty_is_unset: false,
    set: |_, _| Ok(()),
};

const OURS: Setting =
    Setting { origin: Origin::Ferrule, since: "0.1", on_bad: OnBad::Refuse, ..AMAZON };

const MTU_RANGE: &str = "an integer from 576 to 9001";

/// Every setting, in the order of the reference page.
pub const TABLE: &[Setting] = &[
    Setting {
        name: "WARM_ENI_TARGET",
        kind: Kind::Int("0 or more"),
        default: "1",
        unit: "ENIs",
        meaning: "Free addresses to keep ready, counted in whole ENIs. Not looked at when \
                  `WARM_IP_TARGET` or `MINIMUM_IP_TARGET` is above 0.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.enis = n),
        ..AMAZON
    },
    Setting {
        name: "WARM_IP_TARGET",
        kind: Kind::Int("0 or more"),
        default: "0",
        unit: "addresses",
        meaning: "Free addresses to keep ready; 0 is off. Goes before `WARM_ENI_TARGET`.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.ips = n),
        ..AMAZON
    },
    Setting {
        name: "MINIMUM_IP_TARGET",
        kind: Kind::Int("0 or more"),
        default: "0",
        unit: "addresses",
        since: "1.6",
        meaning: "The fewest addresses to hold in all; 0 is off. Goes before `WARM_ENI_TARGET`.",
        set: |d, v| parse::count(v).map(|n| d.settings.warm.minimum = n),
        ..AMAZON
    },
    Setting {
        name: "MAX_ENI",
        kind: Kind::Int("any"),
        default: "-1",
        unit: "ENIs",
        meaning: "The most ENIs to use, the primary one included. Counts when it is 1 or more \
                  and below what the instance type allows.",
        set: |d, v| {
            let most = parse::integer(v)?;
            d.settings.max_enis = u32::try_from(most).ok().filter(|most| *most > 0);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "IP_COOLDOWN_PERIOD",
        kind: Kind::Int("0 or more"),
        default: "30",
        unit: "seconds",
        since: "1.15",
        meaning: "How long a released address is given to nobody. A value that does not fit is \
                  refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::count(v).map(|n| d.settings.cooldown = Span::seconds(n.into())),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_ENI_MTU",
        kind: Kind::Int("576 to 9001"),
        default: "9001",
        unit: "bytes",
        since: "1.6",
        meaning: "The MTU of primary and secondary ENIs. A value that does not fit is refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::within(v, 576, 9001, MTU_RANGE).map(|n| d.settings.eni_mtu = n),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_CNI_NODE_PORT_SUPPORT",
        kind: Kind::Bool,
        default: "true",
        meaning: "Rule 1024 and the connection mark keep a node port's answers on the primary \
                  ENI.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.node_port_support = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_CONNMARK",
        kind: Kind::Int("1 to 4294967295, with 0x, 0o or 0b if wanted"),
        default: "0x80",
        meaning: "Mark and mask of traffic that must use the primary ENI. kube-proxy has 0xc000.",
        empty_is_unset: true,
        set: |d, v| parse::mark(v).map(|mark| d.settings.connmark = mark),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_EXTERNALSNAT",
        kind: Kind::Bool,
        default: "false",
        meaning: "Somebody else (a NAT gateway, say) translates the pods' addresses towards the \
                  internet. Rule 1024 then stays only with node port support.",
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.external_snat = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS",
        kind: Kind::Cidrs,
        default: "",
        since: "1.6",
        meaning: "Destinations towards which pods keep their own address. Entries that are no \
                  IPv4 network are left out with a warning.",
        effect: Effect::NotYet("addresses are not translated yet"),
        set: |d, v| {
            d.settings.exclude_snat_cidrs = parse::cidrs(v, &mut d.notes);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_RANDOMIZESNAT",
        kind: Kind::Choice("prng, hashrandom or none"),
        default: "prng",
        meaning: "How source ports are chosen when addresses are translated.",
        effect: Effect::NotYet("addresses are not translated yet"),
        empty_is_unset: true,
        set: |d, v| parse::randomize(v).map(|choice| d.settings.randomize_snat = choice),
        ..AMAZON
    },
    Setting {
        name: "AWS_EXTERNAL_SERVICE_CIDRS",
        kind: Kind::Cidrs,
        default: "",
        since: "1.12.6",
        meaning: "Destinations that are always routed by table main. Entries that are no IPv4 \
                  network are left out with a warning.",
        effect: Effect::NotYet("rule 1535 does not exist yet"),
        set: |d, v| {
            d.settings.external_service_cidrs = parse::cidrs(v, &mut d.notes);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_VETHPREFIX",
        kind: Kind::Text,
        default: "eni",
        meaning: "What names of host veths begin with: 1 to 4 characters, not `eth`, `lo` or \
                  `vlan`. A value that does not fit is refused.",
        on_bad: OnBad::Refuse,
        set: |d, v| parse::veth_prefix(v).map(|prefix| d.settings.veth_prefix = prefix),
        ..AMAZON
    },
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
                  `cluster.k8s.amazonaws.com/name`.",
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
        effect: Effect::Refused {
            asked: |modes| modes.only_tagged,
            why: "every ENI of the node is used unless it carries the no_manage tag",
        },
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.modes.only_tagged = !b),
        ..AMAZON
    },
    Setting {
        name: "AWS_MANAGE_ENIS_NON_SCHEDULABLE",
        kind: Kind::Bool,
        default: "false",
        since: "1.12.6",
        meaning: "ENIs are attached and detached also while the node takes no new pods.",
        effect: Effect::NotYet("the node object is not read yet, so ENIs are always managed"),
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
                  one and those that are tagged for it.",
        effect: Effect::NotYet("ENIs are made in the primary ENI's subnet in either case"),
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.settings.subnet_discovery = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_LEAKED_ENI_CLEANUP",
        kind: Kind::Bool,
        default: "false",
        since: "1.13",
        meaning: "ENIs that were left behind by nodes that are gone are not looked for.",
        effect: Effect::NotYet("ENIs that are left behind are not looked for in either case"),
        set: |d, v| parse::boolean(v).map(|b| d.modes.no_leaked_cleanup = b),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_LOGLEVEL",
        kind: Kind::Choice("debug, info, warn, error or fatal, in any case"),
        default: "DEBUG",
        meaning: "The least severe log line that is written.",
        empty_is_unset: true,
        set: |d, v| parse::log_level(v).map(|level| d.settings.log_level = level),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_LOG_FILE",
        kind: Kind::Text,
        default: "/host/var/log/aws-routed-eni/ipamd.log",
        meaning: "Where log lines go: `stdout`, `stderr` or an absolute path.",
        empty_is_unset: true,
        set: |d, v| parse::log_to(v).map(|to| d.settings.log_to = to),
        ..AMAZON
    },
    Setting {
        name: "INTROSPECTION_BIND_ADDRESS",
        kind: Kind::Address,
        default: registry::INTROSPECTION_ADDRESS,
        meaning: "Where introspection listens: address and port, or `unix:` and a path.",
        empty_is_unset: true,
        set: |d, v| parse::bind(v).map(|bind| d.settings.introspection = Some(bind)),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_INTROSPECTION",
        kind: Kind::Bool,
        default: "false",
        meaning: "Introspection is not served.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.introspection_off = b),
        ..AMAZON
    },
    Setting {
        name: "DISABLE_METRICS",
        kind: Kind::Bool,
        default: "false",
        meaning: "`/metrics` on port 61678 is not served.",
        set: |d, v| parse::boolean(v).map(|b| d.settings.metrics = !b),
        ..AMAZON
    },
    Setting {
        name: "HTTP_TIMEOUT",
        kind: Kind::Int("10 or more"),
        default: "10",
        unit: "seconds",
        meaning: "The time limit of one call to EC2.",
        empty_is_unset: true,
        set: |d, v| {
            let seconds = parse::within(v, 10, u32::MAX.into(), "an integer, 10 or more")?;
            d.settings.http_timeout = Span::seconds(seconds.into());
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "MY_NODE_NAME",
        meaning: "The node's name in Kubernetes; the manifest fills it in.",
        set: |d, v| {
            d.settings.node_name = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "MY_POD_NAME",
        meaning: "The daemon's pod's name in Kubernetes; the manifest fills it in.",
        set: |d, v| {
            d.settings.pod_name = parse::text(v);
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "NETWORK_POLICY_ENFORCING_MODE",
        kind: Kind::Choice("none, standard or strict, in any case"),
        default: "standard",
        since: "1.17.1",
        meaning: "What holds for a pod that no policy names. A value that does not fit is \
                  refused.",
        effect: Effect::Refused {
            asked: |modes| modes.policy_strict,
            why: "there are no network policies yet, so pods would start open instead of closed",
        },
        on_bad: OnBad::Refuse,
        empty_is_unset: true,
        set: |d, v| {
            d.settings.policy_mode = parse::policy_mode(v)?;
            d.modes.policy_strict = d.settings.policy_mode == crate::PolicyMode::Strict;
            Ok(())
        },
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IPv4",
        kind: Kind::Bool,
        default: "true",
        since: "1.10",
        meaning: "Pods get IPv4 addresses. Exactly one of this and `ENABLE_IPv6` must be true.",
        set: |d, v| parse::boolean(v).map(|b| d.modes.ipv4 = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IPv6",
        kind: Kind::Bool,
        default: "false",
        since: "1.10",
        meaning: "Pods get IPv6 addresses.",
        effect: Effect::Refused { asked: |modes| modes.ipv6, why: "pods get IPv4 addresses only" },
        set: |d, v| parse::boolean(v).map(|b| d.modes.ipv6 = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_PREFIX_DELEGATION",
        kind: Kind::Bool,
        default: "false",
        since: "1.9",
        meaning: "Addresses come in prefixes of 16.",
        effect: Effect::Refused {
            asked: |modes| modes.prefixes,
            why: "addresses come one by one; there are no prefixes",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.prefixes = b),
        ..AMAZON
    },
    Setting {
        name: "WARM_PREFIX_TARGET",
        kind: Kind::Int("0 or more"),
        default: "1",
        unit: "prefixes",
        since: "1.9",
        meaning: "Free prefixes to keep ready, with `ENABLE_PREFIX_DELEGATION` only.",
        set: |d, v| parse::count(v).map(|n| d.modes.warm_prefixes = n),
        ..AMAZON
    },
    Setting {
        name: "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        kind: Kind::Bool,
        default: "false",
        meaning: "ENIs are made as the node's ENIConfig says.",
        effect: Effect::Refused {
            asked: |modes| modes.custom_networking,
            why: "ENIs are made in the primary ENI's subnet; ENIConfig is not read",
        },
        empty_is_unset: true,
        set: |d, v| parse::boolean(v).map(|b| d.modes.custom_networking = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_MULTI_NIC",
        kind: Kind::Bool,
        default: "false",
        since: "1.20",
        meaning: "Network cards beyond the first are used.",
        effect: Effect::Refused {
            asked: |modes| modes.multi_nic,
            why: "only the first network card is used",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.multi_nic = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_POD_ENI",
        kind: Kind::Bool,
        default: "false",
        since: "1.7",
        meaning: "Security groups for pods, by branch ENIs.",
        effect: Effect::Refused {
            asked: |modes| modes.pod_eni,
            why: "there are no branch ENIs, so a pod's own security groups would not hold",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.pod_eni = b),
        ..AMAZON
    },
    Setting {
        name: "POD_SECURITY_GROUP_ENFORCING_MODE",
        kind: Kind::Choice("strict or standard"),
        default: "strict",
        since: "1.11",
        meaning: "How branch ENIs are routed, with `ENABLE_POD_ENI` only.",
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
        meaning: "Nothing is created, attached or assigned in EC2.",
        effect: Effect::Refused {
            asked: |modes| modes.no_provisioning,
            why: "the daemon manages ENIs and addresses itself",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.no_provisioning = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_IMDS_ONLY_MODE",
        kind: Kind::Bool,
        default: "false",
        since: "1.19.6",
        meaning: "EC2 is not asked what the node has; the instance's metadata is.",
        effect: Effect::Refused {
            asked: |modes| modes.imds_only,
            why: "what the node has is read from EC2",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.imds_only = b),
        ..AMAZON
    },
    Setting {
        name: "ANNOTATE_POD_IP",
        kind: Kind::Bool,
        default: "false",
        since: "1.9.3",
        meaning: "A pod's address is written to its annotation `vpc.amazonaws.com/pod-ips`.",
        effect: Effect::Refused {
            asked: |modes| modes.annotate_pod_ip,
            why: "the daemon does not speak to Kubernetes",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.annotate_pod_ip = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_V6_EGRESS",
        kind: Kind::Bool,
        default: "false",
        since: "1.13",
        meaning: "Pods reach IPv6 destinations by a translated address.",
        effect: Effect::Refused { asked: |modes| modes.v6_egress, why: "pods have IPv4 only" },
        set: |d, v| parse::boolean(v).map(|b| d.modes.v6_egress = b),
        ..AMAZON
    },
    Setting {
        name: "ENABLE_BANDWIDTH_PLUGIN",
        kind: Kind::Bool,
        default: "false",
        since: "1.10",
        meaning: "Pods' bandwidth annotations hold.",
        effect: Effect::Refused {
            asked: |modes| modes.bandwidth,
            why: "the bandwidth plugin is not chained, so limits would not hold",
        },
        set: |d, v| parse::boolean(v).map(|b| d.modes.bandwidth = b),
        ..AMAZON
    },
    Setting {
        name: "FERRULE_ADD_WAIT",
        kind: Kind::Int("1 to 3600"),
        default: "45",
        unit: "seconds",
        meaning: "The longest that an ADD waits for an address.",
        set: |d, v| {
            let seconds = parse::within(v, 1, 3600, "an integer from 1 to 3600")?;
            d.settings.add_wait = Span::seconds(seconds.into());
            Ok(())
        },
        ..OURS
    },
    Setting {
        name: "FERRULE_STATE_DIR",
        kind: Kind::Path,
        default: registry::STATE_DIR,
        meaning: "The folder of checkpoint and tombstones. The plugin must have the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.state_dir = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_SOCKET",
        kind: Kind::Path,
        default: registry::IPAMD_SOCKET,
        meaning: "The daemon's socket. The plugin must have the same.",
        set: |d, v| parse::path(v).map(|path| d.settings.socket = path),
        ..OURS
    },
    Setting {
        name: "FERRULE_PROC_SYS_NET",
        kind: Kind::Path,
        default: "/host/proc/sys/net",
        meaning: "Where the host's `/proc/sys/net` is mounted such that it can be written; a \
                  container's own is read-only. The path ends in `/net`.",
        set: |d, v| parse::net_folder(v).map(|path| d.settings.proc_sys_net = path),
        ..OURS
    },
];
