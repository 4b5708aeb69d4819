//! The node's ENIConfig.

use crate::{
    ClusterFact, Concern, EniConfig, EniConfigKeys,
    node::Seen,
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
    wire::{self, EniConfigSpec},
};
use config_model::{SecurityGroupId, SubnetId};
use kube::{Api, Client, ResourceExt as _, runtime::watcher::Event};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

/// All ENIConfigs by name; `None` before the first list.
pub(crate) type Configs = Option<BTreeMap<String, EniConfigSpec>>;

/// Watches ENIConfigs and sends the node's one.
pub(crate) async fn run(
    client: Client,
    keys: EniConfigKeys,
    mut node: watch::Receiver<Seen>,
    name: watch::Sender<Option<String>>,
    facts: mpsc::Sender<ClusterFact>,
    status: StatusReporter,
) {
    let subject = Subject {
        concern: Concern::EniConfig,
        resource: ENI_CONFIGS,
        fields: String::new(),
        labels: String::new(),
        page: None,
    };
    let mut watch = Watch::new(Api::<wire::EniConfig>::all(client), subject, status.clone());
    let (mut configs, mut listed): (Configs, Configs) = (None, None);
    let mut told = EniConfig::Unknown;
    loop {
        tokio::select! {
            batch = watch.batch() => {
                for event in batch {
                    take_in(event, &mut configs, &mut listed);
                }
            }
            changed = node.changed() => if changed.is_err() { return },
            // Without a list the ENIConfig is unknown, which the pool must learn as well.
            () = sleep(PATIENCE), if configs.is_none() => {}
        }
        let own = node.borrow_and_update().as_ref().map(|node| name_on(node, &keys));
        name.send_if_modified(|before| {
            let changes = *before != own;
            before.clone_from(&own);
            changes
        });
        let found = match (&own, &configs) {
            (Some(own), Some(configs)) => resolve(own, configs),
            (Some(own), None) => match watch.trouble() {
                Some(why) => EniConfig::Missing { name: own.clone(), why },
                None => EniConfig::Unknown,
            },
            (None, _) => EniConfig::Unknown,
        };
        // A known ENIConfig stays known while the API server is unreachable.
        if found != told && found != EniConfig::Unknown {
            told = found.clone();
            if facts.send(ClusterFact::EniConfig(found)).await.is_err() {
                return;
            }
        }
    }
}

fn take_in(event: Event<wire::EniConfig>, configs: &mut Configs, listed: &mut Configs) {
    match event {
        Event::Init => *listed = Some(BTreeMap::new()),
        Event::InitApply(object) => {
            if let Some(all) = listed {
                all.insert(object.name_any(), object.spec);
            }
        }
        Event::InitDone => *configs = listed.take(),
        Event::Apply(object) => {
            if let Some(all) = configs {
                all.insert(object.name_any(), object.spec);
            }
        }
        Event::Delete(object) => {
            if let Some(all) = configs {
                all.remove(&object.name_any());
            }
        }
    }
}

/// The name in the node's annotations and labels, in amazon-vpc-cni's order.
fn name_on(node: &wire::Node, keys: &EniConfigKeys) -> String {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|all| all.get(key));
    let annotation = |key: &str| node.metadata.annotations.as_ref().and_then(|all| all.get(key));
    label(EXTERNAL)
        .or_else(|| annotation(&keys.annotation))
        .or_else(|| label(&keys.label))
        .filter(|name| !name.is_empty())
        .cloned()
        .unwrap_or_else(|| DEFAULT.to_owned())
}

fn resolve(name: &str, configs: &BTreeMap<String, EniConfigSpec>) -> EniConfig {
    let missing = |why: String| EniConfig::Missing { name: name.to_owned(), why };
    let Some(config) = configs.get(name) else {
        return missing(format!("ENIConfig {name:?} does not exist"));
    };
    let Some(subnet) = config.subnet.as_deref().filter(|subnet| !subnet.is_empty()) else {
        return missing(format!("ENIConfig {name:?} has no spec.subnet"));
    };
    let groups = config.security_groups.iter().flatten();
    let bytes = subnet.len() + groups.clone().map(String::len).sum::<usize>();
    if bytes > LONGEST {
        return missing(format!(
            "ENIConfig {name:?} has {bytes} bytes of subnet and groups, and the limit is {LONGEST}"
        ));
    }
    EniConfig::Found {
        name: name.to_owned(),
        subnet: SubnetId::new(subnet),
        groups: groups.cloned().map(SecurityGroupId::new).collect(),
    }
}

/// The name if the node has none.
pub(crate) const DEFAULT: &str = "default";
/// The longest sum of subnet and groups in bytes. EC2 accepts at most 16 groups of 20 bytes for an ENI, and the
/// daemon's checkpoint has a limit for each record.
const LONGEST: usize = 16 << 10;
const EXTERNAL: &str = "vpc.amazonaws.com/externalEniConfig";
const ENI_CONFIGS: &str = "eniconfigs.crd.k8s.amazonaws.com";
const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> wire::Node {
        let map = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        let mut node = wire::Node::default();
        node.metadata.labels = map(labels);
        node.metadata.annotations = map(annotations);
        node
    }

    #[test]
    fn the_name_is_looked_up_as_amazon_vpc_cni_looks_it_up() {
        let keys = EniConfigKeys { annotation: "an".into(), label: "la".into() };
        let external = (EXTERNAL, "external");
        let all = node(&[external, ("la", "by-label")], &[("an", "by-annotation")]);
        assert_eq!(name_on(&all, &keys), "external");
        let both = node(&[("la", "by-label")], &[("an", "by-annotation")]);
        assert_eq!(name_on(&both, &keys), "by-annotation");
        assert_eq!(name_on(&node(&[("la", "by-label")], &[]), &keys), "by-label");
        assert_eq!(name_on(&node(&[], &[("la", "x")]), &keys), "default");
        assert_eq!(name_on(&wire::Node::default(), &keys), "default");
    }

    #[test]
    fn a_config_without_a_subnet_counts_as_missing_with_the_cause() {
        let config = |subnet: &str| EniConfigSpec {
            subnet: Some(subnet.to_owned()),
            security_groups: Some(vec!["sg-1".to_owned()]),
        };
        let many = vec!["sg-0123456789abcdef0".to_owned(); 4000];
        let configs = BTreeMap::from([
            ("long".to_owned(), config(&"s".repeat(70_000))),
            (
                "many".to_owned(),
                EniConfigSpec { security_groups: Some(many), ..config("subnet-1") },
            ),
            ("a".to_owned(), config("subnet-1")),
            ("b".to_owned(), config("")),
            ("none".to_owned(), EniConfigSpec::default()),
        ]);
        assert!(matches!(resolve("a", &configs), EniConfig::Found { subnet, groups, .. }
            if subnet.as_str() == "subnet-1" && groups.len() == 1));
        for (name, word) in [
            ("b", "spec.subnet"),
            ("none", "spec.subnet"),
            ("c", "does not exist"),
            ("long", "the limit is 16384"),
            ("many", "80008 bytes"),
        ] {
            let EniConfig::Missing { name: named, why } = resolve(name, &configs) else {
                panic!("{name} is found");
            };
            assert!(named == name && why.contains(word), "{why}");
        }
    }
}
