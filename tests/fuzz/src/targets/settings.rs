//! The daemon's environment, as a manifest may contain it.

use config_settings::{Bind, Refusal, Settings, Warning};
use std::collections::BTreeMap;

/// The lines are `NAME=value`. The settings are refused, or resolved within the limits of the node and the
/// kernel. A value that a warning replaces by the default has the same effect as no value.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut given: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.split_once('=')).collect();
    match Settings::resolve(&given) {
        Err(refusal) => judge_refusal(&given, &refusal),
        Ok((settings, warnings)) => {
            warnings.iter().for_each(|warning| repeats_no_long_value(&given, &warning.text));
            bounded(&settings);
            let passed_over = |warning: &Warning| warning.text.ends_with(" is used");
            for warning in warnings.iter().filter(|warning| passed_over(warning)) {
                given.remove(warning.setting.as_str());
            }
            let (again, _) =
                Settings::resolve(&given).expect("the environment without bad values is accepted");
            assert_eq!(again, settings, "a bad value has an effect");
        }
    }
}

fn judge_refusal(given: &BTreeMap<&str, &str>, refusal: &Refusal) {
    let text = refusal.to_string();
    repeats_no_long_value(given, &text);
    let named = |text: &str| given.keys().any(|name| text.starts_with(name));
    match refusal {
        Refusal::Invalid { setting, .. } | Refusal::Unsupported { setting, .. } => {
            assert!(named(setting), "{text}: the setting is not in the environment");
        }
        Refusal::Contradiction { first, second, .. } => {
            assert!(
                named(first) || named(second),
                "{text}: the settings are not in the environment"
            );
        }
    }
}

/// A value may be a secret in the wrong place.
fn repeats_no_long_value(given: &BTreeMap<&str, &str>, text: &str) {
    for value in given.values().filter(|value| value.contains(crate::CANARY) && value.len() > 8) {
        assert!(!text.contains(value), "{text:?} repeats a value");
    }
}

fn bounded(settings: &Settings) {
    let prefix = &settings.veth_prefix;
    assert!((1..=4).contains(&prefix.len()), "prefix {prefix:?}");
    assert!((576..=9001).contains(&settings.eni_mtu), "MTU {}", settings.eni_mtu);
    assert!(settings.connmark.value != 0 && settings.connmark.mask != 0);
    assert!(settings.exclude_snat_cidrs.iter().all(|net| *net == net.trunc()));
    assert!(
        !settings.provisioning || !settings.imds_only,
        "the mode IMDS-only excludes provisioning"
    );
    assert!(settings.collect_leaks <= settings.provisioning);
    for path in [&settings.state_dir, &settings.socket, &settings.backing_store] {
        assert!(path.is_absolute(), "{}", path.display());
    }
    assert!(settings.proc_sys_net.ends_with("net"));
    if let Some(Bind::Unix(path)) = &settings.introspection {
        assert!(path.is_absolute() && *path != settings.socket);
    }
    for key in settings.eni_tags.keys() {
        assert!(!key.to_ascii_lowercase().starts_with("aws:"), "tag {key:?} is EC2's");
    }
}
