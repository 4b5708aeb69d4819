//! `docs/guide/values.md`: the reference page.

use crate::{
    env,
    table::{Effect, Origin, Value, table},
    values::shape_text,
};
use config_settings as settings;
use std::fmt::Write as _;

pub(crate) fn text() -> String {
    let mut page = String::from(HEAD);
    let parts = [
        ("Values of amazon-vpc-cni's chart", Origin::AmazonVpcCni),
        ("Ferrule's own values", Origin::Ferrule),
    ];
    for (title, origin) in parts {
        let _ = write!(
            page,
            "\n## {title}\n\n| value | type | default | meaning |\n|---|---|---|---|\n"
        );
        for value in table().filter(|value| value.origin == origin) {
            page.push_str(&row(value));
        }
    }
    page.push_str(ENV);
    for idle in env::idle() {
        let _ = writeln!(page, "| `{}` | {} |", idle.name, idle.meaning);
    }
    page.push_str(GIVEN);
    for setting in settings::table() {
        if let Some(by) = env::given_by_chart(setting.name) {
            let _ = writeln!(page, "| `{}` | {by} |", setting.name);
        }
    }
    let others: Vec<String> = env::OTHERS.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(page, "\nLibraries read {}. `env` accepts these as well.\n", others.join(", "));
    page
}

fn row(value: &Value) -> String {
    let Value { path, shape, default, meaning, effect, .. } = value;
    let default = match *default {
        "null" | "{}" | "[]" | r#""""# => "—".to_owned(),
        long if long.len() > 60 => "see `values.yaml`".to_owned(),
        default => format!("`{default}`"),
    };
    let effect = match effect {
        Effect::Used => String::new(),
        Effect::Idle => " **No effect**; the notes of the installation list it.".to_owned(),
        Effect::Refused(why) => format!(" **Refused:** {why}."),
    };
    format!("| `{path}` | {} | {default} | {meaning}{effect} |\n", shape_text(*shape))
}

const HEAD: &str = "\
# The chart's values

<!-- Generated from the table in config/chart by `cargo xtask generate`. -->

This page is the reference of the values of `charts/ferrule`, for operators who install or configure it.

```sh
helm upgrade --install ferrule charts/ferrule --namespace kube-system --values my-values.yaml
```

Expected output: the notes of the release, with one line for each value that has no effect. If Helm refuses a value, it prints
the path of the value and the reason: correct the value.

- The values of amazon-vpc-cni's chart have the same keys and meanings here, so you can start from its values file. Impossible
  values are refused with the reason.
- The chart has no default image, and refuses the image of amazon-vpc-cni. Set `image.override`, or `image.overrideRepository` and
  `image.tag`.
- Helm checks all values against `values.schema.json` before it applies anything. A misspelled name is refused.
- The form for EKS add-ons is the same chart, without hooks and `lookup`. Its configurable values are in
  `charts/addon/configuration-schema.json`.
- CRDs stay when the release is removed, because the removal of a CRD deletes all its objects.
";

const ENV: &str = "
## The map `env`

Its names are those of [the settings](../settings.md). Values are texts, numbers or booleans. These variables of
amazon-vpc-cni are accepted and are no settings of Ferrule:

| variable | effect |
|---|---|
";

const GIVEN: &str = "
These settings are refused in `env`, because the chart sets them:

| variable | reason |
|---|---|
";
