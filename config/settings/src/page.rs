//! The reference page of all settings, in Markdown.

use crate::controller;
use crate::table::{Effect, Kind, OnBad, Origin, Setting, table};
use std::fmt::Write as _;

/// Returns `docs/settings.md`: the settings of an operator, and their effects.
pub fn reference_page() -> String {
    let mut page = String::from(HEAD);
    for (title, origin) in
        [("Shared with amazon-vpc-cni", Origin::AmazonVpcCni), ("Ferrule's own", Origin::Ferrule)]
    {
        let _ = write!(page, "\n## {title}\n\n{COLUMNS}");
        for setting in table().filter(|setting| setting.origin == origin) {
            let _ = writeln!(page, "{}", row(setting));
        }
    }
    page + &controller::section()
}

fn row(setting: &Setting) -> String {
    let Setting { name, kind, default, unit, since, meaning, .. } = setting;
    let default = if default.is_empty() { "—".to_owned() } else { format!("`{default}`") };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let since = if since.is_empty() { "—" } else { since };
    let bad = match setting.on_bad {
        OnBad::UseDefault => "default",
        OnBad::Refuse => "refused",
    };
    let kind = kind_text(*kind);
    let effect = effect_text(&setting.effect);
    format!("| `{name}` | {kind} | {default}{unit} | {bad} | {since} | {meaning}{effect} |")
}

fn kind_text(kind: Kind) -> String {
    match kind {
        Kind::Bool => "boolean".to_owned(),
        Kind::Int(range) => format!("integer, {range}"),
        Kind::Text => "text".to_owned(),
        Kind::Choice(words) => words.to_owned(),
        Kind::Path => "absolute path".to_owned(),
        Kind::Address => "address".to_owned(),
        Kind::Cidrs => "IPv4 networks, comma between".to_owned(),
        Kind::Tags => "JSON object of strings".to_owned(),
        Kind::Plugins => "JSON list of objects".to_owned(),
    }
}

fn effect_text(effect: &Effect) -> String {
    match effect {
        Effect::Used => String::new(),
        Effect::Refused { why, .. } => format!(" **Refused in this version:** {why}."),
    }
}

const HEAD: &str = "\
# Settings

<!-- Generated from the table in config/settings; `cargo xtask generate` updates it. -->

This page is the reference of all settings, for operators. The daemon and the agent read their settings from the
environment once, at start. A setting that amazon-vpc-cni has too keeps its name, type and parsing. Its default is that
of amazon-vpc-cni's manifest, or its row names the default of amazon-vpc-cni.

- A boolean is one of `1 t T TRUE true True 0 f F FALSE false False`; an integer has base 10 and
  an optional sign.
- *Bad value* is the reaction to an invalid value. With `default` the daemon uses the default and logs a
  warning with setting and default. With `refused` it does not start.
- The log shows a value only if it is short and plain, because a misplaced value may be a secret.
- The daemon refuses to start with settings that contradict each other, and names both. It also refuses
  a mode that this version does not have.
- A name that starts with `FERRULE_` and is not in this list gets a warning.
";

const COLUMNS: &str = "\
| name | type | default | bad value | since | meaning |
|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_the_generated_one() {
        let committed = include_str!("../../../docs/settings.md");
        assert!(
            committed == reference_page(),
            "docs/settings.md is out of date; run cargo xtask generate"
        );
    }

    #[test]
    fn every_setting_has_its_row() {
        let page = reference_page();
        for setting in table() {
            assert_eq!(page.matches(&format!("| `{}` |", setting.name)).count(), 1);
            assert!(setting.meaning.ends_with('.'), "{}", setting.name);
        }
    }
}
