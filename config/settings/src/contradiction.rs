//! Settings that cannot both hold. Better no daemon than one that does something else.

use crate::{
    Bind, Kubernetes, Refusal,
    values::{Draft, Modes},
};
use std::{collections::BTreeMap, fmt};

/// Refuses the first contradiction, with the names and values of both settings.
pub(crate) fn refuse(draft: &Draft, given: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let given = Environment(given);
    families(draft, &given)?;
    prefixes(draft, &given)?;
    imds_only_mode(draft, &given)?;
    kubernetes(draft, &given)?;
    enforcing_mode(&draft.modes, &given)?;
    policy_agent(draft, &given)?;
    policy(draft, &given)?;
    sockets(draft)
}

struct Environment<'a>(&'a BTreeMap<String, String>);

impl Environment<'_> {
    fn named(&self, name: &str, value: impl fmt::Display) -> String {
        let origin = if self.0.contains_key(name) { "" } else { " (default)" };
        format!("{name}={value}{origin}")
    }
}

fn clash(first: String, second: String, why: &'static str) -> Result<(), Refusal> {
    Err(Refusal::Contradiction { first, second, why })
}

fn families(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let Draft { modes, settings, .. } = draft;
    let ipv6 = given.named("ENABLE_IPv6", modes.ipv6);
    if modes.ipv4 == modes.ipv6 {
        let why = "exactly one of them must be true";
        return clash(given.named("ENABLE_IPv4", modes.ipv4), ipv6, why);
    }
    if !modes.ipv6 {
        let egress = given.named("ENABLE_V6_EGRESS", modes.v6_egress);
        return if modes.v6_egress { carries_ipv6(draft, given, egress) } else { Ok(()) };
    }
    if !settings.prefixes {
        let prefixes = given.named("ENABLE_PREFIX_DELEGATION", settings.prefixes);
        return clash(ipv6, prefixes, "IPv6 addresses come from prefixes only");
    }
    if modes.custom_networking {
        let custom = given.named("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", modes.custom_networking);
        return clash(ipv6, custom, "custom networking exists for IPv4 only");
    }
    carries_ipv6(draft, given, ipv6)
}

fn carries_ipv6(draft: &Draft, given: &Environment<'_>, ipv6: String) -> Result<(), Refusal> {
    let Draft { modes, settings, .. } = draft;
    if settings.eni_mtu < LEAST_MTU_OF_IPV6 {
        let mtu = given.named("AWS_VPC_ENI_MTU", settings.eni_mtu);
        return clash(ipv6, mtu, CARRIES_IPV6);
    }
    if let Some(mtu) = modes.pod_mtu.filter(|mtu| *mtu < LEAST_MTU_OF_IPV6) {
        return clash(ipv6, given.named("POD_MTU", mtu), CARRIES_IPV6);
    }
    Ok(())
}

fn prefixes(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let settings = &draft.settings;
    let warm = settings.warm;
    let no_target = warm.prefixes == 0 && warm.ips == 0 && warm.minimum == 0;
    if settings.prefixes && no_target && !draft.modes.ipv6 {
        return clash(
            given.named("ENABLE_PREFIX_DELEGATION", settings.prefixes),
            given.named("WARM_PREFIX_TARGET", warm.prefixes),
            "one of WARM_PREFIX_TARGET, WARM_IP_TARGET and MINIMUM_IP_TARGET must be above 0",
        );
    }
    Ok(())
}

/// The metadata service knows neither tags nor types of ENIs.
fn imds_only_mode(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let Draft { modes, settings, .. } = draft;
    if !settings.imds_only {
        return Ok(());
    }
    let imds = given.named("ENABLE_IMDS_ONLY_MODE", settings.imds_only);
    if modes.pod_eni {
        let pod_eni = given.named("ENABLE_POD_ENI", modes.pod_eni);
        return clash(imds, pod_eni, "the metadata service does not report which ENI is the trunk");
    }
    if !settings.manage_untagged {
        let untagged = given.named("MANAGE_UNTAGGED_ENI", settings.manage_untagged);
        return clash(imds, untagged, "the metadata service does not report the tags of ENIs");
    }
    Ok(())
}

fn kubernetes(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let Draft { modes, settings, .. } = draft;
    let needing = [
        ("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", modes.custom_networking),
        ("ENABLE_POD_ENI", modes.pod_eni),
        ("ANNOTATE_POD_IP", settings.annotate_pod_ip),
    ];
    let Some((name, _)) = needing.into_iter().find(|(_, asked)| *asked) else { return Ok(()) };
    let mode = given.named(name, true);
    if settings.kubernetes == Kubernetes::Off {
        let off = given.named("FERRULE_KUBERNETES", "off");
        return clash(mode, off, "the mode requires the API server");
    }
    if settings.node_name.is_none() {
        let nameless = given.named("MY_NODE_NAME", "");
        return clash(mode, nameless, "the mode requires the node's name in Kubernetes");
    }
    Ok(())
}

fn enforcing_mode(modes: &Modes, given: &Environment<'_>) -> Result<(), Refusal> {
    if modes.pod_eni && !["strict", "standard"].contains(&modes.pod_eni_mode.as_str()) {
        return clash(
            given.named("ENABLE_POD_ENI", modes.pod_eni),
            // Its value fits nothing, so it is not shown.
            "POD_SECURITY_GROUP_ENFORCING_MODE".to_owned(),
            "the enforcing mode must be strict or standard",
        );
    }
    Ok(())
}

/// The agent knows two modes, and host veths by their prefix.
fn policy_agent(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let settings = &draft.settings;
    if !settings.policy_agent {
        return Ok(());
    }
    let agent = given.named("FERRULE_POLICY_AGENT", true);
    if settings.policy_mode.is_none() {
        let mode = given.named("NETWORK_POLICY_ENFORCING_MODE", "none");
        return clash(agent, mode, "the agent's modes are standard and strict");
    }
    if settings.veth_prefix != "eni" {
        let prefix = given.named("AWS_VPC_K8S_CNI_VETHPREFIX", &settings.veth_prefix);
        return clash(agent, prefix, "the agent looks for host veths by the prefix eni");
    }
    Ok(())
}

/// One enforces policy, and asks before a pod starts.
fn policy(draft: &Draft, given: &Environment<'_>) -> Result<(), Refusal> {
    let settings = &draft.settings;
    if !settings.policy {
        return Ok(());
    }
    let policy = given.named("FERRULE_POLICY", true);
    if settings.policy_agent {
        let agent = given.named("FERRULE_POLICY_AGENT", true);
        let why =
            "either ferrule-agent enforces policies on a node or aws-network-policy-agent does";
        return clash(policy, agent, why);
    }
    if settings.policy_mode.is_none() {
        let mode = given.named("NETWORK_POLICY_ENFORCING_MODE", "none");
        return clash(policy, mode, "pods start by policy in the modes standard and strict");
    }
    Ok(())
}

fn sockets(draft: &Draft) -> Result<(), Refusal> {
    let Draft { modes, settings, .. } = draft;
    if let Some(Bind::Unix(path)) = &settings.introspection
        && *path == settings.socket
        && !modes.introspection_off
    {
        return clash(
            "INTROSPECTION_BIND_ADDRESS".to_owned(),
            "FERRULE_SOCKET".to_owned(),
            "both name the same socket",
        );
    }
    Ok(())
}

const CARRIES_IPV6: &str = "links that carry IPv6 have an MTU of 1280 or more";
/// RFC 8200, section 5.
const LEAST_MTU_OF_IPV6: u32 = 1280;
