use config_model::causes;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use thiserror::Error;

/// The deadline of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);

/// The reason why there is no client.
#[derive(Debug, Error)]
pub enum Unusable {
    #[error("cannot use kubeconfig {}: {cause}", path.display())]
    Kubeconfig { path: PathBuf, cause: String },
    /// The process does not run in a pod with a service account token.
    #[error("cannot find a service account token or a kubeconfig: {0}")]
    NoPod(String),
    #[error("cannot use endpoint {endpoint:?}: it is not a URL: {cause}")]
    Endpoint { endpoint: String, cause: String },
    /// The configuration does not yield a client.
    #[error("cannot create a client of the API server: {0}")]
    Client(String),
}

/// Creates a client from a kubeconfig, or from the pod's service account. `endpoint` (a URL or, as in client-go,
/// a bare host) replaces the API server's address.
///
/// It reads files only, so it succeeds with an API server that is down.
///
/// # Errors
/// If a file or a value is missing or invalid.
pub async fn client(kubeconfig: Option<&Path>, endpoint: Option<&str>) -> Result<Client, Unusable> {
    let mut config = match kubeconfig {
        Some(path) => by_file(path).await?,
        // With an endpoint, the service account's files suffice without the environment.
        None if endpoint.is_some() => in_pod(Config::incluster_dns())?,
        None => in_pod(Config::incluster())?,
    };
    if let Some(endpoint) = endpoint {
        config.cluster_url = url(endpoint)?;
    }
    config.connect_timeout = Some(CONNECT);
    // Each request has its own deadline and its own retries.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Unusable::Client(causes(&error)))
}

async fn by_file(path: &Path) -> Result<Config, Unusable> {
    let unusable = |cause| Unusable::Kubeconfig { path: path.to_owned(), cause };
    let read = Kubeconfig::read_from(path).map_err(|error| unusable(causes(&error)))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    config.map_err(|error| unusable(causes(&error)))
}

fn in_pod(config: Result<Config, kube::config::InClusterError>) -> Result<Config, Unusable> {
    config.map_err(|error| Unusable::NoPod(causes(&error)))
}

fn url(endpoint: &str) -> Result<http::Uri, Unusable> {
    let endpoint = endpoint.trim_end_matches('/');
    let is_url = endpoint.contains("://");
    let text = if is_url { endpoint.to_owned() } else { format!("https://{endpoint}") };
    text.parse().map_err(|error: http::uri::InvalidUri| Unusable::Endpoint {
        endpoint: endpoint.to_owned(),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn an_endpoint_is_a_url_or_a_host() {
        for (endpoint, uri) in [
            ("https://abc.eks.amazonaws.com", "https://abc.eks.amazonaws.com/"),
            ("https://abc.eks.amazonaws.com/", "https://abc.eks.amazonaws.com/"),
            ("abc.eks.amazonaws.com:443", "https://abc.eks.amazonaws.com:443/"),
            ("http://[fd00::1]:8080", "http://[fd00::1]:8080/"),
        ] {
            assert_eq!(url(endpoint).unwrap().to_string(), uri);
        }
        assert!(url("https://a b").unwrap_err().to_string().contains("https://a b"));
    }
}
