//! The creation of ENIs.
//!
//! EC2 creates one ENI per client token, as long as all other parameters are the same. The time of creation
//! differs if the next process repeats the call, and so does the subnet if another one has more room by then. So
//! the token is a tag as well, and an ENI whose creation EC2 does not repeat is found by it.

use super::{
    Ec2,
    calls::{names, tags},
    eni::seen,
    failure::incomplete,
};
use aws_sdk_ec2::types::{Filter, ResourceType, TagSpecification};
use config_model::{SecurityGroupId, SubnetId, utc};
use ipamd_core::{Action, CloudAnswer, CloudFault, Remedy, Want};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The time of an ENI's creation in RFC 3339; the name is amazon-vpc-cni's.
pub(super) const TAG_CREATED_AT: &str = "node.k8s.amazonaws.com/createdAt";
/// The client token of the creation.
const TAG_TOKEN: &str = "ferrule.io/client-token";
/// The remembered tokens. Fewer ENIs are created at a time.
const TOKENS: usize = 64;
/// An ENI that EC2 does not list after this time does not exist.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

pub(super) struct NewEni {
    pub(super) token: String,
    pub(super) subnet: SubnetId,
    pub(super) groups: Vec<SecurityGroupId>,
    pub(super) want: Want,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) description: String,
}

/// The parameters of the last tokens, so that a repeated call has the same ones.
#[derive(Debug, Default)]
pub(super) struct Asked(Mutex<VecDeque<Ask>>);

#[derive(Debug)]
struct Ask {
    token: String,
    created_at: String,
    /// The time of the first search by the token.
    missed: Option<Instant>,
}

impl Asked {
    fn created_at(&self, token: &str) -> String {
        let mut asked = runtime_lock::lock(&self.0);
        if let Some(ask) = asked.iter().find(|ask| ask.token == token) {
            return ask.created_at.clone();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let created_at = format!("{}Z", utc::date_and_time(now));
        if asked.len() == TOKENS {
            asked.pop_front();
        }
        let token = token.to_owned();
        asked.push_back(Ask { token, created_at: created_at.clone(), missed: None });
        created_at
    }

    /// Returns whether EC2 may still list an ENI with this token.
    fn may_come(&self, token: &str) -> bool {
        let mut asked = runtime_lock::lock(&self.0);
        let Some(ask) = asked.iter_mut().find(|ask| ask.token == token) else { return false };
        ask.missed.get_or_insert_with(Instant::now).elapsed() < SHOWN_WITHIN
    }
}

impl Ec2 {
    pub(super) async fn create(
        &self,
        action: &'static str,
        new: NewEni,
    ) -> Result<CloudAnswer, CloudFault> {
        let NewEni { token, subnet, groups, want, tags: mut wanted, description } = new;
        wanted.insert(TAG_CREATED_AT.to_owned(), self.asked.created_at(&token));
        wanted.insert(TAG_TOKEN.to_owned(), token.clone());
        let request = self
            .client
            .create_network_interface()
            .client_token(&token)
            .subnet_id(subnet.as_str())
            .set_groups(Some(names(groups)))
            .description(description)
            .tag_specifications(
                TagSpecification::builder()
                    .resource_type(ResourceType::NetworkInterface)
                    .set_tags(Some(tags(wanted)))
                    .build(),
            );
        let request = match want {
            Want::Addresses(0) | Want::Prefixes(0) | Want::Ipv6Prefixes(0) => request,
            Want::Addresses(count) => request.secondary_private_ip_address_count(count.into()),
            Want::Prefixes(count) => request.ipv4_prefix_count(count.into()),
            Want::Ipv6Prefixes(count) => request.ipv6_prefix_count(count.into()),
        };
        match self.ask(action, request.send()).await {
            Ok(answer) => {
                let made = answer.network_interface();
                let made = made.ok_or_else(|| incomplete(action, "networkInterface"))?;
                seen(action, made).map(CloudAnswer::Created)
            }
            Err(fault) if fault.code == "IdempotentParameterMismatch" => {
                self.made_before(&token, fault).await
            }
            Err(fault) => Err(fault),
        }
    }

    /// The ENI that was created with this token and other parameters.
    async fn made_before(
        &self,
        token: &str,
        mismatch: CloudFault,
    ) -> Result<CloudAnswer, CloudFault> {
        let action = Action::Describe.name();
        let by_token = Filter::builder().name(format!("tag:{TAG_TOKEN}")).values(token).build();
        let request = self.client.describe_network_interfaces().filters(by_token);
        let answer = self.ask(action, request.send()).await?;
        match answer.network_interfaces() {
            [found] => seen(action, found).map(CloudAnswer::Created),
            _ if self.asked.may_come(token) => Err(CloudFault {
                code: "NotShownYet".to_owned(),
                message: format!("EC2 created an ENI for token {token} and does not list it yet"),
                remedy: Remedy::RetryAfter { wait: None },
            }),
            // It was created and has been deleted.
            _ => Err(mismatch),
        }
    }
}
