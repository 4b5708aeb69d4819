//! The runtime's network configurations: amazon-vpc-cni's, and Ferrule's replacement for it.

use crate::{File, Observed, Refusal, refusal::UNSEEN};
use config_model::registry;
use serde_json::Value;

/// Ferrule's file. The runtime uses the first file by name.
pub const OURS: &str = "05-ferrule.conflist";
/// The suffix of disabled files; runtimes ignore it.
pub const ASIDE: &str = ".ferrule-aside";

/// Chained plugins that the replacement keeps unchanged.
const KEPT: [&str; 3] = ["portmap", "bandwidth", "tuning"];
const READ: [&str; 3] = [".conf", ".conflist", ".json"];
/// The default of amazon-vpc-cni.
const PREFIX: &str = "eni";
const LOG: &str = "/var/log/aws-routed-eni/plugin.log";
const LEVEL: &str = "DEBUG";

/// Ferrule's configuration that replaces amazon-vpc-cni's.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// The CNI version of cached results.
    pub cni_version: String,
    pub mtu: u32,
    pub veth_prefix: String,
    pub log_file: String,
    pub log_level: String,
    /// The chained plugins, unchanged.
    pub chained: Vec<Value>,
}

/// amazon-vpc-cni's configuration and its present location.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VpcCniConfig {
    /// The file name without the suffix of disabled files.
    pub(crate) name: String,
    /// True if the file is disabled.
    pub(crate) aside: bool,
    /// Ferrule's replacement.
    pub(crate) ferrule: Network,
}

/// Returns true if runtimes read files of this name.
pub fn is_read(name: &str) -> bool {
    READ.iter().any(|end| name.ends_with(end))
}

const EGRESS: &str = "egress-cni is enabled: its pods have a second address of the other family (ENABLE_V4_EGRESS in \
                      an IPv6 cluster, ENABLE_V6_EGRESS in an IPv4 cluster), and a takeover cannot keep it";
const NEW_NODE: &str =
    "replace the node by a new one that has the label ferrule.io/network=ferrule from the start";
/// The next step if a configuration is not understood.
const MISREAD: &str = "restore it as amazon-vpc-cni wrote it (its container does so at its start), \
                       or remove the file";

/// Finds and parses amazon-vpc-cni's configuration.
pub(crate) fn vpc_cni(files: &[File]) -> Result<VpcCniConfig, Vec<Refusal>> {
    let (mut found, mut refusals) = (Vec::new(), Vec::new());
    for file in files {
        let (name, aside) = match file.name.strip_suffix(ASIDE) {
            Some(name) => (name, true),
            None => (file.name.as_str(), false),
        };
        if !is_read(name) || name == OURS {
            continue;
        }
        if !aside && name < OURS {
            refusals.push(Refusal {
                object: file.name.clone(),
                cause: format!("the runtime uses it before {OURS}"),
                next: "remove it, or rename it to sort later, if Ferrule shall be the \
                       pods' network"
                    .to_owned(),
            });
        }
        let bytes = file.bytes.as_ref().map_err(|why| (why.clone(), UNSEEN));
        let next = |why: &str| if why == EGRESS { NEW_NODE } else { MISREAD };
        match bytes.and_then(|bytes| read(bytes).map_err(|why| (why.clone(), next(&why)))) {
            Ok(Some(ferrule)) => found.push(VpcCniConfig { name: name.to_owned(), aside, ferrule }),
            Ok(None) => {}
            // A later file that is not amazon-vpc-cni's was never used.
            Err((cause, next)) => {
                refusals.push(Refusal { object: file.name.clone(), cause, next: next.to_owned() });
            }
        }
    }
    // An active file takes precedence over a disabled one.
    found.sort_by_key(|config| config.aside);
    let count = found.iter().filter(|config| !config.aside).count();
    if count > 1 {
        let names: Vec<&str> = found.iter().map(|config| config.name.as_str()).collect();
        refusals.push(Refusal {
            object: names.join(", "),
            cause: "more than one file is amazon-vpc-cni's configuration".to_owned(),
            next: "leave the one that it wrote, 10-aws.conflist as a rule".to_owned(),
        });
    }
    if refusals.is_empty() {
        found.into_iter().next().ok_or_else(|| {
            vec![Refusal {
                object: "network configuration".to_owned(),
                cause: format!(
                    "no file for the runtime names the network {} and the plugin aws-cni",
                    registry::CNI_NETWORK
                ),
                next:
                    "there is nothing to take over from here: start Ferrule's DaemonSet, or name \
                       the runtime's folder by --net-d"
                        .to_owned(),
            }]
        })
    } else {
        Err(refusals)
    }
}

/// Returns true if the file is Ferrule's and equivalent to this configuration. Its other settings belong to the installer.
pub(crate) fn serves(bytes: &[u8], wanted: &Network) -> bool {
    let list: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let plugins = list["plugins"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some((first, chained)) = plugins.split_first() else { return false };
    list["name"] == registry::CNI_NETWORK
        && first["type"] == "ferrule-cni"
        && first["vethPrefix"] == wanted.veth_prefix.as_str()
        && wanted.chained.iter().all(|kept| chained.contains(kept))
}

/// Returns Ferrule's replacement; `None` for another plugin's configuration.
fn read(bytes: &[u8]) -> Observed<Option<Network>> {
    let list: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    let single = std::slice::from_ref(&list);
    let plugins = list["plugins"].as_array().map_or(single, Vec::as_slice);
    let is_aws_cni = |plugin: &Value| plugin["type"] == "aws-cni";
    if !plugins.iter().any(is_aws_cni) {
        return Ok(None);
    }
    if list["name"] != registry::CNI_NETWORK {
        return Err(format!("its network is {} and not {:?}", list["name"], registry::CNI_NETWORK));
    }
    let (Some(first), true) =
        (plugins.first().filter(|first| is_aws_cni(first)), list["plugins"].is_array())
    else {
        return Err("aws-cni is not the first of a list of plugins".to_owned());
    };
    let version = list["cniVersion"].as_str().unwrap_or_default();
    if !["0.4.0", "1.0.0"].contains(&version) {
        return Err(format!("its cniVersion is {} and not 0.4.0 or 1.0.0", list["cniVersion"]));
    }
    let mut chained = Vec::new();
    for plugin in &plugins[1..] {
        let kind = plugin["type"].as_str().unwrap_or_default();
        if kind == "egress-cni" {
            if plugin["enabled"] != "false" {
                return Err(EGRESS.to_owned());
            }
        } else if KEPT.contains(&kind) {
            chained.push(plugin.clone());
        } else {
            return Err(format!("the plugin {} of its chain is not known", plugin["type"]));
        }
    }
    Ok(Some(Network {
        cni_version: version.to_owned(),
        mtu: mtu(first)?,
        veth_prefix: prefix(first)?,
        log_file: first["pluginLogFile"].as_str().unwrap_or(LOG).to_owned(),
        log_level: first["pluginLogLevel"].as_str().unwrap_or(LEVEL).to_owned(),
        chained,
    }))
}

fn mtu(plugin: &Value) -> Observed<u32> {
    let given = &plugin["mtu"];
    let mtu = match given.as_str() {
        Some(text) => text.parse().ok(),
        None if given.is_null() => Some(registry::ENI_MTU),
        None => given.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    mtu.filter(|mtu| (576..=registry::ENI_MTU).contains(mtu)).ok_or_else(|| {
        format!("its mtu is {} and not from 576 to {}", plugin["mtu"], registry::ENI_MTU)
    })
}

fn prefix(plugin: &Value) -> Observed<String> {
    let given = &plugin["vethPrefix"];
    let prefix = if given.is_null() { Some(PREFIX) } else { given.as_str() };
    let prefix = prefix.ok_or_else(|| format!("its vethPrefix is {given} and not text"))?;
    let fits = (1..=4).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_alphanumeric());
    if fits {
        Ok(prefix.to_owned())
    } else {
        Err(format!("its vethPrefix is {prefix:?}, which is none"))
    }
}
