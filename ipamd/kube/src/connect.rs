//! The way to the API server.

use crate::{Options, fault};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::time::Duration;

/// Makes a client. That reads files but reaches nobody, so it succeeds with an API server that is
/// down.
///
/// # Errors
/// What is missing, in words.
pub(crate) async fn client(options: &Options) -> Result<Client, String> {
    let mut config = match &options.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|error| fault::chain(&error))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .map_err(|error| fault::chain(&error))?
        }
        // The service account's files do without the environment when the endpoint is given.
        None if options.endpoint.is_some() => {
            Config::incluster_dns().map_err(|error| fault::chain(&error))?
        }
        None => Config::incluster().map_err(|error| fault::chain(&error))?,
    };
    if let Some(endpoint) = &options.endpoint {
        config.cluster_url = url(endpoint)?;
    }
    config.connect_timeout = Some(CONNECT);
    // Each write has its own bound and its own way to try again.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| fault::chain(&error))
}

/// `CLUSTER_ENDPOINT` is a URL or, as client-go has it, a bare host.
fn url(endpoint: &str) -> Result<http::Uri, String> {
    let endpoint = endpoint.trim_end_matches('/');
    let text =
        if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") };
    text.parse().map_err(|error| format!("the endpoint {endpoint:?} is no URL: {error}"))
}

const CONNECT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_or_a_host() {
        for (endpoint, uri) in [
            ("https://abc.eks.amazonaws.com", "https://abc.eks.amazonaws.com/"),
            ("https://abc.eks.amazonaws.com/", "https://abc.eks.amazonaws.com/"),
            ("abc.eks.amazonaws.com:443", "https://abc.eks.amazonaws.com:443/"),
            ("http://[fd00::1]:8080", "http://[fd00::1]:8080/"),
        ] {
            assert_eq!(url(endpoint).map(|uri| uri.to_string()), Ok(uri.to_owned()));
        }
        assert!(url("https://a b").is_err());
    }
}
