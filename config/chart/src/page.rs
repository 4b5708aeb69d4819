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
        let _ = writeln!(page, "| `{}` | {} |", idle.name, idle.told);
    }
    page.push_str(GIVEN);
    for setting in settings::table() {
        if let Some(by) = env::given_by_chart(setting.name) {
            let _ = writeln!(page, "| `{}` | {by} |", setting.name);
        }
    }
    let others: Vec<String> = env::OTHERS.iter().map(|name| format!("`{name}`")).collect();
    let _ =
        write!(page, "\nLibraries read {}; these may stand in `env` as well.\n", others.join(", "));
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
        Effect::Idle => " **No effect**, which is told after an installation.".to_owned(),
        Effect::Refused(why) => format!(" **Refused:** {why}."),
    };
    format!("| `{path}` | {} | {default} | {meaning}{effect} |\n", shape_text(*shape))
}

const HEAD: &str = "\
# The chart's values

<!-- Generated from the table in config/chart; `cargo xtask generate` writes it anew. -->

```sh
helm upgrade --install ferrule charts/ferrule --namespace kube-system --values my-values.yaml
```

- A value of amazon-vpc-cni's chart has its key and its meaning here, so its values file is a place to begin. What cannot hold is
  refused, with the reason; what has no effect is told after an installation.
- `values.schema.json` holds every value: a misspelt name or a value that does not fit is refused before anything is applied.
- The form for EKS add-ons is the same chart, which uses neither hooks nor `lookup`; what may be configured with it is in
  `charts/addon/configuration-schema.json`.
- Definitions of kinds stay when the release is removed: with one, all its objects would go.
";

const ENV: &str = "
## The map `env`

Its names are those of [the settings](../settings.md); values may be written as text, as numbers or as booleans. Variables of
amazon-vpc-cni that are no settings of Ferrule's:

| variable | what comes of it |
|---|---|
";

const GIVEN: &str = "
Settings that may not stand there, since the chart gives them:

| variable | why |
|---|---|
";
