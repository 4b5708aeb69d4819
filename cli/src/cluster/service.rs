//! `ferrule service`: a Service's frontends and the reason for which each endpoint is in or out; without a name a list.
//!
//! [`service_core`] computes the frontends from the objects of the API server, as on a node. [`agent`] reads whether
//! they are in force there.

mod agent;
mod objects;

use super::{
    api::{Api, Selector},
    args::ServiceArgs,
    exit_code,
};
use crate::{
    output,
    target::{check_namespace, named},
};
use anyhow::{Result, bail};
use objects::{Objects, ServiceObject, SliceObject};
use policy_kube::KubeError;
use policy_objects::Named;
use serde_json::json;
use service_core::NodeView;
use service_objects::{ObjectName, SERVICE_LABEL};
use view_cluster::{Node, ServiceData, ServiceList, ServiceReport};

/// Prints the report or the list, and returns the exit code.
pub(super) async fn run(args: &ServiceArgs) -> Result<u8> {
    let api = Api::connect(&args.target).await?;
    let name = match &args.service {
        Some(word) => {
            let of_context = Some(api.context_namespace()).filter(|_| !word.contains('/'));
            let namespace = args.namespace.as_deref().or(of_context);
            let Named { namespace, name } = named("service", word, namespace)?;
            Some(ObjectName { namespace, name })
        }
        None => {
            args.namespace.as_deref().map(check_namespace).transpose()?;
            None
        }
    };
    let mut objects = Objects::default();
    match &name {
        Some(name) => read_one(&api, name, &mut objects).await?,
        None => read_all(&api, args.namespace.as_deref(), &mut objects).await?,
    }
    let node = agent::node(&api, args).await?;
    let mut data = objects.data(node.as_ref().map(view).unwrap_or_default());
    if let Some(node) = &node {
        data.serving = Some(agent::serving(&api, args, node).await);
    }
    match &name {
        Some(name) => print_one(args, &data, name),
        None => print_list(args, &data),
    }
}

fn print_one(args: &ServiceArgs, data: &ServiceData, name: &ObjectName) -> Result<u8> {
    let Some(report) = ServiceReport::of(data, name) else { return Err(absent(name)) };
    match args.output.is_text() {
        true => output::write(&report.text(output::columns()))?,
        false => args.output.write(&json!(report))?,
    }
    Ok(exit_code(report.is_good(), report.unread.is_empty()))
}

fn print_list(args: &ServiceArgs, data: &ServiceData) -> Result<u8> {
    let list = ServiceList::of(data, args.namespace.as_deref());
    match args.output.is_text() {
        true => output::write(&list.text(output::columns()))?,
        false => args.output.write(&json!(list))?,
    }
    Ok(exit_code(list.is_good(), list.unread.is_empty()))
}

/// Reads a Service and its slices, and the other Services, which may have its addresses.
async fn read_one(api: &Api, name: &ObjectName, objects: &mut Objects) -> Result<()> {
    let ObjectName { namespace, name: service } = name;
    let path = format!("/api/v1/namespaces/{namespace}/services/{service}");
    let one: ServiceObject = match api.get(&path, "service").await {
        Err(KubeError::NotFound { .. }) => return Err(absent(name)),
        one => one?,
    };
    if let Err(unusable) = &one.0 {
        bail!(
            "cannot read Service {name}: {}; see kubectl -n {namespace} get service {service} -o yaml",
            unusable.cause
        );
    }
    match api.list(ALL_SERVICES, Selector::All, "services").await {
        Ok(all) => objects.add_services(all),
        Err(error) => {
            objects.not_read(&format!("other Services, which may have an address: {error}"))
        }
    }
    // The list may be older than the object.
    objects.add_services(vec![one]);
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let label = format!("{SERVICE_LABEL}={service}");
    let slices: Vec<SliceObject> =
        api.list(&path, Selector::Label(&label), "endpointslices").await?;
    objects.add_slices(slices);
    Ok(())
}

/// Reads the Services of a namespace or of all. Services of other namespaces may have addresses of the listed ones.
async fn read_all(api: &Api, namespace: Option<&str>, objects: &mut Objects) -> Result<()> {
    let services = api.list(ALL_SERVICES, Selector::All, "services").await;
    let services = match (services, namespace) {
        (Err(error), Some(namespace)) => {
            objects.not_read(&format!("Services of other namespaces: {error}"));
            let path = format!("/api/v1/namespaces/{namespace}/services");
            api.list(&path, Selector::All, "services").await
        }
        (services, _) => services,
    };
    objects.add_services(services?);
    let path = match namespace {
        Some(namespace) => {
            format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
        }
        None => "/apis/discovery.k8s.io/v1/endpointslices".to_owned(),
    };
    objects.add_slices(api.list(&path, Selector::Label(SERVICE_LABEL), "endpointslices").await?);
    Ok(())
}

fn absent(name: &ObjectName) -> anyhow::Error {
    let ObjectName { namespace, name } = name;
    anyhow::anyhow!(
        "cannot find Service {name} in namespace {namespace}: it does not exist; see kubectl get services -A"
    )
}

/// The node as `service_core` needs it. The zone decides about hints.
fn view(node: &Node) -> NodeView {
    NodeView {
        name: node.metadata.name.clone(),
        zone: node.metadata.labels.get(ZONE).cloned(),
        addresses: node.status.addresses.iter().filter_map(|it| it.address.parse().ok()).collect(),
    }
}

const ALL_SERVICES: &str = "/api/v1/services";
const ZONE: &str = "topology.kubernetes.io/zone";
