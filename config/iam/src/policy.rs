//! Policy documents by mode and scope.

use crate::{ConditionValue, Conditions, Document, Grant, Mode, Resource, Statement, grants};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Any ENI of the account, without placeholders, as in the managed policy of amazon-vpc-cni.
    Account,
    /// ENIs with the cluster's tag in one VPC. The document has placeholders.
    Cluster,
    /// The same for all clusters of a VPC: the cluster's name comes from the session tags of EKS Pod Identity.
    Session,
}

impl Scope {
    pub const ALL: &[Self] = &[Self::Account, Self::Cluster, Self::Session];

    /// Part of a file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Cluster => "cluster",
            Self::Session => "pod-identity",
        }
    }

    fn cluster(self) -> &'static str {
        match self {
            Self::Account | Self::Cluster => CLUSTER,
            Self::Session => CLUSTER_OF_SESSION,
        }
    }
}

/// Placeholder of the region.
pub const REGION: &str = "REGION";
/// Placeholder of the account.
pub const ACCOUNT: &str = "ACCOUNT_ID";
/// Placeholder of the VPC.
pub const VPC: &str = "VPC_ID";
/// Placeholder of the cluster's name.
pub const CLUSTER: &str = "CLUSTER_NAME";
/// The cluster's name as EKS Pod Identity passes it.
pub const CLUSTER_OF_SESSION: &str = "${aws:PrincipalTag/eks-cluster-name}";
/// The tag of ENIs that names their cluster.
pub const TAG_CLUSTER: &str = "cluster.k8s.amazonaws.com/name";

/// The keys of all tags that the daemon gives ENIs, except those of `ADDITIONAL_ENI_TAGS`.
pub const TAG_KEYS: &[&str] = &[
    TAG_CLUSTER,
    "eks:eni:owner",
    "ferrule.io/adopted",
    "ferrule.io/client-token",
    "ferrule.io/node-group",
    "node.k8s.amazonaws.com/createdAt",
    "node.k8s.amazonaws.com/instance_id",
];

/// Returns the policy of the daemon for a mode and a scope.
pub fn policy(mode: Mode, scope: Scope) -> Document {
    let granted: Vec<&Grant> =
        grants().iter().filter(|grant| grant.modes.contains(&mode)).collect();
    let look = granted.iter().filter(|grant| grant.on.is_empty());
    let looks = Statement {
        sid: "Look",
        effect: "Allow",
        action: names(look.copied()),
        resource: vec!["*".to_owned()],
        condition: match scope {
            Scope::Account => Conditions::new(),
            Scope::Cluster | Scope::Session => {
                all([("StringEquals", "aws:RequestedRegion", REGION)])
            }
        },
    };
    let changes = match scope {
        Scope::Account => anywhere(&granted),
        Scope::Cluster | Scope::Session => in_cluster(&granted, scope),
    };
    Document::new([looks].into_iter().chain(changes))
}

/// Statements for any resource of the account.
fn anywhere(granted: &[&Grant]) -> Vec<Statement> {
    let kinds = [
        ("OnEnis", Resource::NetworkInterface),
        ("InSubnets", Resource::Subnet),
        ("WithSecurityGroups", Resource::SecurityGroup),
        ("OnInstances", Resource::Instance),
    ];
    let of = |(sid, kind): (&'static str, Resource)| Statement {
        sid,
        effect: "Allow",
        action: names(on(granted, kind)),
        resource: vec![format!("arn:*:ec2:*:*:{}/*", kind.name())],
        condition: Conditions::new(),
    };
    kinds.map(of).into()
}

/// Statements for ENIs with the cluster's tag. New ENIs must carry it, and ENIs without a cluster's tag can receive it.
fn in_cluster(granted: &[&Grant], scope: Scope) -> Vec<Statement> {
    let cluster = scope.cluster();
    let asked = format!("aws:RequestTag/{TAG_CLUSTER}");
    let carried = format!("aws:ResourceTag/{TAG_CLUSTER}");
    let vpc = format!("arn:aws:ec2:{REGION}:{ACCOUNT}:vpc/{VPC}");
    let only =
        |name: &'static str| granted.iter().copied().filter(move |grant| grant.action == name);
    let (create, tag) = ("CreateNetworkInterface", "CreateTags");
    let enis = || on(granted, Resource::NetworkInterface);
    let state = |sid, action, kinds: &[Resource], condition| Statement {
        sid,
        effect: "Allow",
        action,
        resource: kinds.iter().map(|kind| arn(*kind)).collect(),
        condition,
    };
    let instances = match scope {
        // Tag of the instances of node groups and Karpenter.
        Scope::Account | Scope::Cluster => {
            let owned = format!("aws:ResourceTag/kubernetes.io/cluster/{cluster}");
            all([("StringEquals", &owned, "owned")])
        }
        // A key cannot hold a variable; managed node groups give this one.
        Scope::Session => all([("StringEquals", "aws:ResourceTag/eks:cluster-name", cluster)]),
    };
    let eni = [Resource::NetworkInterface];
    vec![
        state(
            "MakeEnisOfTheCluster",
            names(only(create)),
            &eni,
            all([("StringEquals", &asked, cluster)]),
        ),
        state(
            "TagThemAsTheyAreMade",
            names(only(tag).filter(|_| only(create).next().is_some())),
            &eni,
            with_our_keys(all([
                ("StringEquals", &asked, cluster),
                ("StringEquals", "ec2:CreateAction", create),
            ])),
        ),
        state(
            "TagEnisOfNoOtherCluster",
            names(only(tag)),
            &eni,
            with_our_keys(all([
                ("StringEquals", &asked, cluster),
                ("StringEqualsIfExists", &carried, cluster),
                ("ArnEquals", "ec2:Vpc", &vpc),
            ])),
        ),
        state(
            "ChangeEnisOfTheCluster",
            names(enis().filter(|grant| ![create, tag].contains(&grant.action))),
            &eni,
            all([("StringEquals", &carried, cluster)]),
        ),
        state(
            "InSubnetsOfTheVpc",
            names(on(granted, Resource::Subnet)),
            &[Resource::Subnet],
            all([("ArnEquals", "ec2:Vpc", &vpc)]),
        ),
        state(
            "WithSecurityGroupsOfTheVpc",
            names(on(granted, Resource::SecurityGroup)),
            &[Resource::SecurityGroup],
            all([("ArnEquals", "ec2:Vpc", &vpc)]),
        ),
        state(
            "OnNodesOfTheCluster",
            names(on(granted, Resource::Instance)),
            &[Resource::Instance],
            instances,
        ),
    ]
}

fn on<'a>(granted: &'a [&'a Grant], kind: Resource) -> impl Iterator<Item = &'a Grant> {
    granted.iter().copied().filter(move |grant| grant.on.contains(&kind))
}

fn names<'a>(granted: impl Iterator<Item = &'a Grant>) -> Vec<String> {
    granted.map(|grant| format!("ec2:{}", grant.action)).collect()
}

fn arn(kind: Resource) -> String {
    format!("arn:aws:ec2:{REGION}:{ACCOUNT}:{}/*", kind.name())
}

fn all<const N: usize>(conditions: [(&'static str, &str, &str); N]) -> Conditions {
    let mut of = Conditions::new();
    for (operator, key, value) in conditions {
        let keys: &mut BTreeMap<String, ConditionValue> = of.entry(operator).or_default();
        keys.insert(key.to_owned(), ConditionValue::One(value.to_owned()));
    }
    of
}

/// Limits the tag keys to those of the daemon, because other controllers rely on their own tags.
fn with_our_keys(mut conditions: Conditions) -> Conditions {
    let keys = TAG_KEYS.iter().map(|key| (*key).to_owned()).collect();
    let only = conditions.entry("ForAllValues:StringEquals").or_default();
    only.insert("aws:TagKeys".to_owned(), ConditionValue::Only(keys));
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_actions_without_resources_have_a_wildcard() {
        for (mode, scope) in pairs() {
            for statement in policy(mode, scope).statement {
                let looks = |action: &String| action.starts_with("ec2:Describe");
                let everything = statement.resource.iter().any(|resource| resource == "*");
                assert_eq!(everything, statement.action.iter().all(looks), "{statement:?}");
                assert!(statement.action.iter().all(|action| !action.contains('*')));
            }
        }
    }

    #[test]
    fn within_a_cluster_nothing_is_allowed_without_a_condition() {
        for (mode, scope) in pairs().filter(|(_, scope)| *scope != Scope::Account) {
            for statement in policy(mode, scope).statement {
                assert!(!statement.condition.is_empty(), "{mode:?} {scope:?}: {statement:?}");
            }
        }
    }

    #[test]
    fn every_grant_of_a_mode_is_in_each_of_its_documents() {
        for (mode, scope) in pairs() {
            let document = policy(mode, scope);
            for grant in grants() {
                let named = format!("ec2:{}", grant.action);
                let there = document.statement.iter().any(|it| it.action.contains(&named));
                assert_eq!(there, grant.modes.contains(&mode), "{mode:?} {scope:?}: {named}");
            }
        }
    }

    /// Sids are letters and digits, and differ within a document; a managed policy has 6,144
    /// characters that are not white space.
    #[test]
    fn iam_takes_the_documents() {
        for (mode, scope) in pairs() {
            let document = policy(mode, scope);
            let mut sids: Vec<&str> = document.statement.iter().map(|it| it.sid).collect();
            let all = sids.len();
            sids.sort_unstable();
            sids.dedup();
            assert_eq!(sids.len(), all);
            assert!(sids.iter().all(|sid| sid.chars().all(|one| one.is_ascii_alphanumeric())));
            let size = document.text().chars().filter(|one| !one.is_whitespace()).count();
            assert!(size < 6_144, "{mode:?} {scope:?}: {size}");
        }
    }

    fn pairs() -> impl Iterator<Item = (Mode, Scope)> {
        Mode::ALL.iter().flat_map(|mode| Scope::ALL.iter().map(|scope| (*mode, *scope)))
    }
}
