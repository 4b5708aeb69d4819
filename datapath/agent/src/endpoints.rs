//! The controller's replicas: the ready addresses in the EndpointSlices of a Service.

use crate::{event::Event, ready_replicas::Ready};
use config_model::causes;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::{
    Api,
    runtime::watcher::{self, Event as Seen, watcher},
};
use runtime_apiserver::Backoff;
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

/// Access to the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubernetes {
    /// A kubeconfig; without one the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL or host, which overrides the environment and the kubeconfig.
    pub endpoint: Option<String>,
}

/// A watch of the Service's EndpointSlices.
pub(crate) struct Watch {
    pub(crate) kubernetes: Kubernetes,
    /// Namespace and name of the Service.
    pub(crate) service: (String, String),
    pub(crate) ready: Ready,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Watch {
    /// Watches forever. A failure is logged and reported, and the watch is repeated.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::between(PAUSE_FIRST, PAUSE_LAST);
        let mut logged = String::new();
        loop {
            let why = match self.slices().await {
                Ok(slices) => match self.watch(slices, &mut backoff).await {
                    Ok(()) => "the watch has ended".to_owned(),
                    Err(why) => why,
                },
                Err(why) => why,
            };
            let (namespace, name) = &self.service;
            let why = format!(
                "cannot watch the EndpointSlices of the controller's Service {namespace}/{name}: {why}"
            );
            if why != logged {
                tracing::warn!(why, "cannot find the controller's replicas; trying again");
                logged.clone_from(&why);
            }
            // The known replicas stay: their addresses change rarely.
            if self.ready.all().is_empty() && self.events.send(Event::NotListed(why)).await.is_err()
            {
                return;
            }
            sleep(backoff.pause()).await;
        }
    }

    async fn slices(&self) -> Result<Api<EndpointSlice>, String> {
        let Kubernetes { kubeconfig, endpoint } = &self.kubernetes;
        let client = runtime_apiserver::client(kubeconfig.as_deref(), endpoint.as_deref());
        let client = client.await.map_err(|error| causes(&error))?;
        Ok(Api::namespaced(client, &self.service.0))
    }

    async fn watch(&self, api: Api<EndpointSlice>, backoff: &mut Backoff) -> Result<(), String> {
        let label = format!("{SERVICE_LABEL}={}", self.service.1);
        let config = watcher::Config::default().any_semantic().labels(&label);
        let mut seen: BoxStream<'_, _> = watcher(api, config).boxed();
        let mut slices = BTreeMap::new();
        let mut coming = BTreeMap::new();
        // If the first list does not arrive, the API server is not reachable.
        let mut listed = false;
        loop {
            let next = match !listed {
                true => {
                    timeout(FIRST, seen.try_next()).await.map_err(|_| "no answer".to_owned())?
                }
                false => seen.try_next().await,
            };
            let Some(event) = next.map_err(|error| causes(&error))? else { return Ok(()) };
            match event {
                Seen::Init => {
                    coming.clear();
                    listed = false;
                }
                Seen::InitApply(slice) => drop(coming.insert(name(&slice), addresses(&slice))),
                Seen::InitDone => {
                    slices = std::mem::take(&mut coming);
                    listed = true;
                }
                Seen::Apply(slice) => drop(slices.insert(name(&slice), addresses(&slice))),
                Seen::Delete(slice) => drop(slices.remove(&name(&slice))),
            }
            // An incomplete list changes nothing: the earlier replicas count until it is complete.
            if listed {
                backoff.reset();
                self.ready.set(&slices.values().flatten().copied().collect());
            }
        }
    }
}

fn name(slice: &EndpointSlice) -> String {
    slice.metadata.name.clone().unwrap_or_default()
}

/// The ready addresses of a slice, with the port named `policy` or the only port.
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
        // An endpoint without the condition is ready, as the API defines.
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    });
    let texts = ready.flat_map(|endpoint| &endpoint.addresses);
    texts.filter_map(|text| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, port))).collect()
}

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const PORT: &str = "policy";
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
