//! The settings of the running daemons, from the environments of their processes.

use cli_migrate::{Observed, Settings, Values};
use config_settings::{Effect, Origin, table};
use std::{fs, path::Path};

/// Reads the settings of the running daemons.
pub(super) fn observe(proc: &Path) -> Settings {
    let defaults = defaults();
    let of = |program: &str| environment(proc, program, &defaults);
    Settings { vpc_cni: of(VPC_CNI), ferrule: of(FERRULE).ok().flatten(), defaults }
}

/// Returns the settings that both daemons have by the same name, with the defaults of Ferrule.
pub(super) fn defaults() -> Values {
    table()
        .filter(|setting| matches!(setting.origin, Origin::AmazonVpcCni))
        .filter(|setting| matches!(setting.effect, Effect::Used | Effect::Refused { .. }))
        .filter(|setting| !OF_A_PROGRAM.iter().any(|part| setting.name.contains(part)))
        .map(|setting| (setting.name.to_owned(), setting.default.to_owned()))
        .collect()
}

/// Returns these variables of the only process of a program in this network namespace; `None` without such a process.
fn environment(proc: &Path, program: &str, wanted: &Values) -> Observed<Option<Values>> {
    let failed = |err| format!("cannot read the environment of {program}: {err}");
    let own = fs::read_link(proc.join("self/ns/net")).map_err(failed)?;
    let processes = fs::read_dir(proc).map_err(failed)?;
    for process in processes.flatten().map(|entry| entry.path()) {
        let is = |file: &str, text: &str| {
            fs::read_to_string(process.join(file)).is_ok_and(|found| found.trim_end() == text)
        };
        let is_here = || fs::read_link(process.join("ns/net")).is_ok_and(|space| space == own);
        if !is("comm", program) || !is_here() || !is_daemon(&process) {
            continue;
        }
        let environment = fs::read(process.join("environ")).map_err(failed)?;
        let variables = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        let pairs = variables.filter_map(|variable| {
            let (name, value) = variable.split_once('=')?;
            // No other variable is printed: it could be a credential.
            wanted.contains_key(name).then(|| (name.to_owned(), value.to_owned()))
        });
        return Ok(Some(pairs.collect()));
    }
    Ok(None)
}

/// Returns true for a process without a verb: the installer and probes have the daemon's name too.
fn is_daemon(process: &Path) -> bool {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    words.all(|word| word.starts_with(b"-"))
}

const VPC_CNI: &str = "aws-k8s-agent";
const FERRULE: &str = "ferrule-ipamd";
/// Parts of names of settings that differ between the two programs: logs, folders of a container, names of its pod.
const OF_A_PROGRAM: [&str; 4] = ["LOG", "HOST_CNI", "VPC_CNI_VERSION", "MY_"];

#[cfg(test)]
mod tests {
    use super::*;
    use cli_migrate::differences;

    fn one(name: &str, value: &str) -> Values {
        [(name.to_owned(), value.to_owned())].into()
    }

    /// Returns another value than the default.
    fn other(default: &str) -> &'static str {
        match default {
            "true" => "false",
            "false" => "true",
            "7" => "8",
            _ => "7",
        }
    }

    #[test]
    fn each_setting_is_compared_whether_it_is_equal_different_or_missing() {
        let defaults = defaults();
        let empty = Values::new();
        // Each variable is missing in both programs, except those with another default in amazon-vpc-cni.
        let missing: Vec<_> = differences(&empty, &empty, &defaults)
            .into_iter()
            .map(|it| (it.name, it.vpc_cni, it.ferrule))
            .collect();
        let expected = [
            ("ENABLE_IPv4", "false", "true"),
            ("NETWORK_POLICY_ENFORCING_MODE", "", "standard"),
            ("WARM_PREFIX_TARGET", "0", "1"),
        ];
        let owned = |(name, theirs, ours): (&str, &str, &str)| {
            (name.to_owned(), theirs.to_owned(), ours.to_owned())
        };
        assert_eq!(missing, expected.map(owned));
        for (name, default) in &defaults {
            let only = one(name, default);
            let given = one(name, other(default));
            assert_eq!(differences(&given, &given, &only), [], "{name}: equal");
            assert_eq!(differences(&given, &only, &only).len(), 1, "{name}: different");
            let missing = differences(&given, &empty, &only);
            assert_eq!(missing.len(), 1, "{name}: missing in Ferrule");
            assert_eq!(missing[0].ferrule, *default, "{name}: the default of Ferrule");
            let missing = differences(&empty, &given, &only);
            // Its default in amazon-vpc-cni is the other value.
            let count = usize::from(name != "ENABLE_IPv4");
            assert_eq!(missing.len(), count, "{name}: missing in aws-node");
        }
    }

    #[test]
    fn a_difference_breaks_pods_for_these_settings_only() {
        let of_vpc_cni: Values = defaults()
            .iter()
            .map(|(name, default)| (name.clone(), other(default).into()))
            .collect();
        let of_ferrule: Values = defaults();
        let found = differences(&of_vpc_cni, &of_ferrule, &defaults());
        let names: Vec<&str> =
            found.iter().filter(|it| it.breaks_pods).map(|it| it.name.as_str()).collect();
        let expected = [
            "AWS_EXTERNAL_SERVICE_CIDRS",
            "AWS_VPC_CNI_NODE_PORT_SUPPORT",
            "AWS_VPC_K8S_CNI_BACKING_STORE",
            "AWS_VPC_K8S_CNI_CONNMARK",
            "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
            "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS",
            "AWS_VPC_K8S_CNI_EXTERNALSNAT",
            "AWS_VPC_K8S_CNI_VETHPREFIX",
            "ENABLE_IPv4",
            "ENABLE_IPv6",
            "ENABLE_MULTI_NIC",
            "ENABLE_POD_ENI",
            "MANAGE_UNTAGGED_ENI",
        ];
        assert_eq!(names, expected);
        assert_eq!(found.len(), of_vpc_cni.len(), "each setting differs: {found:?}");
    }

    #[test]
    fn values_are_compared_as_the_daemons_read_them() {
        let equal = [
            ("ENABLE_POD_ENI", "F", "false"),
            ("ENABLE_POD_ENI", " ", "0"),
            ("AWS_VPC_K8S_CNI_CONNMARK", "0x80", "128"),
            (
                "AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS",
                "10.1.0.0/16, 10.2.0.0/16",
                "10.2.0.0/16,10.1.0.0/16",
            ),
            ("ADDITIONAL_ENI_TAGS", r#"{"a":"1", "b":"2"}"#, r#"{"b":"2","a":"1"}"#),
        ];
        let different = [
            ("ENABLE_POD_ENI", "t", "false"),
            ("AWS_VPC_K8S_CNI_CONNMARK", "0x80", "80"),
            ("AWS_VPC_K8S_CNI_EXCLUDE_SNAT_CIDRS", "10.1.0.0/16", "10.1.0.0/16,10.2.0.0/16"),
            ("ADDITIONAL_ENI_TAGS", r#"{"a":"1"}"#, r#"{"a":"2"}"#),
            ("AWS_VPC_K8S_CNI_VETHPREFIX", "eni", "ENI"),
        ];
        let count = |name: &str, theirs: &str, ours: &str| {
            let defaults = defaults();
            let only = one(name, &defaults[name]);
            differences(&one(name, theirs), &one(name, ours), &only).len()
        };
        for (name, theirs, ours) in equal {
            assert_eq!(count(name, theirs, ours), 0, "{name}: {theirs} and {ours}");
        }
        for (name, theirs, ours) in different {
            assert_eq!(count(name, theirs, ours), 1, "{name}: {theirs} and {ours}");
        }
    }

    #[test]
    fn pods_without_an_mtu_of_their_own_have_that_of_the_enis() {
        let theirs: Values = [("AWS_VPC_ENI_MTU".to_owned(), "1500".to_owned())].into();
        let mut ours = theirs.clone();
        ours.insert("POD_MTU".to_owned(), "1500".to_owned());
        let count = |theirs: &Values, ours: &Values| {
            let found = differences(theirs, ours, &defaults());
            found.iter().filter(|it| it.name.contains("MTU")).count()
        };
        assert_eq!(count(&theirs, &ours), 0);
        ours.insert("POD_MTU".to_owned(), "1400".to_owned());
        assert_eq!(count(&theirs, &ours), 1);
    }
}
