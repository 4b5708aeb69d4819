//! The table of values.

mod amazon;
mod own;

/// Returns every value except those of the map `env`, in the order of `values.yaml`.
pub fn table() -> impl Iterator<Item = &'static Value> {
    [amazon::VALUES, own::VALUES].into_iter().flatten()
}

/// One value of the chart.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Keys from the root of `values.yaml`, joined by dots.
    pub path: &'static str,
    pub shape: Shape,
    /// Default, as JSON.
    pub default: &'static str,
    pub origin: Origin,
    pub meaning: &'static str,
    /// Effect of the value in this version.
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Bool,
    /// A boolean, or its text: amazon-vpc-cni's chart has both.
    BoolText,
    /// A number with this minimum.
    Int(u32),
    Text,
    MaybeText,
    /// A port, or an address with a port.
    Listen,
    /// Text that may look like a number, or nothing.
    Digits,
    MaybeBool,
    /// A number or nothing, also as text.
    MaybeInt,
    Choice(&'static [&'static str]),
    Texts,
    /// Labels of objects, without the keys of Kubernetes and Helm.
    Labels,
    /// The settings by name.
    Env,
    /// Kubernetes EnvVar objects.
    MoreEnv,
    /// A Kubernetes object of this type.
    Object(&'static str),
    /// A list of Kubernetes objects of this type.
    List(&'static str),
    /// Whole Kubernetes objects of any kind.
    Objects,
    /// A Kubernetes Probe without its action. amazon-vpc-cni's `exec` is accepted without effect.
    Probe,
    /// A SecurityContext that cannot add `privileged`.
    Rights,
    /// A SecurityContext whose `privileged` has no effect: amazon-vpc-cni's values file sets it.
    LesserRights,
    /// ENIConfigs by name.
    Subnets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The chart of amazon-vpc-cni has the same key.
    AmazonVpcCni,
    Ferrule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// The value is accepted without effect, and the notes after an installation report that.
    Idle,
    /// Only the default is accepted, for this reason.
    Refused(&'static str),
}

const AMAZON: Value = Value {
    path: "",
    shape: Shape::Text,
    default: "null",
    origin: Origin::AmazonVpcCni,
    meaning: "",
    effect: Effect::Used,
};

const OURS: Value = Value { origin: Origin::Ferrule, ..AMAZON };

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn every_default_is_json_and_every_meaning_a_sentence() {
        for value in table() {
            assert!(
                serde_json::from_str::<serde_json::Value>(value.default).is_ok(),
                "{}",
                value.path
            );
            assert!(value.meaning.ends_with('.'), "{}", value.path);
        }
    }

    #[test]
    fn the_table_has_no_path_twice_or_below_another() {
        let mut paths: Vec<&str> = table().map(|value| value.path).collect();
        paths.sort_unstable();
        for pair in paths.windows(2) {
            let [before, after] = pair else { unreachable!() };
            assert!(before != after && !after.starts_with(&format!("{before}.")), "{after}");
        }
    }

    /// The keys of amazon-vpc-cni's chart 1.23: users copy its values files.
    #[test]
    fn the_table_has_every_key_of_amazon_vpc_cni() {
        let tops: std::collections::BTreeSet<&str> = table()
            .filter(|value| value.origin == Origin::AmazonVpcCni)
            .map(|value| value.path.split('.').next().unwrap())
            .collect();
        for key in "nameOverride fullnameOverride init nodeAgent image env extraEnv originalMatchLabels \
            enableNetworkPolicy enableWindowsIpam enableWindowsPrefixDelegation warmWindowsPrefixTarget \
            warmWindowsIPTarget minimumWindowsIPTarget branchENICooldown cniConfig imagePullSecrets \
            priorityClassName podSecurityContext podAnnotations podLabels securityContext serviceAccount \
            livenessProbe livenessProbeTimeoutSeconds readinessProbe readinessProbeTimeoutSeconds resources \
            updateStrategy nodeSelector tolerations affinity eniConfig podMonitor extraVolumes \
            extraVolumeMounts"
            .split_whitespace()
        {
            assert!(tops.contains(key), "{key}");
        }
    }
}
