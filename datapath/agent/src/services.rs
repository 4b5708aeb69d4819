//! The conditions under which this agent may serve the cluster's Services.

use axum::http::Uri;
use config_settings::{PolicyBackend, Settings};

/// Returns the reason why the settings that serve Services cannot be used.
///
/// An agent that serves the API server's Service must not depend on it: without the agent there would be no path to the
/// API server. `service` is the address of that Service, as the kubelet sets it in each container.
#[must_use]
pub fn refusal(
    settings: &Settings,
    backend: PolicyBackend,
    service: Option<&str>,
) -> Option<String> {
    if !settings.agent.connections.services {
        return None;
    }
    if backend != PolicyBackend::Ebpf {
        let why = "cannot serve Services: FERRULE_SERVICES=ebpf needs FERRULE_AGENT_BACKEND=ebpf";
        return Some(why.into());
    }
    let Some(endpoint) = &settings.cluster_endpoint else {
        return Some(
            "cannot serve Services: CLUSTER_ENDPOINT is not set, and the nodes themselves serve the Service of the API \
             server; set CLUSTER_ENDPOINT to the API server's own URL"
                .into(),
        );
    };
    let Some(host) = host(endpoint) else {
        return Some(format!(
            "cannot serve Services: CLUSTER_ENDPOINT={endpoint} is not a URL; set it to the API server's own URL, such as \
             https://10.0.0.1:443"
        ));
    };
    let by_name = host.trim_end_matches('.').split('.').take(2).eq(["kubernetes", "default"]);
    if by_name || host == "kubernetes" || service == Some(host.as_str()) {
        return Some(format!(
            "cannot serve Services: CLUSTER_ENDPOINT={endpoint} is the Service of the API server, which the nodes \
             themselves serve; set it to the API server's own URL"
        ));
    }
    None
}

/// The host of a URL, or of a bare host with or without a port.
fn host(endpoint: &str) -> Option<String> {
    let is_url = endpoint.contains("://");
    let text = if is_url { endpoint.to_owned() } else { format!("https://{endpoint}") };
    let uri: Uri = text.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn refused(pairs: &[(&str, &str)], backend: PolicyBackend) -> Option<String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (settings, _) = Settings::resolve(pairs).unwrap();
        refusal(&settings, backend, Some("172.20.0.1"))
    }

    #[test]
    fn an_agent_serves_services_only_if_it_reaches_the_api_server_without_them() {
        let on = ("FERRULE_SERVICES", "ebpf");
        assert_eq!(refused(&[], PolicyBackend::None), None);
        let without_backend = refused(&[on], PolicyBackend::None).unwrap();
        assert!(without_backend.contains("FERRULE_AGENT_BACKEND"), "{without_backend}");
        let without_endpoint = refused(&[on], PolicyBackend::Ebpf).unwrap();
        assert!(without_endpoint.contains("CLUSTER_ENDPOINT is not set"), "{without_endpoint}");
        for (endpoint, why) in [
            ("https://172.20.0.1", Some("is the Service of the API server")),
            ("172.20.0.1:443", Some("is the Service of the API server")),
            ("https://kubernetes.default.svc", Some("is the Service of the API server")),
            ("https://Kubernetes.default.svc.cluster.local.:443/", Some("is the Service")),
            ("https://a b", Some("is not a URL")),
            ("https://10.0.0.1:443", None),
            ("https://kubernetes.example.com", None),
            ("https://[fd00::1]:443", None),
            ("ABC.gr7.us-west-2.eks.amazonaws.com", None),
        ] {
            let given = [on, ("CLUSTER_ENDPOINT", endpoint)];
            let refused = refused(&given, PolicyBackend::Ebpf);
            let agrees = match (&refused, why) {
                (Some(text), Some(why)) => text.contains(why),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            assert!(agrees, "{endpoint}: {refused:?}");
        }
    }
}
