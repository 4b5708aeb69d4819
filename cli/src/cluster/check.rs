//! `ferrule check`: probe pods on chosen nodes test connections and are deleted afterwards.

mod junit;
mod nodes;
mod objects;

use super::{
    TROUBLE,
    api::{Api, Selector},
    args::CheckArgs,
    forward::{self, PodPort},
    interrupts::Interrupts,
    parallel,
    status::{OURS, is_daemon},
};
use crate::{
    output::{self, Output},
    probe::{PORT, TRIES},
    progress::{Done, Progress},
};
use anyhow::{Result, anyhow, bail};
use junit::Report;
use kube::Client;
use nodes::Nodes;
use objects::{BALANCED, HOST, PROBE, Ports, TARGET};
use policy_kube::KubeError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    time::Duration,
};
use tokio::time::sleep;
use view_cluster::{
    Around, Column, Matrix, Meta, Outcome, Pod, Site, Try, answered, failed, host_tries, tries,
};

/// The results of one node.
type NodeResults = Result<Vec<(Column, Try, Outcome)>, String>;

/// Runs the tests, prints the results and returns the exit code.
pub(super) async fn run(args: &CheckArgs) -> Result<u8> {
    let junit = args.junit.as_deref().map(Report::open).transpose()?;
    let tried = test(args).await;
    let written = junit.map(|junit| match &tried {
        Ok(matrix) => junit.write(matrix),
        Err(why) => junit.write_error(&format!("{why:#}")),
    });
    // A full disk does not hide the results of a long test, nor the reason why it could not run.
    let matrix = tried?;
    match args.output {
        Output::Text => output::write(&matrix.text(output::columns()))?,
        Output::Json | Output::Yaml => args.output.write(&json!(matrix))?,
    }
    written.transpose()?;
    Ok(if matrix.is_good() { 0 } else { TROUBLE })
}

/// Creates the probes and runs the tests. The namespace is deleted on every path.
async fn test(args: &CheckArgs) -> Result<Matrix> {
    let api = Api::connect(&args.target).await?;
    let image = match &args.image {
        Some(image) => image.clone(),
        None => our_image(&api).await?,
    };
    // A random name cannot belong to another run.
    let number = RandomState::new().hash_one(std::process::id());
    let nodes = nodes::choose(&api, args, number).await?;
    let run = format!("{number:x}");
    let namespace = format!("ferrule-check-{run}");
    let mut interrupts = Interrupts::listen()?;
    let mut progress = Progress::new();
    progress.show("creating the namespace", Done::Unknown);
    let made = make(&api, args, &namespace, &run).await?;
    let wanted = ProbeObjects { namespace: &namespace, image: &image, nodes: &nodes, number };
    let tried = tokio::select! {
        tried = in_namespace(&api, args, &wanted, &mut progress) => tried,
        word = interrupts.next() => Err(anyhow!(word)),
    };
    drop(progress);
    if args.keep {
        note(&format!("kept: kubectl delete namespace {namespace}"));
    } else {
        match api.delete(&path_of(&namespace), &made, "namespaces").await {
            Ok(()) | Err(KubeError::NotFound { .. }) => {}
            Err(error) => note(&format!(
                "cannot delete namespace {namespace}: {error}; run kubectl delete namespace {namespace}"
            )),
        }
    }
    Ok(Matrix { nodes: nodes.counts, ..tried? })
}

fn note(text: &str) {
    // There is no other output if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn path_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}")
}

/// Returns true if a pod needs the pod security level `privileged`.
fn needs_host(args: &CheckArgs) -> bool {
    args.host_port.is_some() || args.host_network.is_some()
}

/// Creates the namespace and returns its UID. No interrupt stops this call, so the UID is always known.
async fn make(api: &Api, args: &CheckArgs, namespace: &str, run: &str) -> Result<String> {
    let wanted = objects::namespace(namespace, run, needs_host(args));
    let made = api.create("/api/v1/namespaces", &wanted).await;
    let failed = match made {
        Ok(made) => return Ok(made["metadata"]["uid"].as_str().unwrap_or_default().to_owned()),
        Err(failed) => failed,
    };
    // The namespace can exist although the API server's answer was lost.
    let there = api.get::<Namespace>(&path_of(namespace), "namespace").await;
    match there.map(|it| it.metadata) {
        Ok(meta) if meta.annotations.get(objects::RUN).is_some_and(|it| it == run) => Ok(meta.uid),
        Ok(_) | Err(_) => Err(failed.into()),
    }
}

#[derive(Deserialize)]
struct Namespace {
    metadata: Meta,
}

/// The objects to create and their nodes.
struct ProbeObjects<'a> {
    namespace: &'a str,
    image: &'a str,
    nodes: &'a Nodes,
    /// The random number of the run.
    number: u64,
}

/// Returns the daemons' image, which contains the probe.
async fn our_image(api: &Api) -> Result<String> {
    let path = format!("/api/v1/namespaces/{}/pods", api.namespace);
    let pods: Vec<Pod> = api.list(&path, Selector::Label(OURS), "pods").await?;
    let daemon = pods.iter().find(|pod| is_daemon(pod));
    let containers = daemon.map(|pod| pod.spec.containers.as_slice()).unwrap_or_default();
    let found = containers.iter().find(|it| it.name == "ipamd").map(|it| it.image.clone());
    found.ok_or_else(|| {
        anyhow!(
            "cannot find an image for the probes: no Ferrule pod in namespace {} has one; set --image, with \
             `ferrule` in its path",
            api.namespace
        )
    })
}

async fn in_namespace(
    api: &Api,
    args: &CheckArgs,
    wanted: &ProbeObjects<'_>,
    progress: &mut Progress,
) -> Result<Matrix> {
    let namespace = wanted.namespace;
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    let template = &wanted.nodes.template;
    let pods = [
        (PROBE, Some(Ports::Pod { host_port: None })),
        (TARGET, Some(Ports::Pod { host_port: args.host_port })),
        (HOST, args.host_network.map(Ports::Host)),
    ];
    for (name, ports) in pods {
        let Some(ports) = ports else { continue };
        let set = objects::daemon_set(name, wanted.image, template, ports);
        api.create(&sets, &set).await?;
    }
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let service = api.create(&services, &objects::service()).await?;
    let mut around = around(args, &service);
    let refused = add_addresses(api, &services, wanted.number, &mut around).await?;
    let (wait, nodes) = (Duration::from_secs(args.wait), &wanted.nodes.chosen);
    let sites =
        nodes::sites(api, wait, namespace, nodes, args.host_network.is_some(), progress).await?;
    if sites.is_empty() {
        bail!("cannot start probes: no node got one; see kubectl -n {namespace} get daemonsets");
    }
    // The Services are new. The kube-proxies may receive them after their pods are ready.
    for _ in 0..AGAIN {
        let matrix = ask_once(api, args, namespace, (&sites, &around), progress).await?;
        if matrix.is_good() {
            return Ok(Matrix { refused, ..matrix });
        }
        progress.show("some targets were not reachable: waiting", Done::Unknown);
        sleep(REST).await;
    }
    let matrix = ask_once(api, args, namespace, (&sites, &around), progress).await?;
    Ok(Matrix { refused, ..matrix })
}

/// Creates a Service with external addresses and one with a load balancer. Returns the causes for which the API server
/// refuses them, such as a policy of the cluster.
async fn add_addresses(
    api: &Api,
    services: &str,
    number: u64,
    around: &mut Around,
) -> Result<BTreeMap<Column, String>> {
    let (external, balancer) = objects::documentation_addresses(&around.services, number);
    let mut refused = BTreeMap::new();
    match refusal(api.create(services, &objects::external(&external)).await)? {
        Some(cause) => drop(refused.insert(Column::ExternalIp, cause)),
        None => around.external = external,
    }
    let made = match refusal(api.create(services, &objects::balanced()).await)? {
        None => {
            let (path, status) =
                (format!("{services}/{BALANCED}/status"), objects::balanced_status(&balancer));
            refusal(api.patch(&path, &status, "services/status").await)?
        }
        refused => refused,
    };
    match made {
        Some(cause) => drop(refused.insert(Column::LoadBalancer, cause)),
        None => around.balancer = balancer,
    }
    Ok(refused)
}

/// Returns the cause if the API server refuses an object. A webhook refuses it with any code.
fn refusal(made: Result<Value, KubeError>) -> Result<Option<String>, KubeError> {
    match made {
        Ok(_) => Ok(None),
        Err(KubeError::Forbidden { said, .. }) => Ok(Some(said)),
        Err(KubeError::Failed { cause, .. }) => Ok(Some(cause)),
        Err(error) => Err(error),
    }
}

async fn ask_once(
    api: &Api,
    args: &CheckArgs,
    namespace: &str,
    (sites, around): (&[Site], &Around),
    progress: &mut Progress,
) -> Result<Matrix> {
    let tried = ask_all(api, args, namespace, (sites, around), progress).await?;
    let mut matrix = Matrix::default();
    for (site, tried) in sites.iter().zip(tried) {
        matrix.add(site, tried);
    }
    Ok(matrix)
}

fn around(args: &CheckArgs, service: &Value) -> Around {
    let spec = &service["spec"];
    let services = spec["clusterIPs"].as_array().into_iter().flatten();
    let node_port = spec["ports"][0]["nodePort"].as_u64();
    Around {
        port: PORT,
        services: services.filter_map(Value::as_str).map(str::to_owned).collect(),
        service_port: objects::SERVICE_PORT,
        external: Vec::new(),
        balancer: Vec::new(),
        node_port: node_port.and_then(|port| u16::try_from(port).ok()),
        host_port: args.host_port,
        name: args.name.clone(),
        internet: args.internet.clone(),
    }
}

async fn ask_all(
    api: &Api,
    args: &CheckArgs,
    namespace: &str,
    (sites, around): (&[Site], &Around),
    progress: &mut Progress,
) -> Result<Vec<NodeResults>> {
    let within = Duration::from_secs(args.target.timeout.max(30));
    let mut tried: Vec<NodeResults> = Vec::new();
    let mut calls = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        tried.push(Err(site.why_not.clone().unwrap_or_else(|| "it was not called".to_owned())));
        let Some(probe) = site.probe.clone() else { continue };
        let wanted = tries(site, sites, around);
        let (client, namespace) = (api.client(), namespace.to_owned());
        let of_host = site.host_probe.clone().zip(args.host_network);
        let of_host = of_host.map(|(pod, port)| (pod, port, host_tries(site, sites, around)));
        calls.push(async move {
            let at = PodPort { namespace: &namespace, pod: &probe, port: PORT };
            let mut results = ask(&client, &at, wanted, within).await;
            if let (Ok(results), Some((pod, port, wanted))) = (&mut results, of_host) {
                results.extend(ask_host(&client, &namespace, (pod, port), wanted, within).await);
            }
            (index, results)
        });
    }
    for (index, results) in parallel::all(calls, "testing from nodes", progress).await? {
        if let Some(slot) = tried.get_mut(index) {
            *slot = results;
        }
    }
    Ok(tried)
}

/// Lets a probe in the host's network run its tests. Without it they fail.
async fn ask_host(
    client: &Client,
    namespace: &str,
    (pod, port): (Result<String, String>, u16),
    wanted: Vec<(Column, Try)>,
    within: Duration,
) -> Vec<(Column, Try, Outcome)> {
    let results = match &pod {
        Ok(pod) => ask(client, &PodPort { namespace, pod, port }, wanted.clone(), within).await,
        Err(why) => Err(why.clone()),
    };
    results.unwrap_or_else(|why| failed(wanted, &why))
}

/// Lets one probe run its tests.
async fn ask(
    client: &Client,
    at: &PodPort<'_>,
    wanted: Vec<(Column, Try)>,
    within: Duration,
) -> NodeResults {
    let tries: Vec<&Try> = wanted.iter().map(|(_, it)| it).collect();
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("of", &serde_json::to_string(&tries).unwrap_or_default())
        .finish();
    let body = forward::get(client, at, &format!("{TRIES}?{query}"), within).await?;
    let outcomes = serde_json::from_slice(&body)
        .map_err(|error| format!("cannot read the probe's answer: {error}"))?;
    answered(wanted, outcomes)
}

const AGAIN: u32 = 2;
const REST: Duration = Duration::from_secs(3);
