//! The table of settings.

mod agent;
mod connections;
mod enis;
mod network;
mod own;
mod pool;
mod process;

use crate::{
    parse::Expected,
    values::{Draft, Modes},
};

/// Every setting, in the order of the reference page.
pub fn table() -> impl Iterator<Item = &'static Setting> {
    [
        pool::SETTINGS,
        enis::SETTINGS,
        network::SETTINGS,
        process::SETTINGS,
        own::SETTINGS,
        agent::SETTINGS,
        connections::SETTINGS,
    ]
    .into_iter()
    .flatten()
}

/// One setting: all that is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub kind: Kind,
    /// The value that counts when it is unset, as one would write it.
    pub default: &'static str,
    /// Unit of a number; empty if the value is not a number.
    pub unit: &'static str,
    pub origin: Origin,
    /// The version of `origin`'s software that brought it; empty if that is not known.
    pub since: &'static str,
    pub meaning: &'static str,
    /// Effect of the setting in this version.
    pub effect: Effect,
    /// Treatment of an invalid value.
    pub on_bad: OnBad,
    /// True if an empty value counts as unset; otherwise it is a value like others.
    pub empty_is_unset: bool,
    pub(crate) set: fn(&mut Draft, &str) -> Result<(), Expected>,
}

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As Go's `ParseBool` reads it.
    Bool,
    /// An integer in the form that Go's `Atoi` reads; the text is the range.
    Int(&'static str),
    /// Any text.
    Text,
    Choice(&'static str),
    Path,
    /// A place to listen at.
    Address,
    /// IPv4 networks between commas.
    Cidrs,
    /// A JSON object of strings.
    Tags,
    /// A JSON list of plugins' configurations.
    Plugins,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// amazon-vpc-cni has it, by the same name.
    AmazonVpcCni,
    /// Only Ferrule has it.
    Ferrule,
}

/// Effect of a setting in this version.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    Used,
    /// The setting is read, and a value that requests the mode is refused with this text.
    Refused {
        /// True if the settings request the mode.
        #[expect(private_interfaces, reason = "callers only see that the mode can be refused")]
        asked: fn(&Modes) -> bool,
        why: &'static str,
    },
}

/// Treatment of an invalid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBad {
    /// The default counts, with a warning.
    UseDefault,
    /// The daemon does not start.
    Refuse,
}

const AMAZON: Setting = Setting {
    name: "",
    kind: Kind::Text,
    default: "",
    unit: "",
    origin: Origin::AmazonVpcCni,
    since: "",
    meaning: "",
    effect: Effect::Used,
    on_bad: OnBad::UseDefault,
    empty_is_unset: false,
    set: |_, _| Ok(()),
};

const OURS: Setting =
    Setting { origin: Origin::Ferrule, since: "0.1", on_bad: OnBad::Refuse, ..AMAZON };
