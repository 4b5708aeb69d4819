//! All objects of a kind, page by page.

use crate::{Cluster, KubeError, Resource};
use policy_objects::{
    Object, Parsed, ReadError,
    page::{self, Page},
};
use serde::Deserialize;

/// Objects per page.
const PAGE: usize = 500;
/// Number of restarts of a list whose continuation token expired.
const AGAIN: usize = 3;

/// An object, or why it is none.
#[derive(Debug)]
pub struct Item {
    pub read: Result<Parsed, ReadError>,
    /// Resource version of the list, which orders versions of one kind; 0 if the server sent none.
    pub version: u64,
}

#[derive(Debug, Default)]
pub struct Listed {
    pub items: Vec<Item>,
}

impl Cluster {
    /// Reads all objects of a kind. Reports the count so far after each page.
    ///
    /// # Errors
    /// If the server does not list them, or the answer is not a list.
    pub async fn list(
        &self,
        resource: &Resource,
        mut progress: impl FnMut(usize),
    ) -> Result<Listed, KubeError> {
        let mut again = 0;
        loop {
            match self.attempt(resource, &mut progress).await {
                Err(kube::Error::Api(status)) if status.code == 410 && again < AGAIN => again += 1,
                Err(error) => return Err(KubeError::of(&error, "list", &resource.text())),
                Ok(done) => return done,
            }
        }
    }

    async fn attempt(
        &self,
        resource: &Resource,
        progress: &mut impl FnMut(usize),
    ) -> Result<Result<Listed, KubeError>, kube::Error> {
        let mut listed = Listed::default();
        let mut next = String::new();
        loop {
            let params = form(&next);
            let request = http::Request::get(format!("{}?{params}", resource.path()));
            let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
            let text = self.client.request_text(request).await?;
            match take(resource, text.as_bytes(), &mut listed) {
                Ok(page) => next = page.next,
                Err(cause) => {
                    let what = resource.text();
                    return Ok(Err(KubeError::Failed { verb: "read", what, cause }));
                }
            }
            progress(listed.items.len());
            if next.is_empty() {
                return Ok(Ok(listed));
            }
        }
    }
}

fn form(next: &str) -> String {
    let mut params = form_urlencoded::Serializer::new(String::new());
    params.append_pair("limit", &PAGE.to_string());
    if !next.is_empty() {
        params.append_pair("continue", next);
    }
    params.finish()
}

/// Takes a page in.
fn take(resource: &Resource, bytes: &[u8], listed: &mut Listed) -> Result<Page, String> {
    let versions: Versions =
        serde_json::from_slice(bytes).map_err(|error| config_model::causes(&error))?;
    let mut versions = versions.items.unwrap_or_default().into_iter();
    let mut each = |read| {
        let version = versions.next().and_then(|item| item.metadata.resource_version.parse().ok());
        listed.items.push(Item { read, version: version.unwrap_or_default() });
    };
    if let Some(kind) = resource.kind {
        return page::objects(kind, bytes, each).map_err(|error| config_model::causes(&error));
    }
    Object::read_all(bytes).into_iter().for_each(&mut each);
    let list: List = serde_json::from_slice(bytes).map_err(|error| config_model::causes(&error))?;
    Ok(Page { next: list.metadata.next, ..Page::default() })
}

#[derive(Default, Deserialize)]
struct Versions {
    items: Option<Vec<Version>>,
}

#[derive(Default, Deserialize)]
struct Version {
    #[serde(default)]
    metadata: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(default, rename = "continue")]
    next: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy_objects::Kind;

    #[test]
    fn each_item_has_its_own_version_also_behind_one_that_is_odd() {
        let resource = Resource {
            kind: Some(Kind::Namespace),
            api_version: "v1".into(),
            plural: "namespaces".into(),
            name: "Namespace".into(),
        };
        let page = r#"{"kind":"NamespaceList","apiVersion":"v1","metadata":{"continue":"c+/"},"items":[
            {"metadata":{"name":"a","resourceVersion":"7"}},
            {"metadata":{"resourceVersion":"8"}},
            {"metadata":{"name":"b","resourceVersion":"9"}}]}"#;
        let mut listed = Listed::default();
        let read = take(&resource, page.as_bytes(), &mut listed).map(|page| page.next);
        assert_eq!(read, Ok("c+/".to_owned()));
        let seen: Vec<_> =
            listed.items.iter().map(|item| (item.read.is_ok(), item.version)).collect();
        assert_eq!(seen, [(true, 7), (false, 8), (true, 9)]);
        assert_eq!(form("c+/"), "limit=500&continue=c%2B%2F");
    }

    #[test]
    fn a_refusal_is_no_list() {
        let resource = Resource {
            kind: Some(Kind::Pod),
            api_version: "v1".into(),
            plural: "pods".into(),
            name: "Pod".into(),
        };
        let page = br#"{"kind":"Status","apiVersion":"v1","status":"Failure"}"#;
        assert!(take(&resource, page, &mut Listed::default()).is_err());
    }
}
