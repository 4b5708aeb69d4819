//! The client of the instance metadata service.
//!
//! A missing path is a valid answer: EC2 omits properties that an instance does not have. Any other failure fails
//! the whole read, because a partial read would look like deleted ENIs.

use crate::{
    CallReport, Node, Observer, Service,
    error_chain::{chain_text, find},
};
use aws_config::{
    imds::{
        Client,
        client::error::{ImdsError, TokenError},
    },
    provider_config::ProviderConfig,
};
use aws_smithy_runtime_api::client::{
    http::SharedHttpClient, orchestrator::HttpResponse, result::SdkError,
};
use config_model::{
    CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, VpcId,
};
use ipamd_core::{AttachmentState, CloudFault, Remedy, SeenAttachment, SeenEni};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

const BASE: &str = "/latest/meta-data";
/// The service is one hop away. A slower answer never comes.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The deadline of all attempts for one path.
const PATH_TIME: Duration = Duration::from_secs(5);
/// An expired token needs a second attempt.
const ATTEMPTS: u32 = 3;

/// The address of the service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Endpoint<'a> {
    /// The SDK's environment variable, or 169.254.169.254.
    ByEnvironment,
    /// A URL.
    At(&'a str),
}

pub(crate) struct Imds {
    client: Client,
    observer: Arc<dyn Observer>,
}

/// A path below [`BASE`] or below an ENI's folder, and its name in metrics.
#[derive(Clone, Copy, Debug)]
struct Key {
    path: &'static str,
    api: &'static str,
}

impl Imds {
    pub(crate) fn new(
        http: SharedHttpClient,
        endpoint: Endpoint<'_>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let provider = ProviderConfig::default().with_http_client(http);
        let builder = Client::builder()
            .configure(&provider)
            .max_attempts(ATTEMPTS)
            .operation_attempt_timeout(ANSWER_TIME)
            .operation_timeout(PATH_TIME);
        let builder = match endpoint {
            Endpoint::ByEnvironment => builder,
            Endpoint::At(url) => builder.endpoint(url)?,
        };
        Ok(Self { client: builder.build(), observer })
    }

    /// The client for region and credentials.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) async fn node(&self) -> Result<Node, CloudFault> {
        let mac: Mac = self.required(&Place::Root, MAC).await?;
        let primary = Place::Interface(mac);
        Ok(Node {
            instance: InstanceId::new(self.required::<String>(&Place::Root, INSTANCE_ID).await?),
            instance_type: self.required(&Place::Root, INSTANCE_TYPE).await?,
            region: self.required(&Place::Root, REGION).await?,
            availability_zone: self.required(&Place::Root, AVAILABILITY_ZONE).await?,
            local_ipv4: self.value(&Place::Root, LOCAL_IPV4).await?,
            local_ipv6: self.value(&Place::Root, LOCAL_IPV6).await?,
            primary_eni: EniId::new(self.required::<String>(&primary, INTERFACE_ID).await?),
            primary_mac: mac,
            subnet: SubnetId::new(self.required::<String>(&primary, SUBNET_ID).await?),
            subnet_cidr: self.value(&primary, SUBNET_CIDR).await?,
            subnet_cidr_v6: self.subnet_v6(&primary).await?,
            security_groups: self.security_groups(&primary).await?.unwrap_or_default(),
            vpc: VpcId::new(self.required::<String>(&primary, VPC_ID).await?),
            vpc_v4_cidrs: self.list(&primary, VPC_CIDRS).await?.unwrap_or_default(),
            vpc_v6_cidrs: self.list(&primary, VPC_CIDRS_V6).await?.unwrap_or_default(),
        })
    }

    /// The present IPv4 CIDRs of the VPC.
    pub(crate) async fn vpc_v4_cidrs(&self) -> Result<Vec<Ipv4Net>, CloudFault> {
        let mac: Mac = self.required(&Place::Root, MAC).await?;
        Ok(self.list(&Place::Interface(mac), VPC_CIDRS).await?.unwrap_or_default())
    }

    async fn security_groups(
        &self,
        eni: &Place,
    ) -> Result<Option<Vec<SecurityGroupId>>, CloudFault> {
        let ids: Option<Vec<String>> = self.list(eni, SECURITY_GROUP_IDS).await?;
        Ok(ids.map(|ids| ids.into_iter().map(SecurityGroupId::new).collect()))
    }

    /// A subnet has at most one IPv6 CIDR, though the path has a list.
    async fn subnet_v6(&self, eni: &Place) -> Result<Option<Ipv6Net>, CloudFault> {
        let ranges: Option<Vec<Ipv6Net>> = self.list(eni, SUBNET_CIDRS_V6).await?;
        Ok(ranges.unwrap_or_default().into_iter().next())
    }

    /// All ENIs that the service lists. An ENI that changes during the read is omitted.
    pub(crate) async fn enis(&self, instance: &InstanceId) -> Result<Vec<SeenEni>, CloudFault> {
        let primary: Mac = self.required(&Place::Root, MAC).await?;
        let macs: Vec<Folder<Mac>> = self.list(&Place::Root, MACS).await?.unwrap_or_default();
        let mut enis = Vec::new();
        for Folder(mac) in macs {
            enis.extend(self.eni(instance, mac, mac == primary).await?);
        }
        Ok(enis)
    }

    async fn eni(
        &self,
        instance: &InstanceId,
        mac: Mac,
        is_primary: bool,
    ) -> Result<Option<SeenEni>, CloudFault> {
        let eni = Place::Interface(mac);
        let Some(id) = self.value::<String>(&eni, INTERFACE_ID).await? else { return Ok(None) };
        let Some(device) = self.value(&eni, DEVICE_NUMBER).await? else { return Ok(None) };
        let Some(subnet) = self.value::<String>(&eni, SUBNET_ID).await? else { return Ok(None) };
        let card = self.value(&eni, NETWORK_CARD).await?.unwrap_or(0);
        let subnet_cidr: Option<Ipv4Net> = self.value(&eni, SUBNET_CIDR).await?;
        let mut held =
            self.list::<Ipv4Addr>(&eni, LOCAL_IPV4S).await?.unwrap_or_default().into_iter();
        let primary_address = held.next();
        let mut blocks: Vec<IpNet> = held.map(|address| IpNet::from(IpAddr::V4(address))).collect();
        let v4: Option<Vec<Ipv4Net>> = self.list(&eni, IPV4_PREFIXES).await?;
        blocks.extend(v4.unwrap_or_default().into_iter().map(IpNet::V4));
        let v6: Option<Vec<Ipv6Net>> = self.list(&eni, IPV6_PREFIXES).await?;
        blocks.extend(v6.unwrap_or_default().into_iter().map(IpNet::V6));
        let ipv6_addresses: Option<Vec<Ipv6Addr>> = self.list(&eni, IPV6S).await?;
        let (subnet_cidr_v6, groups) =
            (self.subnet_v6(&eni).await?, self.security_groups(&eni).await?);
        // A detached ENI would look like one that lost its addresses.
        if self.value::<String>(&eni, INTERFACE_ID).await?.as_ref() != Some(&id) {
            return Ok(None);
        }
        Ok(Some(SeenEni {
            id: EniId::new(id),
            mac,
            subnet: SubnetId::new(subnet),
            subnet_cidr,
            subnet_cidr_v6,
            primary_address,
            ipv6_addresses: ipv6_addresses.unwrap_or_default(),
            blocks,
            attachment: Some(SeenAttachment {
                id: None,
                instance: instance.clone(),
                card: CardIndex(card),
                // The service has been observed to report another number for the primary ENI.
                device: DeviceIndex(if is_primary { 0 } else { device }),
                state: AttachmentState::Attached,
                delete_on_termination: None,
            }),
            kind: None,
            groups,
            tags: None,
        }))
    }

    /// A value that each node has.
    async fn required<T: FromStr>(&self, place: &Place, key: Key) -> Result<T, CloudFault> {
        let found = self.value(place, key).await?;
        found.ok_or_else(|| fault(key, 404, format!("{place}/{} is absent", key.path)))
    }

    async fn value<T: FromStr>(&self, place: &Place, key: Key) -> Result<Option<T>, CloudFault> {
        let Some(text) = self.get(place, key).await? else { return Ok(None) };
        parse(place, key, text.trim()).map(Some)
    }

    async fn list<T: FromStr>(
        &self,
        place: &Place,
        key: Key,
    ) -> Result<Option<Vec<T>>, CloudFault> {
        let Some(text) = self.get(place, key).await? else { return Ok(None) };
        text.split_whitespace()
            .map(|line| parse(place, key, line))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// The text of a path; `None` if the path does not exist.
    async fn get(&self, place: &Place, key: Key) -> Result<Option<String>, CloudFault> {
        let started = Instant::now();
        let answer = self.client.get(format!("{place}/{}", key.path)).await;
        let (status, result) = match answer {
            Ok(text) => (Some(200), Ok(Some(String::from(text)))),
            Err(ImdsError::ErrorResponse(refused)) => {
                let status = refused.response().status().as_u16();
                let message = || format!("{place}/{}: HTTP status {status}", key.path);
                let absent = status == 404;
                (Some(status), if absent { Ok(None) } else { Err(fault(key, status, message())) })
            }
            Err(error) => {
                let status = token_status(&error);
                let message = format!("{place}/{}: {}", key.path, chain_text(&error));
                (status, Err(fault(key, status.unwrap_or(0), message)))
            }
        };
        let error = result.as_ref().err().map(|fault| fault.code.as_str());
        let (service, duration) = (Service::Imds, started.elapsed());
        self.observer.called(&CallReport { service, action: key.api, duration, status, error });
        result
    }
}

/// The HTTP status of a refused session token.
fn token_status(error: &ImdsError) -> Option<u16> {
    let refused: &SdkError<TokenError, HttpResponse> = find(error)?;
    refused.raw_response().map(|answer| answer.status().as_u16())
}

/// The folder of a path.
#[derive(Clone, Copy, Debug)]
enum Place {
    Root,
    Interface(Mac),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str(BASE),
            Self::Interface(mac) => write!(f, "{BASE}/network/interfaces/macs/{mac}"),
        }
    }
}

/// A name with a trailing slash in a listing.
struct Folder<T>(T);

impl<T: FromStr> FromStr for Folder<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.trim_end_matches('/').parse().map(Self)
    }
}

fn parse<T: FromStr>(place: &Place, key: Key, text: &str) -> Result<T, CloudFault> {
    text.parse().map_err(|_| {
        let message = format!("cannot parse {place}/{}: {text:?}", key.path);
        CloudFault { code: key.api.to_owned(), message, remedy: Remedy::RetryAfter { wait: None } }
    })
}

/// Reads change nothing, so a retry is safe, unless the service is disabled.
fn fault(key: Key, status: u16, message: String) -> CloudFault {
    let remedy = match status {
        403 => Remedy::NotifyOperator,
        _ => Remedy::RetryAfter { wait: None },
    };
    CloudFault { code: key.api.to_owned(), message, remedy }
}

const fn key(path: &'static str, api: &'static str) -> Key {
    Key { path, api }
}

const AVAILABILITY_ZONE: Key = key("placement/availability-zone", "GetAZ");
const DEVICE_NUMBER: Key = key("device-number", "GetDeviceNumber");
const INSTANCE_ID: Key = key("instance-id", "GetInstanceID");
const INSTANCE_TYPE: Key = key("instance-type", "GetInstanceType");
const INTERFACE_ID: Key = key("interface-id", "GetInterfaceID");
const IPV4_PREFIXES: Key = key("ipv4-prefix", "GetIPv4Prefixes");
const IPV6S: Key = key("ipv6s", "GetIPv6s");
const IPV6_PREFIXES: Key = key("ipv6-prefix", "GetIPv6Prefixes");
const LOCAL_IPV4: Key = key("local-ipv4", "GetLocalIPv4");
const LOCAL_IPV6: Key = key("ipv6", "GetLocalIPv6");
const LOCAL_IPV4S: Key = key("local-ipv4s", "GetLocalIPv4s");
const MAC: Key = key("mac", "GetMAC");
const MACS: Key = key("network/interfaces/macs/", "GetMACs");
const NETWORK_CARD: Key = key("network-card", "GetNetworkCard");
const REGION: Key = key("placement/region", "GetRegion");
const SECURITY_GROUP_IDS: Key = key("security-group-ids", "GetSecurityGroupIDs");
const SUBNET_CIDR: Key = key("subnet-ipv4-cidr-block", "GetSubnetIPv4CIDRBlock");
const SUBNET_CIDRS_V6: Key = key("subnet-ipv6-cidr-blocks", "GetSubnetIPv6CIDRBlocks");
const SUBNET_ID: Key = key("subnet-id", "GetSubnetID");
const VPC_CIDRS: Key = key("vpc-ipv4-cidr-blocks", "GetVPCIPv4CIDRBlocks");
const VPC_CIDRS_V6: Key = key("vpc-ipv6-cidr-blocks", "GetVPCIPv6CIDRBlocks");
const VPC_ID: Key = key("vpc-id", "GetVPCID");
