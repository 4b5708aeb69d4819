//! Pairs of name and value to [`Settings`], with what was odd about them.

use crate::{
    Refusal, Settings, contradiction,
    table::{Effect, OnBad, Setting, table},
    values::{CustomNetworking, Draft, Family, Modes, PodEniMode},
};
use config_model::EnforcingMode;
use std::{collections::BTreeMap, fmt};

/// Something that was put right and should be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub setting: String,
    /// The value that was given and the value that applies.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.text)
    }
}

impl Settings {
    /// Resolves pairs of name and value. Unknown names are skipped. Unknown `FERRULE_…` names are probably
    /// misspelled, so each of them causes a warning.
    ///
    /// # Errors
    /// A value that amazon-vpc-cni's entrypoint refuses as well, a contradiction, or a mode that
    /// does not exist here. A daemon with other behavior than configured would be worse than none.
    pub fn resolve<K, V>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<(Self, Vec<Warning>), Refusal>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let given: BTreeMap<String, String> = pairs
            .into_iter()
            .map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned()))
            .collect();
        let mut draft = Draft::blank();
        let mut warnings = unknown_settings(&given);
        for setting in table() {
            apply(setting, given.get(setting.name), &mut draft, &mut warnings)?;
        }
        if draft.settings.policy && !is_set(&given, MODE) {
            // Where policy is ours, a pod that would be open does not start.
            draft.settings.policy_mode = Some(EnforcingMode::Strict);
            draft.modes.policy_strict = true;
        }
        contradiction::refuse(&draft, &given)?;
        refuse_missing_modes(&draft.modes)?;
        let settings = finish(draft);
        warn_of_short_wait(&settings, &mut warnings);
        Ok((settings, warnings))
    }

    /// Settings if the environment is empty.
    pub fn defaults() -> Self {
        let mut draft = Draft::blank();
        for setting in table() {
            set_default(setting, &mut draft);
        }
        finish(draft)
    }
}

fn is_set(given: &BTreeMap<String, String>, name: &str) -> bool {
    given.get(name).is_some_and(|value| !value.is_empty())
}

const MODE: &str = "NETWORK_POLICY_ENFORCING_MODE";

fn finish(draft: Draft) -> Settings {
    let Draft { mut settings, modes, .. } = draft;
    if modes.introspection_off {
        settings.introspection = None;
    }
    settings.pod_mtu = modes.pod_mtu.unwrap_or(settings.eni_mtu);
    (settings.family, settings.egress) = match modes.ipv6 {
        true => (Family::V6, modes.v4_egress),
        false => (Family::V4, modes.v6_egress),
    };
    settings.custom_networking = modes.custom_networking.then_some(CustomNetworking {
        annotation: modes.eni_config_annotation,
        label: modes.eni_config_label,
    });
    settings.pod_enis = modes.pod_eni.then_some(match modes.pod_eni_mode.as_str() {
        "standard" => PodEniMode::Standard,
        _ => PodEniMode::Strict,
    });
    settings.provisioning &= !settings.imds_only;
    settings.collect_leaks &= settings.provisioning && settings.family == Family::V4;
    settings
}

fn set_default(setting: &Setting, draft: &mut Draft) {
    (setting.set)(draft, setting.default).expect("a default in the table fits its own type");
}

fn apply(
    setting: &Setting,
    given: Option<&String>,
    draft: &mut Draft,
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    set_default(setting, draft);
    let Some(value) = given.filter(|value| !(value.is_empty() && setting.empty_is_unset)) else {
        return Ok(());
    };
    let mut warn = |text: String| warnings.push(Warning { setting: setting.name.into(), text });
    if let Err(wanted) = (setting.set)(draft, value) {
        let shown = shown(value);
        return match setting.on_bad {
            OnBad::Refuse => Err(Refusal::Invalid { setting: setting.name, value: shown, wanted }),
            OnBad::UseDefault => {
                set_default(setting, draft);
                let default = shown_default(setting.default);
                warn(format!("{shown} is not {wanted}; the default {default} is used"));
                Ok(())
            }
        };
    }
    draft.notes.drain(..).for_each(&mut warn);
    Ok(())
}

/// A misplaced value may be a secret, so the text contains only short and plain values.
fn shown(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    if value.is_empty() {
        "the empty text".to_owned()
    } else if value.len() <= SHOWN_MAX && value.chars().all(plain) {
        format!("{value:?}")
    } else {
        format!("a text of {} bytes (not shown)", value.len())
    }
}

fn shown_default(default: &str) -> String {
    if default.is_empty() { "(empty)".to_owned() } else { default.to_owned() }
}

fn unknown_settings(given: &BTreeMap<String, String>) -> Vec<Warning> {
    let known = |name: &str| table().any(|setting| setting.name == name);
    given
        .keys()
        .filter(|name| name.starts_with("FERRULE_") && !known(name))
        .map(|name| Warning {
            setting: name.clone(),
            text: "is not a setting of this version; it is ignored".to_owned(),
        })
        .collect()
}

fn refuse_missing_modes(modes: &Modes) -> Result<(), Refusal> {
    for setting in table() {
        if let Effect::Refused { asked, why } = setting.effect
            && asked(modes)
        {
            return Err(Refusal::Unsupported { setting: setting.name, why });
        }
    }
    Ok(())
}

fn warn_of_short_wait(settings: &Settings, warnings: &mut Vec<Warning>) {
    if settings.add_wait <= settings.cooldown {
        warnings.push(Warning {
            setting: "FERRULE_ADD_WAIT".to_owned(),
            text: "is not longer than IP_COOLDOWN_PERIOD: an ADD fails before a released \
                   address can be reused"
                .to_owned(),
        });
    }
}

/// Longer values are described and not shown.
const SHOWN_MAX: usize = 8;

#[cfg(test)]
mod tests;
