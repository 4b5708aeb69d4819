//! The node's role: IAM checks as EC2 makes them, with the published documents.
//!
//! EC2 checks each resource of a call separately. A statement allows the call on it if action, ARN and all conditions
//! match. The documents have placeholders; region, account, VPC and cluster have these names here.

use crate::plan::Mode;
use config_iam::{
    ACCOUNT, CLUSTER, CLUSTER_OF_SESSION, ConditionValue, Document, Mode as Needs, REGION, Scope,
    Statement, TAG_CLUSTER, VPC, policy,
};
use config_model::EniId;
use lab_cloud::{Ec2Error, NetworkInterface, Request};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Condition keys and their values.
type Context = BTreeMap<String, String>;

/// The role with its policy and its record of calls.
#[derive(Clone, Debug)]
pub(crate) struct Iam {
    document: Document,
    calls: RecordedCalls,
}

/// The calls that EC2 received.
#[derive(Clone, Debug, Default)]
pub struct RecordedCalls {
    /// Every action that was called.
    pub actions: BTreeSet<String>,
    /// The calls that the policy did not allow.
    pub refused: BTreeSet<Refusal>,
}

/// A call that the policy did not allow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    pub action: String,
    /// The ARN.
    pub resource: String,
    /// True if the ENI had the cluster's tag then. `None` for other resources.
    pub tagged: Option<bool>,
}

/// A check of EC2: an action on a resource.
struct Check {
    action: &'static str,
    arn: String,
    context: Context,
}

/// The tags of ENIs that a daemon with this cluster name creates.
pub(crate) fn cluster_tag() -> (String, String) {
    (TAG_CLUSTER.to_owned(), CLUSTER.to_owned())
}

impl Mode {
    /// The owner of the policy that its nodes need.
    pub fn needs(self) -> Needs {
        match self {
            Self::Ipv6 => Needs::Ipv6,
            Self::NotProvisioned | Self::ImdsOnly => Needs::ReadOnly,
            _ => Needs::Ipv4,
        }
    }
}

impl Iam {
    pub(crate) fn new(mode: Mode, scope: Scope) -> Self {
        Self { document: policy(mode.needs(), scope), calls: RecordedCalls::default() }
    }

    pub(crate) fn into_calls(self) -> RecordedCalls {
        self.calls
    }

    /// Returns whether the policy allows the call.
    pub(crate) fn admit(
        &mut self,
        request: &Request,
        enis: &[Arc<NetworkInterface>],
    ) -> Result<(), Ec2Error> {
        for check in checks(request, enis) {
            self.calls.actions.insert(check.action.to_owned());
            if self.document.statement.iter().any(|statement| check.passes(statement)) {
                continue;
            }
            let tagged = check
                .arn
                .contains(":network-interface/eni-")
                .then(|| check.context.contains_key(&format!("aws:ResourceTag/{TAG_CLUSTER}")));
            let message =
                format!("not authorized to perform: ec2:{} on {}", check.action, check.arn);
            let resource = check.arn;
            self.calls.refused.insert(Refusal {
                action: check.action.to_owned(),
                resource,
                tagged,
            });
            return Err(Ec2Error::new("UnauthorizedOperation", &message).with_status(403));
        }
        Ok(())
    }
}

impl Check {
    fn passes(&self, statement: &Statement) -> bool {
        statement.action.contains(&format!("ec2:{}", self.action))
            && statement.resource.iter().any(|pattern| fits(pattern, &self.arn))
            && statement.condition.iter().all(|(operator, keys)| {
                keys.iter().all(|(key, wanted)| match wanted {
                    ConditionValue::One(value) => self.meets(operator, key, value),
                    ConditionValue::Only(values) => self.has_only(operator, key, values),
                })
            })
    }

    /// A request without tags has no keys, so all of them are among the allowed ones.
    fn has_only(&self, operator: &str, key: &str, wanted: &[String]) -> bool {
        let mut asked = self.context.keys().filter_map(|key| key.strip_prefix("aws:RequestTag/"));
        (operator, key) == ("ForAllValues:StringEquals", "aws:TagKeys")
            && asked.all(|asked| wanted.iter().any(|key| key == asked))
    }

    fn meets(&self, operator: &str, key: &str, value: &str) -> bool {
        let wanted = if value == CLUSTER_OF_SESSION { CLUSTER } else { value };
        let found = self.context.get(key).map(String::as_str);
        match operator {
            "StringEquals" | "ArnEquals" => found == Some(wanted),
            "StringEqualsIfExists" => found.is_none_or(|found| found == wanted),
            // An operator that is not implemented here must not match by accident.
            _ => false,
        }
    }
}

/// The checks of a request by EC2's reference of actions, resources and condition keys.
fn checks(request: &Request, enis: &[Arc<NetworkInterface>]) -> Vec<Check> {
    let action = request.action().name();
    let everywhere = || Context::from([("aws:RequestedRegion".to_owned(), REGION.to_owned())]);
    let check =
        |kind: &str, id: &str, context: Context| Check { action, arn: arn(kind, id), context };
    let of_vpc = |kind: &str, id: &str| {
        let mut context = everywhere();
        context.insert("ec2:Vpc".to_owned(), arn("vpc", VPC));
        check(kind, id, context)
    };
    let eni = |id: &Option<EniId>| {
        let id = id.clone().unwrap_or_else(|| EniId::new("eni-none"));
        let mut of = of_vpc("network-interface", id.as_str());
        let found = enis.iter().find(|eni| eni.id == id);
        of.context.extend(found.into_iter().flat_map(|eni| {
            eni.tags.iter().map(|(key, value)| (format!("aws:ResourceTag/{key}"), value.clone()))
        }));
        of
    };
    let instance = || {
        let mut context = everywhere();
        for (tag, value) in [
            (format!("kubernetes.io/cluster/{CLUSTER}"), "owned"),
            ("eks:cluster-name".into(), CLUSTER),
        ] {
            context.insert(format!("aws:ResourceTag/{tag}"), value.to_owned());
        }
        check("instance", "i-1", context)
    };
    let group = |id: &config_model::SecurityGroupId| of_vpc("security-group", id.as_str());
    match request {
        Request::CreateNetworkInterface(new) => {
            let mut tags = everywhere();
            let given = new.tag_specifications.iter().flat_map(|of| &of.tags);
            tags.extend(
                given.map(|tag| (format!("aws:RequestTag/{}", tag.key), tag.value.clone())),
            );
            let subnet = new.subnet_id.as_ref().map_or("subnet-none", |id| id.as_str());
            let mut tagging = tags.clone();
            tagging.insert("ec2:CreateAction".to_owned(), action.to_owned());
            let made = check("network-interface", "*", tags);
            let tagged = Check { action: "CreateTags", context: tagging, arn: made.arn.clone() };
            let place = [made, of_vpc("subnet", subnet)];
            place.into_iter().chain(new.groups.iter().map(group)).chain([tagged]).collect()
        }
        Request::AttachNetworkInterface(it) => vec![eni(&it.network_interface_id), instance()],
        Request::DetachNetworkInterface(it) => {
            let of = enis.iter().find(|eni| {
                eni.attachment.as_ref().map(|attachment| &attachment.id)
                    == it.attachment_id.as_ref()
            });
            vec![eni(&of.map(|eni| eni.id.clone())), instance()]
        }
        Request::ModifyNetworkInterfaceAttribute(it) => {
            let mut all = vec![eni(&it.network_interface_id)];
            all.extend(it.attachment.is_some().then(instance));
            all.extend(it.groups.iter().map(group));
            all
        }
        Request::AssignPrivateIpAddresses(it) => vec![eni(&it.network_interface_id)],
        Request::UnassignPrivateIpAddresses(it) => vec![eni(&it.network_interface_id)],
        Request::AssignIpv6Addresses(it) => vec![eni(&it.network_interface_id)],
        Request::UnassignIpv6Addresses(it) => vec![eni(&it.network_interface_id)],
        Request::DeleteNetworkInterface(it) => vec![eni(&it.network_interface_id)],
        Request::CreateTags(it) => {
            let of = |id: &String| {
                let mut check = eni(&Some(EniId::new(id.as_str())));
                let tags = it.tags.iter();
                check.context.extend(
                    tags.map(|tag| (format!("aws:RequestTag/{}", tag.key), tag.value.clone())),
                );
                check
            };
            it.resources.iter().map(of).collect()
        }
        // EC2 defines no resources for the other actions.
        _ => vec![Check { action, arn: "*".to_owned(), context: everywhere() }],
    }
}

fn arn(kind: &str, id: &str) -> String {
    format!("arn:aws:ec2:{REGION}:{ACCOUNT}:{kind}/{id}")
}

/// Returns whether an ARN matches a pattern with asterisks.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            text.char_indices()
                .map(|(at, _)| at)
                .chain([text.len()])
                .any(|at| text.get(at..).is_some_and(|tail| fits(rest, tail)))
        }),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use lab_cloud::{CreateTags, DeleteNetworkInterface, DescribeSubnets, Tag};

    fn judge(scope: Scope, mode: Mode, request: Request) -> Result<(), Ec2Error> {
        Iam::new(mode, scope).admit(&request, &[])
    }

    #[test]
    fn an_eni_without_the_clusters_tag_is_not_deleted_within_a_cluster() {
        let delete = DeleteNetworkInterface {
            network_interface_id: Some(EniId::new("eni-1")),
            dry_run: false,
        };
        judge(Scope::Account, Mode::Secondary, delete.clone().into()).unwrap();
        let refused = judge(Scope::Cluster, Mode::Secondary, delete.clone().into()).unwrap_err();
        assert_eq!(refused.code, "UnauthorizedOperation");
        assert!(judge(Scope::Session, Mode::Secondary, delete.clone().into()).is_err());
        assert!(judge(Scope::Account, Mode::NotProvisioned, delete.into()).is_err());
    }

    /// The controllers of others use their own tags.
    #[test]
    fn within_a_cluster_an_eni_gets_only_the_daemons_tags() {
        let tags = |more: &[&str]| {
            let keys = [TAG_CLUSTER].into_iter().chain(more.iter().copied());
            let tags = keys.map(|key| Tag { key: key.to_owned(), value: CLUSTER.to_owned() });
            CreateTags { resources: vec!["eni-1".to_owned()], tags: tags.collect(), dry_run: false }
        };
        for scope in [Scope::Cluster, Scope::Session] {
            let judged = |more: &[&str]| judge(scope, Mode::Secondary, tags(more).into());
            judged(&["ferrule.io/node-group"]).unwrap();
            assert!(judged(&["karpenter.sh/nodepool"]).is_err());
        }
        judge(Scope::Account, Mode::Secondary, tags(&["karpenter.sh/nodepool"]).into()).unwrap();
    }

    #[test]
    fn an_action_without_resources_is_allowed_by_its_name() {
        for scope in Scope::ALL {
            judge(*scope, Mode::Discovery, DescribeSubnets::default().into()).unwrap();
            assert!(
                judge(*scope, Mode::NotProvisioned, DescribeSubnets::default().into()).is_err()
            );
        }
    }

    #[test]
    fn an_asterisk_in_an_arn_matches_any_text() {
        assert!(fits("arn:*:ec2:*:*:subnet/*", "arn:aws:ec2:eu-west-1:1:subnet/subnet-1"));
        assert!(!fits("arn:*:ec2:*:*:subnet/*", "arn:aws:ec2:eu-west-1:1:instance/i-1"));
        assert!(fits("*", "arn") && fits("a", "a") && !fits("a", "ab"));
    }
}
