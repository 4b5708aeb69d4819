//! The values of the chart `charts/ferrule`: their types, defaults, origins and effects.
//!
//! One [`table()`] names every value; the environment's settings come from `config-settings`. Both are the source of
//! `values.yaml`, `values.schema.json`, the configuration schema of the form for EKS add-ons and the reference page
//! ([`files`]). Where amazon-vpc-cni's chart has a value, its key and meaning hold here too.
//!
//! Helm renders the templates. `tests/chart` compares values and templates with a real API server.

mod addon;
mod env;
mod notes;
mod page;
mod schema;
mod table;
mod values;

pub use env::{Idle, OTHERS, given_by_chart, idle};
pub use table::{Effect, Origin, Shape, Value, table};

/// Returns the generated files: path below the repository's root, and text.
pub fn files() -> Vec<(&'static str, String)> {
    vec![
        ("charts/ferrule/values.yaml", values::text()),
        ("charts/ferrule/values.schema.json", schema::text()),
        ("charts/addon/configuration-schema.json", addon::text()),
        ("charts/ferrule/templates/_without_effect.tpl", notes::text()),
        ("charts/ferrule/templates/_extra_env.tpl", env::template()),
        ("docs/guide/values.md", page::text()),
    ]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]
    #![expect(clippy::disallowed_methods, reason = "a test may read the repository's files")]

    use super::*;
    use serde_json::Value as Json;
    use std::path::Path;

    #[test]
    fn the_committed_files_are_the_generated_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (path, text) in files() {
            let committed = std::fs::read_to_string(root.join(path)).unwrap_or_default();
            assert!(committed == text, "{path} is stale; run `cargo xtask generate`");
        }
    }

    /// Collects the path of every property, joined by dots.
    fn names(schema: &Json, at: &str, into: &mut Vec<String>) {
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{at}.{name}");
            names(inner, &path, into);
            into.push(path);
        }
    }

    #[test]
    fn the_properties_of_the_addon_are_a_part_of_the_values() {
        let (mut addon, mut values) = (Vec::new(), Vec::new());
        let read = |text: String| -> Json { serde_json::from_str(&text).unwrap() };
        names(&read(addon::text())["definitions"]["Ferrule"], "", &mut addon);
        names(&read(schema::text()), "", &mut values);
        assert!(addon.iter().any(|name| name == ".env.WARM_IP_TARGET"), "{addon:?}");
        for name in &addon {
            assert!(values.contains(name), "{name}");
        }
    }

    #[test]
    fn an_addon_accepts_the_defaults_of_vpc_cni() {
        let addon: Json = serde_json::from_str(&addon::text()).unwrap();
        let values = &addon["definitions"]["Ferrule"]["properties"];
        let agent = &values["nodeAgent"]["properties"];
        assert_eq!(agent["enableCloudWatchLogs"]["enum"], serde_json::json!(["false"]));
        assert_eq!(agent["healthProbeBindAddr"]["type"], "string");
        assert_eq!(values["enableNetworkPolicy"]["type"], "string", "as vpc-cni has it");
    }

    /// The environment in the public schema of amazon-vpc-cni's add-on, version 1.15.
    #[test]
    fn an_addon_accepts_every_variable_of_amazon_vpc_cnis_addon() {
        let addon: Json = serde_json::from_str(&addon::text()).unwrap();
        let env = &addon["definitions"]["Ferrule"]["properties"]["env"]["properties"];
        for name in
            "ADDITIONAL_ENI_TAGS ANNOTATE_POD_IP AWS_EC2_ENDPOINT AWS_EXTERNAL_SERVICE_CIDRS \
            AWS_MANAGE_ENIS_NON_SCHEDULABLE AWS_VPC_CNI_NODE_PORT_SUPPORT AWS_VPC_ENI_MTU \
            AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS \
            AWS_VPC_K8S_CNI_EXTERNALSNAT AWS_VPC_K8S_CNI_LOGLEVEL AWS_VPC_K8S_CNI_LOG_FILE \
            AWS_VPC_K8S_CNI_RANDOMIZESNAT AWS_VPC_K8S_CNI_VETHPREFIX AWS_VPC_K8S_PLUGIN_LOG_FILE \
            AWS_VPC_K8S_PLUGIN_LOG_LEVEL CLUSTER_ENDPOINT DISABLE_INTROSPECTION \
            DISABLE_LEAKED_ENI_CLEANUP DISABLE_METRICS DISABLE_NETWORK_RESOURCE_PROVISIONING \
            DISABLE_POD_V6 ENABLE_BANDWIDTH_PLUGIN ENABLE_POD_ENI ENABLE_PREFIX_DELEGATION \
            ENABLE_V4_EGRESS ENABLE_V6_EGRESS ENI_CONFIG_ANNOTATION_DEF ENI_CONFIG_LABEL_DEF \
            INTROSPECTION_BIND_ADDRESS IP_COOLDOWN_PERIOD MAX_ENI MINIMUM_IP_TARGET \
            POD_SECURITY_GROUP_ENFORCING_MODE WARM_ENI_TARGET WARM_IP_TARGET WARM_PREFIX_TARGET"
                .split_whitespace()
        {
            assert!(env[name].is_object(), "{name}");
        }
    }
}
