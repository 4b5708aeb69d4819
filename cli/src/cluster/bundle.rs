//! `ferrule bundle`: a support archive without secrets and of bounded size.

mod archive;

use super::{
    api::Api,
    args::BundleArgs,
    forward::{self, PodPort},
    interrupts::Interrupts,
    status,
};
use crate::progress::{Done, Progress};
use anyhow::Result;
use archive::Archive;
use config_model::registry;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use view_cluster::{OwnObjects, Pod, StatusReport, redact, redact_log, redact_text};
use view_text::counted;

/// Writes the archive and returns the exit code. After an interrupt the archive keeps the files that it has.
pub(super) async fn run(args: &BundleArgs) -> Result<u8> {
    let api = Api::connect(&args.target).await?;
    // An unknown node name is an error. A user who may not list nodes gets the error in the archive's index.
    if let (false, Ok(nodes)) = (args.node.is_empty(), status::nodes(&api).await) {
        status::all_there(&nodes, &args.node)?;
    }
    // Signals are caught before the archive exists, so that an interrupt cannot leave a partial file.
    let mut interrupts = Interrupts::listen()?;
    let file = args.output.clone().unwrap_or_else(name);
    let mut archive = Archive::create(&file)?;
    let (interrupted, failed) = tokio::select! {
        gathered = gather(&api, args, &mut archive) => (false, gathered.err()),
        _ = interrupts.next() => (true, None),
    };
    let whole = failed.is_none();
    let (files, said) = archive.finish(interrupted, failed.map(|error| format!("{error:#}")))?;
    crate::output::write_text(&format!("{}: {said}\n", file.display()))?;
    Ok(match (interrupted, whole && files > 0) {
        (true, _) => INTERRUPTED,
        (false, true) => 0,
        (false, false) => NOTHING,
    })
}

fn name() -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    PathBuf::from(format!("ferrule-bundle-{now}.tar.gz"))
}

async fn gather(api: &Api, args: &BundleArgs, archive: &mut Archive) -> Result<()> {
    let mut progress = Progress::new();
    let namespace = &api.namespace;
    let ours = |of: &str| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        format!("{of}?{}", query.append_pair("labelSelector", status::OURS).finish())
    };
    let core = format!("/api/v1/namespaces/{namespace}");
    let apps = format!("/apis/apps/v1/namespaces/{namespace}");
    let objects = [
        ("version.json", "/version".to_owned()),
        ("nodes.json", "/api/v1/nodes".to_owned()),
        ("pods.json", ours(&format!("{core}/pods"))),
        // By name: the rights of viewers do not include other ConfigMaps of this namespace.
        ("amazon-vpc-cni.json", format!("{core}/configmaps/amazon-vpc-cni")),
        ("controller-ca.json", format!("{core}/configmaps/{}", registry::CONTROLLER_CA)),
        ("daemonsets.json", ours(&format!("{apps}/daemonsets"))),
        ("deployments.json", ours(&format!("{apps}/deployments"))),
        // After the objects that the events are about.
        ("events.json", format!("{core}/events")),
        ("eniconfigs.json", "/apis/crd.k8s.amazonaws.com/v1alpha1/eniconfigs".to_owned()),
        ("cninodes.json", "/apis/vpcresources.k8s.aws/v1alpha1/cninodes".to_owned()),
    ];
    let kinds = objects.len();
    let mut own = OwnObjects::default();
    for (index, (file, path)) in objects.into_iter().enumerate() {
        progress.show("reading objects of the cluster", Done::Of(index, kinds));
        object(api, archive, &format!("cluster/{file}"), &path, &mut own).await?;
    }
    let looked = status::look(api, &args.target, &args.node, &mut progress).await;
    let cluster = match looked {
        Ok(cluster) => cluster,
        Err(error) => {
            archive.miss("status.json", format!("{error:#}"));
            return Ok(());
        }
    };
    let status_report = StatusReport::of(&cluster);
    put(archive, "status.json", json!(status_report))?;
    // Unhealthy nodes come first, because the archive's size is bounded.
    let good = |pod: &&Pod| {
        let mut lines = status_report.nodes.iter();
        let line = lines.find(|line| line.pod.as_ref() == Some(&pod.metadata.name));
        line.is_some_and(|line| line.troubles.is_empty())
    };
    let mut daemons: Vec<&Pod> = cluster.pods.iter().collect();
    daemons.sort_by_key(good);
    let count = daemons.len();
    // The controller has few replicas.
    for pod in &cluster.controllers {
        logs(api, archive, pod).await?;
    }
    for (index, pod) in daemons.into_iter().enumerate() {
        if archive.is_full() {
            archive.miss(
                "the rest",
                counted(count - index, "daemon does", "daemons do")
                    + " not fit into the size limit",
            );
            break;
        }
        progress.show("reading daemons and their logs", Done::Of(index, count));
        introspection(api, args, archive, pod).await?;
        logs(api, archive, pod).await?;
    }
    Ok(())
}

fn put(archive: &mut Archive, file: &str, mut document: Value) -> Result<()> {
    redact(&mut document);
    archive.put(file, &serde_json::to_vec_pretty(&document)?)
}

/// Adds a document of the API server, and its objects to `own`. Of a list of events those of `own` are added.
async fn object(
    api: &Api,
    archive: &mut Archive,
    file: &str,
    path: &str,
    own: &mut OwnObjects,
) -> Result<()> {
    let what = Path::new(file).file_stem().and_then(|it| it.to_str()).unwrap_or(file);
    match api.text(path, what).await {
        Err(error) => archive.miss(file, error.to_string()),
        Ok(text) => match serde_json::from_str::<Value>(&text) {
            Ok(mut object) => {
                match what {
                    "events" => own.keep_events(&mut object),
                    "pods" | "daemonsets" | "deployments" => own.add(&object),
                    _not_of_the_namespace => {}
                }
                put(archive, file, object)?;
            }
            Err(error) => archive.miss(file, format!("the answer is not JSON: {error}")),
        },
    }
    Ok(())
}

async fn introspection(
    api: &Api,
    args: &BundleArgs,
    archive: &mut Archive,
    pod: &Pod,
) -> Result<()> {
    let node = pod.spec.node_name.as_deref().unwrap_or(&pod.metadata.name);
    let within = Duration::from_secs(args.target.timeout);
    let port = args.target.introspection_port;
    let mut silent = BTreeSet::new();
    for (port, path, file) in [
        (port, view_node::STATUS, "status.json"),
        (port, "/v1/ferrule/explain", "explain.json"),
        (port, view_node::PODS, "pods.json"),
        (port, view_node::ADDRESSES, "addresses.json"),
        (port, "/v1/enis", "enis.json"),
        (port, "/v1/ipamd-env-settings", "ipamd-settings.json"),
        (port, "/v1/networkutils-env-settings", "network-settings.json"),
        (registry::METRICS_PORT, "/metrics", "metrics.txt"),
    ] {
        if silent.contains(&port) {
            continue;
        }
        let file = format!("nodes/{node}/{file}");
        let at = PodPort { namespace: &api.namespace, pod: &pod.metadata.name, port };
        match forward::get(&api.client(), &at, path, within).await {
            Ok(body) => match serde_json::from_slice(&body) {
                Ok(document) => put(archive, &file, document)?,
                Err(_) => {
                    let text = redact_text(&String::from_utf8_lossy(&body));
                    archive.put(&file, text.as_bytes())?;
                }
            },
            Err(why) => {
                // If the port does not answer, its other paths do not answer either.
                if !forward::answered(&why) {
                    silent.insert(port);
                }
                archive.miss(&file, why);
            }
        }
    }
    Ok(())
}

async fn logs(api: &Api, archive: &mut Archive, pod: &Pod) -> Result<()> {
    let name = &pod.metadata.name;
    let log = format!("/api/v1/namespaces/{}/pods/{name}/log", api.namespace);
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    for status in statuses {
        let container = &status.name;
        for (previous, suffix) in [(false, ""), (true, ".previous")] {
            if previous && status.restart_count == 0 {
                continue;
            }
            let path = format!("{log}?container={container}&previous={previous}&tailLines={LINES}");
            let file = format!("logs/{name}/{container}{suffix}.log");
            match api.text(&path, "log").await {
                Ok(text) => {
                    archive.put(&file, redact_log(&text, archive::BOUNDS.file).as_bytes())?
                }
                Err(error) => archive.miss(&file, error.to_string()),
            }
        }
    }
    Ok(())
}

const LINES: u32 = 5000;
/// The exit code if nothing was collected; the next constant is the exit code after an interrupt.
const NOTHING: u8 = 2;
const INTERRUPTED: u8 = 130;
