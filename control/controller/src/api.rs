//! Lists and watches without kube's watcher.
//!
//! The watcher builds a tree of every object. It also hides the version of a list and the progress of bookmarks, and
//! replicas compare these.

use crate::{
    fault::{Fault, Sort},
    kinds::Resource,
    watch_lines::WatchLines,
};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use runtime_apiserver::Backoff;
use serde::Deserialize;
use std::{future::Future, time::Duration};
use tokio::time::timeout;

/// Timeout of a page.
const PAGE: Duration = Duration::from_secs(60);
/// Timeout of a short request, and of the start of a watch.
const SHORT: Duration = Duration::from_secs(15);
/// Minimum duration of a watch. A random half is added, so that watches do not end together.
const WATCH: Duration = Duration::from_secs(240);

const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Longest pause. It is short, as few replicas retry and every node waits for them.
const PAUSE_LAST: Duration = Duration::from_secs(10);

/// Returns the pauses between attempts.
pub(crate) fn backoff() -> Backoff {
    Backoff::between(PAUSE_FIRST, PAUSE_LAST)
}

/// The API of one kind.
#[derive(Clone)]
pub(crate) struct Source {
    client: Client,
    pub(crate) kind: Resource,
    page: u32,
    /// Maximum time without a line of the watch, bookmarks included. A silent watch is restarted.
    pub(crate) silence: Duration,
}

/// The resource version of a list.
#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Definition of a kind whose objects are not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defined {
    /// There is no definition.
    Not,
    /// The kind is defined in these versions only, and the controller reads another one.
    Otherwise(Vec<String>),
    /// The kind is defined, and the API server will serve it soon.
    Yes,
}

impl Source {
    pub(crate) fn new(client: Client, kind: Resource, page: u32, silence: Duration) -> Self {
        Self { client, kind, page, silence }
    }

    /// Returns the resource as access rules name it.
    pub(crate) fn resource(&self) -> String {
        match self.kind.group() {
            "" => self.kind.plural().to_owned(),
            group => format!("{}.{group}", self.kind.plural()),
        }
    }

    /// Reads a page of the list. `next` is empty for the first page.
    pub(crate) async fn page(&self, next: &str) -> Result<String, Fault> {
        let limit = self.page.to_string();
        let mut pairs = vec![("limit", limit.as_str())];
        if !next.is_empty() {
            pairs.push(("continue", next));
        }
        let request = self.request("list", &pairs)?;
        self.in_time("list", PAGE, self.client.request_text(request)).await
    }

    /// Returns the resource version of a list made now. It is at least that of every delivered event, unless the
    /// cluster was restored from a backup.
    pub(crate) async fn newest(&self) -> Result<String, Fault> {
        let request = self.request("list", &[("limit", "1")])?;
        let text = self.in_time("list", SHORT, self.client.request_text(request)).await?;
        let list: Versioned = serde_json::from_str(&text)
            .map_err(|error| Fault::odd("list", &self.resource(), &error.to_string()))?;
        Ok(list.metadata.resource_version)
    }

    /// Watches from a resource version.
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
        let body = self.in_time("watch", SHORT, self.client.request_stream(request)).await?;
        Ok(WatchLines::new(body))
    }

    /// Returns the definition of the kind. It is a second witness, as a starting API server may find none of its kinds.
    pub(crate) async fn defined(&self) -> Result<Defined, Fault> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let name = self.kind.definition();
        let found = timeout(SHORT, api.get_opt(&name)).await;
        let found = found.map_err(|_| Fault::late("get", DEFINITIONS))?;
        let found = found.map_err(|error| Fault::of(&error, "get", DEFINITIONS))?;
        let Some(definition) = found else { return Ok(Defined::Not) };
        let version = self.kind.api_version().rsplit('/').next().unwrap_or_default();
        let served = definition.spec.versions.iter().filter(|version| version.served);
        let served: Vec<String> = served.map(|version| version.name.clone()).collect();
        if served.iter().any(|served| served == version) {
            Ok(Defined::Yes)
        } else {
            Ok(Defined::Otherwise(served))
        }
    }

    fn request(&self, verb: &str, pairs: &[(&str, &str)]) -> Result<Request<Vec<u8>>, Fault> {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        let request = Request::get(format!("{}?{query}", self.kind.path())).body(Vec::new());
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
    /// True if the API server does not serve the kind.
    pub(crate) fn is_no_kind(&self) -> bool {
        self.sort == Sort::NotFound
    }
}

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
