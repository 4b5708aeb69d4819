//! `ferrule check`: probe pods on every node test connections and are deleted afterwards.

mod objects;

use super::{
    TROUBLE,
    api::{Api, Selector},
    args::CheckArgs,
    forward::{self, PodPort},
    interrupts::Interrupts,
    parallel,
    status::{self, OURS, is_daemon},
};
use crate::{
    output::{self, Output},
    probe::{PORT, TRIES},
    progress::{Done, Progress},
};
use anyhow::{Result, anyhow, bail};
use kube::Client;
use objects::{PROBE, TARGET};
use policy_kube::KubeError;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    hash::{BuildHasher as _, RandomState},
    io::Write as _,
    time::{Duration, Instant},
};
use tokio::time::sleep;
use view_cluster::{
    Around, Column, Matrix, Meta, Node, Outcome, Pod, Site, TemplateSpec, Try, answered, excluded,
    for_probes, of_pod, tries, unselected,
};

/// The results of one node.
type NodeResults = Result<Vec<(Column, Try, Outcome)>, String>;

/// Runs the tests, prints the results and returns the exit code. The namespace is deleted on every path.
pub(super) async fn run(args: &CheckArgs) -> Result<u8> {
    let api = Api::connect(&args.target).await?;
    let image = match &args.image {
        Some(image) => image.clone(),
        None => our_image(&api).await?,
    };
    let nodes = for_probes(&status::daemon_sets(&api).await?);
    // A random name cannot belong to another run.
    let run = format!("{:x}", RandomState::new().hash_one(std::process::id()));
    let namespace = format!("ferrule-check-{run}");
    let mut interrupts = Interrupts::listen()?;
    let mut progress = Progress::new();
    progress.show("creating the namespace", Done::Unknown);
    let made = make(&api, &namespace, &run).await?;
    let wanted = ProbeObjects { namespace: &namespace, image: &image, nodes: &nodes };
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
    let matrix = tried?;
    match args.output {
        Output::Text => output::write(&matrix.text(output::columns()))?,
        Output::Json | Output::Yaml => args.output.write(&json!(matrix))?,
    }
    Ok(if matrix.is_good() { 0 } else { TROUBLE })
}

fn note(text: &str) {
    // There is no other output if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn path_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}")
}

/// Creates the namespace and returns its UID. No interrupt stops this call, so the UID is always known.
async fn make(api: &Api, namespace: &str, run: &str) -> Result<String> {
    let made = api.create("/api/v1/namespaces", &objects::namespace(namespace, run)).await;
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
    nodes: &'a TemplateSpec,
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
    for name in [PROBE, TARGET] {
        api.create(&sets, &objects::daemon_set(name, wanted.image, wanted.nodes)).await?;
    }
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let service = api.create(&services, &objects::service()).await?;
    let sites = sites(api, args, wanted, progress).await?;
    if sites.is_empty() {
        bail!("cannot start probes: no node got one; see kubectl -n {namespace} get daemonsets");
    }
    let around = around(args, &service);
    // The Service is new. The kube-proxies may receive it after its pods are ready.
    for _ in 0..AGAIN {
        let matrix = ask_once(api, args, namespace, (&sites, &around), progress).await?;
        if matrix.is_good() {
            return Ok(matrix);
        }
        progress.show("some targets were not reachable: waiting", Done::Unknown);
        sleep(REST).await;
    }
    ask_once(api, args, namespace, (&sites, &around), progress).await
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
    let node_port = spec["ports"][0]["nodePort"].as_u64();
    Around {
        port: PORT,
        service: spec["clusterIP"].as_str().filter(|it| *it != "None").map(str::to_owned),
        service_port: objects::SERVICE_PORT,
        node_port: node_port.and_then(|port| u16::try_from(port).ok()),
        name: args.name.clone(),
        internet: args.internet.clone(),
    }
}

/// Waits until each node has ready probes, or until the timeout.
async fn sites(
    api: &Api,
    args: &CheckArgs,
    wanted: &ProbeObjects<'_>,
    progress: &mut Progress,
) -> Result<Vec<Site>> {
    let ProbeObjects { namespace, nodes: selected, .. } = wanted;
    let mut nodes: Vec<Node> = api.list("/api/v1/nodes", Selector::All, "nodes").await?;
    nodes.retain(|node| excluded(node, &[]).is_none() && unselected(node, selected).is_none());
    let give_up = Instant::now() + Duration::from_secs(args.wait);
    let path = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    loop {
        let sets: Vec<Rollout> = api.list(&path, Selector::All, "daemonsets").await?;
        let ready = sets.iter().map(|set| set.status.number_ready).min().unwrap_or_default();
        if ready >= nodes.len() || Instant::now() >= give_up {
            break;
        }
        progress.show("waiting for probes", Done::Of(ready, nodes.len()));
        sleep(LOOK_AGAIN).await;
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pods: Vec<Pod> = api.list(&path, Selector::All, "pods").await?;
    Ok(by_node(&nodes, &pods))
}

/// Progress of a DaemonSet.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Rollout {
    status: RolloutStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RolloutStatus {
    number_ready: usize,
}

/// Returns the nodes on which the DaemonSets have pods or will have them.
fn by_node(nodes: &[Node], pods: &[Pod]) -> Vec<Site> {
    let mut sites = Vec::new();
    for node in nodes {
        let name = &node.metadata.name;
        let of = |app: &str| {
            pods.iter().find(|pod| {
                pod.spec.node_name.as_ref() == Some(name)
                    && pod.metadata.labels.get("app").is_some_and(|it| it == app)
            })
        };
        let (probe, target) = (of(PROBE), of(TARGET));
        let why = |pod: Option<&Pod>| match pod {
            None => Some("the node has no probe pod".to_owned()),
            Some(pod) => why_not(pod),
        };
        let address = |pod: &Pod| pod.status.pod_ips.first().map(|it| it.ip.clone());
        let ready = |pod: &&Pod| why_not(pod).is_none();
        sites.push(Site {
            node: name.clone(),
            address: node.internal_address().map(str::to_owned),
            probe: probe.filter(ready).map(|pod| pod.metadata.name.clone()),
            target: target.filter(ready).and_then(address),
            why_not: why(probe).or_else(|| why(target)),
        });
    }
    sites
}

/// Returns the reason why a pod is not ready.
fn why_not(pod: &Pod) -> Option<String> {
    let ready = pod.status.conditions.iter().find(|it| it.kind == "Ready");
    if ready.is_some_and(|it| it.status == "True") && !pod.status.pod_ips.is_empty() {
        return None;
    }
    let said = of_pod(pod).first().map(|it| format!("{}: {}", it.object, it.cause));
    let phase = &pod.status.phase;
    Some(said.unwrap_or_else(|| format!("its pod {} is {phase}", pod.metadata.name)))
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
        calls.push(async move {
            let at = PodPort { namespace: &namespace, pod: &probe, port: PORT };
            (index, ask(&client, &at, wanted, within).await)
        });
    }
    for (index, results) in parallel::all(calls, "testing from nodes", progress).await? {
        if let Some(slot) = tried.get_mut(index) {
            *slot = results;
        }
    }
    Ok(tried)
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

const LOOK_AGAIN: Duration = Duration::from_millis(500);
const AGAIN: u32 = 2;
const REST: Duration = Duration::from_secs(3);
