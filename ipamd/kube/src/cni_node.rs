//! Requests a trunk ENI from the VPC resource controller with features of the node's CNINode.

use crate::{
    Concern,
    eni_config::DEFAULT,
    fault::{Fault, Kind},
    request,
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
    wire::CniNode,
};
use config_crds::Feature;
use kube::{Api, Client, api::Patch, runtime::watcher::Event};
use serde_json::json;
use tokio::{sync::watch, time::sleep};

/// The inputs from which the features follow.
pub(crate) struct Wanted {
    /// A trunk ENI was requested.
    pub(crate) trunk: watch::Receiver<bool>,
    /// The name of the node's ENIConfig; `None` while it is unknown. Without custom networking there is no channel.
    pub(crate) eni_config: Option<watch::Receiver<Option<String>>>,
}

/// Watches the CNINode and adds missing features. Never creates one.
pub(crate) async fn run(client: Client, name: String, mut wanted: Wanted, status: StatusReporter) {
    let fields = format!("metadata.name={name}");
    let subject = Subject {
        concern: Concern::CniNode,
        resource: CNI_NODES,
        fields,
        labels: String::new(),
        page: None,
    };
    let api = Api::<CniNode>::all(client);
    let mut watch = Watch::new(api.clone(), subject, status.clone());
    let (mut node, mut listed, mut seen) = (None, false, None);
    let mut backoff = request::backoff();
    loop {
        let missing = node.as_ref().and_then(|node| lacking(node, &features(&wanted)));
        tokio::select! {
            batch = watch.batch() => {
                backoff.reset();
                for event in batch {
                    match event {
                        Event::Init => seen = None,
                        Event::InitApply(object) => seen = Some(object),
                        Event::InitDone => (node, listed) = (seen.take(), true),
                        Event::Apply(object) => node = Some(object),
                        Event::Delete(_) => node = None,
                    }
                }
                if listed && node.is_none() && *wanted.trunk.borrow() {
                    status.failing(Concern::CniNode, &name, &absent(&name));
                }
            }
            changed = wanted.changed() => {
                if !changed {
                    return;
                }
                if listed && node.is_none() && *wanted.trunk.borrow() {
                    status.failing(Concern::CniNode, &name, &absent(&name));
                }
            }
            patched = patch(&api, &name, node.as_ref(), missing.as_deref()), if missing.is_some() => {
                match patched {
                    Ok(object) => {
                        node = Some(object);
                        backoff.reset();
                        status.good(Concern::CniNode, CNI_NODES);
                    }
                    Err(fault) => {
                        // The watch resolves a conflict: it delivers the other writer's version.
                        if fault.kind != Kind::Conflict {
                            status.failing(Concern::CniNode, &name, &fault);
                        }
                        sleep(backoff.pause()).await;
                    }
                }
            }
        }
    }
}

impl Wanted {
    /// Waits for a change; `false` if the senders are gone.
    async fn changed(&mut self) -> bool {
        match &mut self.eni_config {
            Some(name) => tokio::select! {
                changed = self.trunk.changed() => changed.is_ok(),
                changed = name.changed() => changed.is_ok(),
            },
            None => self.trunk.changed().await.is_ok(),
        }
    }
}

/// The desired features. With custom networking there are none before the ENIConfig's name is known, because the
/// controller creates the trunk ENI with it, and only once.
fn features(wanted: &Wanted) -> Vec<Feature> {
    if !*wanted.trunk.borrow() {
        return Vec::new();
    }
    let feature = |name: &str, value: &str| Feature {
        name: Some(name.to_owned()),
        value: Some(value.to_owned()).filter(|value| !value.is_empty()),
    };
    let groups = feature(Feature::SECURITY_GROUPS_FOR_PODS, "");
    match wanted.eni_config.as_ref().map(|name| name.borrow().clone()) {
        None => vec![groups],
        Some(None) => Vec::new(),
        Some(Some(name)) if name == DEFAULT => vec![groups],
        Some(Some(name)) => vec![feature(Feature::CUSTOM_NETWORKING, &name), groups],
    }
}

/// The complete list of features, if one of `wanted` is missing.
fn lacking(node: &CniNode, wanted: &[Feature]) -> Option<Vec<Feature>> {
    let mut all = node.spec.features.clone().unwrap_or_default();
    let mut changes = false;
    for feature in wanted {
        match all.iter_mut().find(|have| have.name == feature.name) {
            Some(have) if text(have) == text(feature) => {}
            Some(have) => {
                have.value.clone_from(&feature.value);
                changes = true;
            }
            None => {
                all.push(feature.clone());
                changes = true;
            }
        }
    }
    changes.then_some(all)
}

fn text(feature: &Feature) -> &str {
    feature.value.as_deref().unwrap_or_default()
}

async fn patch(
    api: &Api<CniNode>,
    name: &str,
    node: Option<&CniNode>,
    features: Option<&[Feature]>,
) -> Result<CniNode, Fault> {
    // The version ensures that the patch replaces the list that was read.
    let patch = json!({
        "metadata": { "resourceVersion": node.and_then(kube::ResourceExt::resource_version) },
        "spec": { "features": features },
    });
    request::patch(api, name, CNI_NODES, &Patch::Merge(&patch)).await
}

fn absent(name: &str) -> Fault {
    Fault {
        kind: Kind::NotFound,
        cause: format!("cannot request a trunk ENI: CNINode {name} does not exist"),
        next_step: "check that the VPC resource controller runs: it creates one for each node"
            .into(),
    }
}

const CNI_NODES: &str = "cninodes.vpcresources.k8s.aws";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn wanted(trunk: bool, eni_config: Option<Option<&str>>) -> Vec<Feature> {
        let (_trunk, trunk) = watch::channel(trunk);
        let eni_config = eni_config.map(|name| watch::channel(name.map(str::to_owned)).1);
        features(&Wanted { trunk, eni_config })
    }

    fn names(features: &[Feature]) -> Vec<(&str, &str)> {
        let pair = |f: &Feature| (f.name.clone().unwrap(), text(f).to_owned());
        let pairs: Vec<(String, String)> = features.iter().map(pair).collect();
        pairs.into_iter().map(|(n, v)| (n.leak() as &str, v.leak() as &str)).collect()
    }

    #[test]
    fn the_eni_config_is_named_before_a_trunk_is_asked_for() {
        let groups = ("SecurityGroupsForPods", "");
        assert_eq!(names(&wanted(false, None)), []);
        assert_eq!(names(&wanted(true, None)), [groups]);
        assert_eq!(names(&wanted(true, Some(None))), [], "its name is not known yet");
        assert_eq!(names(&wanted(true, Some(Some("default")))), [groups]);
        let both = [("CustomNetworking", "az-a"), groups];
        assert_eq!(names(&wanted(true, Some(Some("az-a")))), both);
    }

    #[test]
    fn features_of_other_writers_stay_and_a_value_is_replaced() {
        let feature = |name: &str, value: Option<&str>| Feature {
            name: Some(name.into()),
            value: value.map(str::to_owned),
        };
        let mut node = CniNode::default();
        node.spec.features =
            Some(vec![feature("Other", Some("x")), feature("CustomNetworking", Some("old"))]);
        let wanted = wanted(true, Some(Some("az-a")));
        let all = lacking(&node, &wanted).unwrap();
        let expected =
            [("Other", "x"), ("CustomNetworking", "az-a"), ("SecurityGroupsForPods", "")];
        assert_eq!(names(&all), expected);
        node.spec.features = Some(all);
        assert_eq!(lacking(&node, &wanted), None, "nothing is left to do");
    }
}
