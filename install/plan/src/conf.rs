//! A network configuration as runtimes read it: a list of plugins, or one plugin by itself.

use config_model::registry;
use serde_json::Value;

/// The parts of a network configuration that matter to an installer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conf {
    pub(crate) network: Option<String>,
    pub(crate) cni_version: Option<String>,
    /// The programs, in the order of their calls.
    pub(crate) types: Vec<String>,
}

impl Conf {
    /// Parses it, or returns the reason for which no runtime can.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|err| format!("is not JSON (line {}, column {})", err.line(), err.column()))?;
        if !value.is_object() {
            return Err("is no JSON object".to_owned());
        }
        let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
        let plugins = value["plugins"].as_array();
        let types = match plugins {
            Some(plugins) => plugins.iter().filter_map(|plugin| text(plugin, "type")).collect(),
            None => text(&value, "type").into_iter().collect(),
        };
        Ok(Self { network: text(&value, "name"), cni_version: text(&value, "cniVersion"), types })
    }

    /// The faults of an edited conflist of ours.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        if self.cni_version.is_none() {
            Some("it has no cniVersion")
        } else if self.network.as_deref() != Some(registry::CNI_NETWORK) {
            Some("its network is not called aws-cni, so runtimes hand DEL no result")
        } else if self.types.is_empty() {
            Some("it has no plugins")
        } else if !self.types.iter().any(|plugin| plugin == PLUGIN) {
            Some("ferrule-cni is not among its plugins")
        } else {
            None
        }
    }

    /// True if it gives pods addresses of the same ENIs.
    pub(crate) fn is_of_our_network(&self) -> bool {
        self.network.as_deref() == Some(registry::CNI_NETWORK) || self.is_amazons()
    }

    /// True if it calls amazon-vpc-cni's plugin.
    pub(crate) fn is_amazons(&self) -> bool {
        self.types.iter().any(|plugin| plugin == AMAZON_PLUGIN)
    }

    /// True if its plugins call plugins of other networks.
    pub(crate) fn delegates(&self) -> bool {
        self.types.first().is_some_and(|first| DELEGATING.contains(&first.as_str()))
    }
}

/// The plugin's name, as a program and as a conflist's `type`.
pub const PLUGIN: &str = "ferrule-cni";

/// amazon-vpc-cni's plugin.
const AMAZON_PLUGIN: &str = "aws-cni";
/// Multus, of either kind.
const DELEGATING: [&str; 3] = ["multus", "multus-shim", "multus-cni"];
