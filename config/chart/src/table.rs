//! The table of values.

mod amazon;
mod own;

/// Every value but those of the map `env`, in the order of `values.yaml`.
pub fn table() -> impl Iterator<Item = &'static Value> {
    [amazon::VALUES, own::VALUES].into_iter().flatten()
}

/// One value: all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Where it stands, with dots between.
    pub path: &'static str,
    pub shape: Shape,
    /// Value if none is given, as JSON.
    pub default: &'static str,
    pub origin: Origin,
    pub meaning: &'static str,
    /// Effect of the value in this version.
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// True or false.
    Bool,
    /// The same, or as text, as amazon-vpc-cni's chart has some.
    BoolText,
    /// A number of at least so much.
    Int(u32),
    Text,
    /// Text, or nothing.
    MaybeText,
    /// A port, or an address with one.
    Listen,
    /// Text that may look like a number, or nothing.
    Digits,
    /// True, false or nothing.
    MaybeBool,
    /// A number or nothing, also as text.
    MaybeInt,
    Choice(&'static [&'static str]),
    Texts,
    /// Names and values of the environment: the settings.
    Env,
    /// More of the environment, as containers have it.
    MoreEnv,
    /// An object of Kubernetes' own, of this type.
    Object(&'static str),
    /// A list of objects of Kubernetes' own, of this type.
    List(&'static str),
    /// A probe, without what it does.
    Probe,
    /// Rights of a container; never more than it uses.
    Rights,
    /// Subnets by zone.
    Subnets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// amazon-vpc-cni's chart has it, by the same key.
    AmazonVpcCni,
    /// Only Ferrule's.
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
    fn no_value_stands_there_twice_or_below_another() {
        let mut paths: Vec<&str> = table().map(|value| value.path).collect();
        paths.sort_unstable();
        for pair in paths.windows(2) {
            let [before, after] = pair else { unreachable!() };
            assert!(before != after && !after.starts_with(&format!("{before}.")), "{after}");
        }
    }

    /// The page of amazon-vpc-cni's chart, version 1.23: users may carry these values over.
    #[test]
    fn every_key_of_amazon_vpc_cni_is_there() {
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
