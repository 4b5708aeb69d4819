//! Comparison of the settings of `aws-node` and Ferrule.

use std::collections::{BTreeMap, BTreeSet};

/// Settings by name.
pub type Values = BTreeMap<String, String>;

/// A setting with different values in `aws-node` and Ferrule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub name: String,
    /// The value of `aws-node`.
    pub vpc_cni: String,
    /// The value of Ferrule.
    pub ferrule: String,
    /// True if running pods lose connections or are not served after the takeover.
    pub breaks_pods: bool,
    pub consequence: &'static str,
}

/// Compares the settings that `defaults` names. A missing or empty value is the default of its program.
pub fn differences(vpc_cni: &Values, ferrule: &Values, defaults: &Values) -> Vec<Difference> {
    let compare = |(name, default): (&String, &String)| {
        let of_vpc_cni = OTHER_DEFAULTS.iter().find(|(other, _)| other == name);
        let of_vpc_cni = of_vpc_cni.map_or(default.as_str(), |&(_, default)| default);
        let theirs = value(vpc_cni, name, of_vpc_cni, defaults);
        let ours = value(ferrule, name, default, defaults);
        if are_equal(theirs, ours) {
            return None;
        }
        let breaking = BREAKING.iter().find(|(setting, _)| setting == name);
        let harmless = HARMLESS.iter().find(|(setting, _)| setting == name);
        let consequence = breaking.or(harmless).map_or(KEPT, |&(_, consequence)| consequence);
        Some(Difference {
            name: name.clone(),
            vpc_cni: theirs.to_owned(),
            ferrule: ours.to_owned(),
            breaks_pods: breaking.is_some(),
            consequence,
        })
    };
    defaults.iter().filter_map(compare).collect()
}

fn value<'a>(values: &'a Values, name: &str, default: &'a str, defaults: &'a Values) -> &'a str {
    let given = |name: &str| {
        let value = values.get(name).map(|value| value.trim());
        value.filter(|value| !value.is_empty())
    };
    let mtu_of_enis = || given(ENI_MTU).or(defaults.get(ENI_MTU).map(String::as_str));
    let unset = || if name == POD_MTU { mtu_of_enis().unwrap_or(default) } else { default };
    given(name).unwrap_or_else(unset)
}

/// Compares values as the daemons read them.
fn are_equal(one: &str, other: &str) -> bool {
    let both = |read: fn(&str) -> Option<serde_json::Value>| {
        read(one).is_some_and(|value| Some(value) == read(other))
    };
    one == other || both(boolean) || both(integer) || both(list) || both(object)
}

/// Reads the forms of Go's `ParseBool`.
fn boolean(text: &str) -> Option<serde_json::Value> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true.into()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false.into()),
        _ => None,
    }
}

fn integer(text: &str) -> Option<serde_json::Value> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.ok().map(Into::into)
}

/// Reads a list of networks. Their order has no effect.
fn list(text: &str) -> Option<serde_json::Value> {
    let entries: BTreeSet<&str> = text.split(',').map(str::trim).collect();
    let entries = entries.into_iter().filter(|entry| !entry.is_empty());
    Some(entries.map(str::to_owned).collect::<Vec<_>>().into())
}

/// Reads the tags of ENIs.
fn object(text: &str) -> Option<serde_json::Value> {
    let read = serde_json::from_str(text).ok();
    read.filter(serde_json::Value::is_object)
}

const ENI_MTU: &str = "AWS_VPC_ENI_MTU";
const POD_MTU: &str = "POD_MTU";

/// Defaults of amazon-vpc-cni's code that differ from those of Ferrule. Its manifest sets these variables.
const OTHER_DEFAULTS: [(&str, &str); 3] =
    [("ENABLE_IPv4", "false"), ("NETWORK_POLICY_ENFORCING_MODE", ""), ("WARM_PREFIX_TARGET", "0")];

/// Settings whose difference interrupts running pods, with the consequence.
const BREAKING: [(&str, &str); 13] = [
    (
        "AWS_EXTERNAL_SERVICE_CIDRS",
        "packets of running pods to these networks leave through another ENI",
    ),
    ("AWS_VPC_CNI_NODE_PORT_SUPPORT", OF_NODE_PORTS),
    ("AWS_VPC_K8S_CNI_BACKING_STORE", "Ferrule does not find the checkpoint of the running pods"),
    ("AWS_VPC_K8S_CNI_CONNMARK", OF_NODE_PORTS),
    (
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
        "pods get addresses of other subnets, with other security groups",
    ),
    ("AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS", OF_SNAT),
    ("AWS_VPC_K8S_CNI_EXTERNALSNAT", OF_SNAT),
    ("AWS_VPC_K8S_CNI_VETHPREFIX", "Ferrule does not find the links of running pods"),
    ("ENABLE_IPv4", OF_FAMILIES),
    ("ENABLE_IPv6", OF_FAMILIES),
    ("ENABLE_MULTI_NIC", "pods with interfaces on several network cards are not served"),
    ("ENABLE_POD_ENI", "pods with security groups of their own are not served"),
    (
        "MANAGE_UNTAGGED_ENI",
        "addresses of running pods can be on ENIs that Ferrule does not manage",
    ),
];

const OF_FAMILIES: &str = "pods get addresses of the other family";
const OF_NODE_PORTS: &str = "replies of node ports leave through another ENI and are lost";
const OF_SNAT: &str =
    "connections of running pods to the internet get another source address and break";

/// Other settings whose difference has a particular consequence.
const HARMLESS: [(&str, &str); 11] = [
    ("AWS_VPC_ENI_MTU", OF_MTU),
    ("CLUSTER_NAME", "new ENIs have another tag of the cluster"),
    ("ENABLE_PREFIX_DELEGATION", "the ENIs give another number of addresses to new pods"),
    ("ENI_CONFIG_ANNOTATION_DEF", OF_ENI_CONFIG),
    ("ENI_CONFIG_LABEL_DEF", OF_ENI_CONFIG),
    ("MAX_ENI", "the node has another limit of addresses"),
    ("MINIMUM_IP_TARGET", OF_POOL),
    ("POD_MTU", OF_MTU),
    ("WARM_ENI_TARGET", OF_POOL),
    ("WARM_IP_TARGET", OF_POOL),
    ("WARM_PREFIX_TARGET", OF_POOL),
];

const OF_ENI_CONFIG: &str = "with custom networking, new ENIs use another ENIConfig";
const OF_MTU: &str = "running pods keep their MTU, and ENIs or new pods get another one";
const OF_POOL: &str = "the daemon keeps another number of free addresses";
const KEPT: &str = "running pods keep their network";
