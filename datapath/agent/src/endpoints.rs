//! Where the controller's replicas are: the ready addresses of a Service's EndpointSlices.

use crate::{clock::draw, event::Event, follow::Ready};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::watcher::{self, Event as Seen, watcher},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubernetes {
    /// A kubeconfig; without one the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL or host in place of the one that the environment or the kubeconfig says.
    pub endpoint: Option<String>,
}

/// What is watched, and who is told.
pub(crate) struct Watch {
    pub(crate) kubernetes: Kubernetes,
    /// Namespace and name of the Service.
    pub(crate) service: (String, String),
    pub(crate) ready: Ready,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Watch {
    /// Watches for ever; what does not work is told and tried again.
    pub(crate) async fn run(self) {
        let mut pause = PAUSE_FIRST;
        let mut told = String::new();
        loop {
            let why = match self.slices().await {
                Ok(slices) => match self.watch(slices, &mut pause).await {
                    Ok(()) => "the watch has ended".to_owned(),
                    Err(why) => why,
                },
                Err(why) => why,
            };
            let (namespace, name) = &self.service;
            let why = format!(
                "cannot watch the EndpointSlices of the controller's Service {namespace}/{name}: {why}"
            );
            if why != told {
                tracing::warn!("{why}; trying again");
                told.clone_from(&why);
            }
            // Replicas that are known stay so: where they are changes rarely.
            if self.ready.all().is_empty() && self.events.send(Event::Alone(why)).await.is_err() {
                return;
            }
            let spread = u32::try_from(draw() % 512).unwrap_or(0);
            sleep(pause / 2 + pause * spread / 1024).await;
            pause = (pause * 2).min(PAUSE_LAST);
        }
    }

    async fn slices(&self) -> Result<Api<EndpointSlice>, String> {
        let Kubernetes { kubeconfig, endpoint } = &self.kubernetes;
        let mut config = match kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path).map_err(|error| chain(&error))?;
                let options = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(read, &options)
                    .await
                    .map_err(|error| chain(&error))?
            }
            // The service account's files do without the environment when the endpoint is given.
            None if endpoint.is_some() => Config::incluster_dns().map_err(|error| chain(&error))?,
            None => Config::incluster().map_err(|error| chain(&error))?,
        };
        if let Some(endpoint) = endpoint {
            config.cluster_url = url(endpoint)?;
        }
        config.connect_timeout = Some(CONNECT);
        config.default_retry = false;
        let client = Client::try_from(config).map_err(|error| chain(&error))?;
        Ok(Api::namespaced(client, &self.service.0))
    }

    async fn watch(&self, api: Api<EndpointSlice>, pause: &mut Duration) -> Result<(), String> {
        let label = format!("{SERVICE_LABEL}={}", self.service.1);
        let config = watcher::Config::default().any_semantic().labels(&label);
        let mut seen: BoxStream<'_, _> = watcher(api, config).boxed();
        let mut slices = BTreeMap::new();
        let mut coming = BTreeMap::new();
        // A first list that does not come is an API server that is not there.
        let mut first = true;
        loop {
            let next = match first {
                true => {
                    timeout(FIRST, seen.try_next()).await.map_err(|_| "no answer".to_owned())?
                }
                false => seen.try_next().await,
            };
            let Some(event) = next.map_err(|error| chain(&error))? else { return Ok(()) };
            first = false;
            match event {
                Seen::Init => coming.clear(),
                Seen::InitApply(slice) => drop(coming.insert(name(&slice), addresses(&slice))),
                Seen::InitDone => slices = std::mem::take(&mut coming),
                Seen::Apply(slice) => drop(slices.insert(name(&slice), addresses(&slice))),
                Seen::Delete(slice) => drop(slices.remove(&name(&slice))),
            }
            if coming.is_empty() {
                *pause = PAUSE_FIRST;
                self.ready.set(&slices.values().flatten().copied().collect());
            }
        }
    }
}

fn name(slice: &EndpointSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// The ready ones of a slice. A port that is named `policy` is meant, or the only one.
fn addresses(slice: &EndpointSlice) -> BTreeSet<SocketAddr> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let named = ports.iter().find(|port| port.name.as_deref() == Some(PORT));
    let port: Option<&EndpointPort> = named.or(match ports {
        [only] => Some(only),
        _ => None,
    });
    let port = port.and_then(|port| u16::try_from(port.port?).ok());
    let Some(port) = port else { return BTreeSet::new() };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        // Not told is ready, as the API says.
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    });
    let texts = ready.flat_map(|endpoint| &endpoint.addresses);
    texts.filter_map(|text| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, port))).collect()
}

/// The endpoint is a URL or, as client-go has it, a bare host.
fn url(endpoint: &str) -> Result<http::Uri, String> {
    let endpoint = endpoint.trim_end_matches('/');
    let is_url = endpoint.contains("://");
    let text = if is_url { endpoint.to_owned() } else { format!("https://{endpoint}") };
    text.parse().map_err(|error| format!("the endpoint {endpoint:?} is no URL: {error}"))
}

/// The error and its sources, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const PORT: &str = "policy";
const CONNECT: Duration = Duration::from_secs(5);
const FIRST: Duration = Duration::from_secs(30);
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LAST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn slice(ports: &str) -> EndpointSlice {
        let text = format!(
            r#"{{"addressType":"IPv4","metadata":{{"name":"s"}},"ports":{ports},"endpoints":[
            {{"addresses":["10.0.0.1"],"conditions":{{"ready":true}}}},
            {{"addresses":["10.0.0.2"],"conditions":{{"ready":false,"serving":true}}}},
            {{"addresses":["10.0.0.3"]}},{{"addresses":["a.name"]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn replicas_are_ready_addresses_at_the_port_of_policy() {
        let at = |port: u16| {
            let of = |last: u8| SocketAddr::from(([10, 0, 0, last], port));
            BTreeSet::from([of(1), of(3)])
        };
        let two = r#"[{"name":"metrics","port":1},{"name":"policy","port":2}]"#;
        assert_eq!(addresses(&slice(two)), at(2));
        assert_eq!(addresses(&slice(r#"[{"name":"any","port":3}]"#)), at(3));
        assert!(addresses(&slice(r#"[{"name":"a","port":1},{"name":"b","port":2}]"#)).is_empty());
        assert!(addresses(&slice("[]")).is_empty());
    }
}
