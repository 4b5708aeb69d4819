//! Lists and watches as the API server sends them.
//!
//! Beneath kube's watcher: that one makes a tree of every object and keeps to itself which version a list is
//! of and how far bookmarks have come, which is what replicas compare themselves by.

use crate::{
    fault::{Fault, Sort},
    kinds,
    watch_lines::WatchLines,
};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use policy_objects::Kind;
use runtime_apiserver::Backoff;
use serde::Deserialize;
use std::{future::Future, time::Duration};
use tokio::time::timeout;

/// How long a page may take.
const PAGE: Duration = Duration::from_secs(60);
/// How long a short request, or the beginning of a watch, may take.
const SHORT: Duration = Duration::from_secs(15);
/// How long a watch lasts; up to a half more, so that not all end at once.
const WATCH: Duration = Duration::from_secs(240);

const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Short: an API server that comes back is asked by a few replicas, and every node waits for what they read.
const PAUSE_LAST: Duration = Duration::from_secs(10);

/// The pauses between attempts.
pub(crate) fn backoff() -> Backoff {
    Backoff::between(PAUSE_FIRST, PAUSE_LAST)
}

/// What to ask for.
#[derive(Clone)]
pub(crate) struct Source {
    client: Client,
    pub(crate) kind: Kind,
    page: u32,
    /// A watch that says nothing for so long is begun again.
    pub(crate) silence: Duration,
}

/// Of a list, which version it is of.
#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// What there is of a kind whose objects are not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defined {
    /// Nothing defines it.
    Not,
    /// It is defined, but not in the version that we read.
    Otherwise(Vec<String>),
    /// It is, and will be found soon.
    Yes,
}

impl Source {
    pub(crate) fn new(client: Client, kind: Kind, page: u32, silence: Duration) -> Self {
        Self { client, kind, page, silence }
    }

    /// The kind, as people and access rules name it.
    pub(crate) fn resource(&self) -> String {
        match kinds::group(self.kind) {
            "" => kinds::plural(self.kind).to_owned(),
            group => format!("{}.{group}", kinds::plural(self.kind)),
        }
    }

    /// A page of the list; the first has no `next`.
    pub(crate) async fn page(&self, next: &str) -> Result<String, Fault> {
        let limit = self.page.to_string();
        let mut pairs = vec![("limit", limit.as_str())];
        if !next.is_empty() {
            pairs.push(("continue", next));
        }
        let request = self.request("list", &pairs)?;
        self.in_time("list", PAGE, self.client.request_text(request)).await
    }

    /// The version that a list is of now: not less than all that was ever told, unless the cluster was set back.
    pub(crate) async fn newest(&self) -> Result<String, Fault> {
        let request = self.request("list", &[("limit", "1")])?;
        let text = self.in_time("list", SHORT, self.client.request_text(request)).await?;
        let list: Versioned = serde_json::from_str(&text)
            .map_err(|error| Fault::odd("list", &self.resource(), &error.to_string()))?;
        Ok(list.metadata.resource_version)
    }

    /// What happens from this version on.
    pub(crate) async fn watch(&self, from: &str) -> Result<WatchLines, Fault> {
        let lasts = WATCH + runtime_apiserver::up_to(WATCH / 2);
        let lasts = lasts.as_secs().to_string();
        let pairs = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", lasts.as_str()),
            ("resourceVersion", from),
        ];
        let request = self.request("watch", &pairs)?;
        let begun = self.in_time("watch", SHORT, self.client.request_stream(request)).await?;
        Ok(WatchLines::new(begun))
    }

    /// Whether the kind is defined: a second witness, as an API server that is just starting may find none of
    /// its kinds.
    pub(crate) async fn defined(&self) -> Result<Defined, Fault> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = kinds::definition(self.kind);
        let found = timeout(SHORT, api.get_opt(&name)).await;
        let found = found.map_err(|_| Fault::late("get", DEFINITIONS))?;
        let found = found.map_err(|error| Fault::of(&error, "get", DEFINITIONS))?;
        let Some(definition) = found else { return Ok(Defined::Not) };
        let wanted = self.kind.api_version().rsplit('/').next().unwrap_or_default();
        let served = definition.spec.versions.iter().filter(|version| version.served);
        let served: Vec<String> = served.map(|version| version.name.clone()).collect();
        if served.iter().any(|version| version == wanted) {
            Ok(Defined::Yes)
        } else {
            Ok(Defined::Otherwise(served))
        }
    }

    fn request(&self, verb: &str, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, Fault> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let request = Request::get(format!("{}?{query}", kinds::path(self.kind))).body(Vec::new());
        request.map_err(|error| Fault::odd(verb, &self.resource(), &error.to_string()))
    }

    async fn in_time<T>(
        &self,
        verb: &str,
        most: Duration,
        asked: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Fault> {
        match timeout(most, asked).await {
            Ok(answer) => answer.map_err(|error| Fault::of(&error, verb, &self.resource())),
            Err(_) => Err(Fault::late(verb, &self.resource())),
        }
    }
}

impl Fault {
    /// There is no such kind now.
    pub(crate) fn is_no_kind(&self) -> bool {
        self.sort == Sort::NotFound
    }
}

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
