//! Services and EndpointSlices from the API server. The whole JSON of an object is dropped with its page.

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use service_core::{NodeView, World};
use service_objects::{ObjectName, Problem, ReadError, SERVICE_LABEL, Service, Slice};
use std::{collections::BTreeMap, sync::Arc};
use view_cluster::ServiceData;

pub(super) struct ServiceObject(pub(super) Result<Service, Unusable>);

pub(super) struct SliceObject(Result<Slice, Unusable>);

/// An object that a node cannot use.
#[derive(Debug)]
pub(super) struct Unusable {
    name: ObjectName,
    /// The Service of a slice; `None` if the slice has none.
    service: Option<ObjectName>,
    pub(super) cause: String,
}

impl Unusable {
    fn of(object: &Value, error: &ReadError) -> Self {
        let metadata = &object["metadata"];
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
        let service = metadata["labels"][SERVICE_LABEL].as_str().filter(|name| !name.is_empty());
        let service = service.map(|service| ObjectName::new(namespace.clone(), service));
        Self { name: ObjectName::new(namespace, name), service, cause: error.to_string() }
    }
}

impl<'de> Deserialize<'de> for ServiceObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(from)?;
        Ok(Self(Service::read(&object).map_err(|error| Unusable::of(&object, &error))))
    }
}

impl<'de> Deserialize<'de> for SliceObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(from)?;
        Ok(Self(Slice::read(&object).map_err(|error| Unusable::of(&object, &error))))
    }
}

#[derive(Default)]
pub(super) struct Objects {
    services: BTreeMap<ObjectName, Arc<Service>>,
    slices: BTreeMap<ObjectName, Arc<Slice>>,
    unusable: BTreeMap<ObjectName, Vec<Problem>>,
    unread: Vec<String>,
}

impl Objects {
    /// A later object replaces an earlier one of the name.
    pub(super) fn add_services(&mut self, services: Vec<ServiceObject>) {
        for ServiceObject(service) in services {
            match service {
                Ok(service) => drop(self.services.insert(service.name.clone(), Arc::new(service))),
                Err(of) => self.not_read(&format!("Service {}: {}", of.name, of.cause)),
            }
        }
    }

    pub(super) fn add_slices(&mut self, slices: Vec<SliceObject>) {
        for SliceObject(slice) in slices {
            match slice {
                Ok(slice) => drop(self.slices.insert(slice.name.clone(), Arc::new(slice))),
                Err(Unusable { name, service: Some(service), cause }) => {
                    let field = format!("EndpointSlice {}", name.name);
                    self.unusable.entry(service).or_default().push(Problem { field, cause });
                }
                Err(of) => self.not_read(&format!("EndpointSlice {}: {}", of.name, of.cause)),
            }
        }
    }

    pub(super) fn not_read(&mut self, line: &str) {
        self.unread.push(line.to_owned());
    }

    /// The data of a report for a node; a node without a name is none.
    pub(super) fn data(self, node: NodeView) -> ServiceData {
        let Self { services, slices, unusable, unread } = self;
        let mut data = ServiceData::of(World { node, services, slices });
        (data.unusable, data.unread) = (unusable, unread);
        data
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use view_cluster::ServiceReport;

    fn of<T: DeserializeOwned>(objects: Value) -> Vec<T> {
        serde_json::from_value(objects).unwrap()
    }

    #[test]
    fn an_object_that_cannot_be_used_does_not_hide_the_others() {
        let slice = |name: &str, family: &str, addresses: &[&str]| {
            let labels = json!({ "kubernetes.io/service-name": "web" });
            json!({
                "metadata": { "namespace": "shop", "name": name, "labels": labels },
                "addressType": family, "ports": [{ "name": "", "port": 8080 }],
                "endpoints": [{ "addresses": addresses, "conditions": {} }],
            })
        };
        let service = json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": [{ "port": 80 }] },
        });
        let mut objects = Objects::default();
        objects.add_services(of(json!([{ "metadata": { "namespace": "shop" } }, service])));
        let mut alone = slice("alone", "IPv4", &["10.0.0.7"]);
        alone["metadata"]["labels"] = json!({});
        let names = slice("names", "FQDN", &["web.example"]);
        objects.add_slices(of(json!([names, slice("web-1", "IPv4", &["10.0.0.8"]), alone])));
        let data = objects.data(NodeView::default());
        let expected = [
            "Service shop/: no metadata.name",
            "EndpointSlice shop/alone: no label kubernetes.io/service-name",
        ];
        assert_eq!(data.unread, expected);
        let report = ServiceReport::of(&data, &ObjectName::new("shop", "web")).unwrap();
        assert_eq!((report.endpoints.ready, report.frontends.len()), (1, 2));
        assert_eq!(report.problems[0].field, "EndpointSlice names");
        assert!(report.is_good(), "{:?}", report.troubles);
    }
}
