//! [`Cloud`] implemented with aws-sdk-ec2 and the metadata service.

mod blocks;
mod calls;
mod create;
mod eni;
mod failure;
mod leftover;
mod limits;
mod pages;

use crate::{
    CallReport, Cloud, Node, Observer, Service, TypeLimits,
    imds::{Endpoint, Imds},
};
use async_trait::async_trait;
use aws_config::{
    AppName, BehaviorVersion, ConfigLoader, default_provider::credentials::DefaultCredentialsChain,
    imds::region::ImdsRegionProvider, provider_config::ProviderConfig, retry::RetryConfig,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_sdk_ec2::{Client, error::SdkError};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::{http::SharedHttpClient, orchestrator::HttpResponse};
use config_model::InstanceId;
use create::Asked;
use failure::{Ec2Error, Failure};
use ipamd_core::{CloudAnswer, CloudCall, CloudFault, SeenEni, Witness};
use ipnet::Ipv4Net;
use std::{
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

/// Part of the user agent, besides the SDK's name and version.
const APP_NAME: &str = "ferrule";
/// A slower connection attempt never succeeds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The connection to the cloud. Region and credentials come from the SDK's default chain: environment, profile,
/// web identity, pod identity, and last the metadata service.
#[derive(Clone, Debug)]
pub struct Options {
    /// The deadline of one call, until the end of its answer (`HTTP_TIMEOUT`).
    pub call_timeout: Duration,
    /// The EC2 endpoint. The default is the SDK's `AWS_ENDPOINT_URL_EC2`, then the region's endpoint.
    pub ec2_endpoint: Option<String>,
    /// The metadata service. The default is the SDK's `AWS_EC2_METADATA_SERVICE_ENDPOINT`, then 169.254.169.254.
    pub imds_endpoint: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { call_timeout: Duration::from_secs(10), ec2_endpoint: None, imds_endpoint: None }
    }
}

/// The reason why the clients cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither the environment nor a profile nor the metadata service has a region.
    #[error("no AWS region: set AWS_REGION, or let the node reach the instance metadata service")]
    NoRegion,
    /// An endpoint is not a URL.
    #[error("metadata endpoint {endpoint:?} is not a URL")]
    Endpoint {
        endpoint: String,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The clients of EC2 and the metadata service.
pub struct Ec2 {
    client: Client,
    imds: Imds,
    observer: Arc<dyn Observer>,
    asked: Asked,
}

impl Ec2 {
    /// Creates the clients. Reads only the region.
    ///
    /// # Errors
    /// If there is no region, or an endpoint is not a URL.
    pub async fn connect(options: Options, observer: impl Observer) -> Result<Self, ConnectError> {
        let observer: Arc<dyn Observer> = Arc::new(observer);
        let http = http_client();
        let endpoint = match &options.imds_endpoint {
            Some(url) => Endpoint::At(url),
            None => Endpoint::ByEnvironment,
        };
        let imds = Imds::new(http.clone(), endpoint, Arc::clone(&observer)).map_err(|cause| {
            let endpoint = options.imds_endpoint.clone().unwrap_or_default();
            ConnectError::Endpoint { endpoint, cause }
        })?;
        let config = configuration(&options, http, &imds).await.load().await;
        if config.region().is_none() {
            return Err(ConnectError::NoRegion);
        }
        Ok(Self { client: Client::new(&config), imds, observer, asked: Asked::default() })
    }

    /// Awaits one request, reports it to the observer, and classifies a failure.
    async fn ask<T, E: Ec2Error>(
        &self,
        action: &'static str,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send,
    ) -> Result<T, CloudFault> {
        let started = Instant::now();
        let result = request.await.map_err(|error| Failure::of(action, &error));
        let (status, error) = match &result {
            Ok(_) => (Some(200), None),
            Err(failure) => (failure.status, Some(failure.fault.code.as_str())),
        };
        let duration = started.elapsed();
        let report = CallReport { service: Service::Ec2, action, duration, status, error };
        self.observer.called(&report);
        result.map_err(|failure| failure.fault)
    }
}

#[async_trait]
impl Cloud for Ec2 {
    async fn execute(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault> {
        self.carry_out(call).await
    }

    async fn look(
        &self,
        witness: Witness,
        instance: &InstanceId,
    ) -> Result<Vec<SeenEni>, CloudFault> {
        match witness {
            Witness::Imds => self.imds.enis(instance).await,
            Witness::Ec2 => self.attached_enis(instance).await,
        }
    }

    async fn node(&self) -> Result<Node, CloudFault> {
        self.imds.node().await
    }

    async fn vpc_v4_cidrs(&self) -> Result<Vec<Ipv4Net>, CloudFault> {
        self.imds.vpc_v4_cidrs().await
    }

    async fn type_limits(&self, instance_type: &str) -> Result<TypeLimits, CloudFault> {
        self.limits(instance_type).await
    }
}

impl fmt::Debug for Ec2 {
    /// Omits the clients, because they hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ec2").finish_non_exhaustive()
    }
}

/// HTTP and HTTPS with rustls and ring: the SDK's default is a C library that takes a minute to compile.
fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https()
}

async fn configuration(options: &Options, http: SharedHttpClient, imds: &Imds) -> ConfigLoader {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(options.call_timeout)
        .operation_attempt_timeout(options.call_timeout)
        .operation_timeout(options.call_timeout)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .app_name(AppName::new(APP_NAME).expect("the name holds letters only"))
        .http_client(http.clone())
        .retry_config(RetryConfig::disabled())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(timeouts);
    if options.imds_endpoint.is_some() {
        let client = imds.client();
        let provider = ProviderConfig::without_region().with_http_client(http);
        let region = ImdsRegionProvider::builder().imds_client(client.clone()).build();
        let chain = DefaultCredentialsChain::builder()
            .configure(provider)
            .imds_client(client)
            .region(region.region().await);
        loader = loader.region(region).credentials_provider(chain.build().await);
    }
    match &options.ec2_endpoint {
        Some(url) => loader.endpoint_url(url),
        None => loader,
    }
}
