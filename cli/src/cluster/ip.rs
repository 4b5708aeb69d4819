//! `ferrule ip`: the use of addresses from the subnet to the pod, and the faults in it.

use super::{
    api::{Api, Selector},
    args::{Shape, Target},
    exit_code,
    forward::{self, PodPort},
    parallel,
    status::{self, OURS, is_daemon},
};
use crate::{
    output::{self, Output},
    progress::{Done, Progress},
};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use kube::Client;
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::sleep;
use view_cluster::{AddressData, AddressReport, Pod, Width};
use view_node::Addresses;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct IpArgs {
    /// The command; without it, the use of addresses is shown
    #[command(subcommand)]
    verb: Option<IpVerb>,
    /// The output format; `wide` adds ENIs, their blocks and the pods
    #[arg(short, long, value_enum, default_value_t = Shape::Text)]
    output: Shape,
    /// The part of the cluster
    #[command(flatten)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum IpVerb {
    /// Find leaked addresses, addresses in use twice or without a record, and fragmented subnets
    #[command(after_help = IP_CHECK)]
    Check {
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// The part of the cluster
        #[command(flatten)]
        part: Part,
    },
}

#[derive(Args, Debug)]
struct Part {
    /// Only this node; repeat for several nodes
    #[arg(long, value_name = "NAME")]
    node: Vec<String>,
    /// Only this subnet; repeat for several subnets
    #[arg(long, value_name = "ID")]
    subnet: Vec<String>,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    target: Target,
}

/// Prints the use of addresses, or the faults in it, and returns the exit code.
pub(super) async fn run(args: &IpArgs) -> Result<u8> {
    match &args.verb {
        None => show(&args.part, args.output).await,
        Some(IpVerb::Check { output, part }) => check(part, *output).await,
    }
}

async fn show(part: &Part, shape: Shape) -> Result<u8> {
    let api = Api::connect(&part.target).await?;
    let data = books(&api, part, &mut Progress::new()).await?;
    let report = of_part(AddressReport::of(&data), part)?;
    let width = if shape == Shape::Wide { Width::Wide } else { Width::Narrow };
    match shape.machine() {
        None => output::write(&report.text(width, output::columns()))?,
        Some(format) => format.write(&json!(report))?,
    }
    Ok(exit_code(true, report.unasked.is_empty()))
}

async fn check(part: &Part, format: Output) -> Result<u8> {
    let api = Api::connect(&part.target).await?;
    let mut progress = Progress::new();
    let mut report = of_part(look(&api, part, &mut progress).await?, part)?;
    if !report.is_good() {
        progress.show("waiting for a second look", Done::Unknown);
        sleep(APART).await;
        let second = look(&api, part, &mut progress).await?;
        report = report.confirmed_by(&second.only_subnets(&part.subnet));
    }
    drop(progress);
    match format.is_text() {
        true => output::write(&report.findings_text())?,
        false => format.write(&json!(report))?,
    }
    Ok(exit_code(report.is_good(), report.unasked.is_empty()))
}

/// Keeps the subnets that the user named.
///
/// # Errors
/// The first subnet that no answer has.
fn of_part(report: AddressReport, part: &Part) -> Result<AddressReport> {
    match report.unknown_subnet(&part.subnet) {
        Some(id) => bail!(
            "cannot find subnet {id}: no node that answered has an ENI or a count of it; see ferrule ip"
        ),
        None => Ok(report.only_subnets(&part.subnet)),
    }
}

/// Reads the daemons' books first and the pods second: a pod that starts in between is no leak.
async fn look(api: &Api, part: &Part, progress: &mut Progress) -> Result<AddressReport> {
    let mut data = books(api, part, progress).await?;
    progress.show("listing pods", Done::Unknown);
    match api.list::<Pod>("/api/v1/pods", Selector::All, "pods").await {
        Ok(pods) => data.pods = Some(pods),
        Err(error) => data.unasked.push(error.to_string()),
    }
    Ok(AddressReport::of(&data))
}

/// Reads the address book of each daemon.
async fn books(api: &Api, part: &Part, progress: &mut Progress) -> Result<AddressData> {
    let mut data = AddressData { named: part.node.clone(), ..AddressData::default() };
    match status::nodes(api).await {
        Ok(nodes) => {
            status::all_there(&nodes, &part.node)?;
            data.nodes = Some(nodes);
        }
        Err(error) => data.unasked.push(error.to_string()),
    }
    // Without them each node of Linux should have a daemon.
    data.daemon_sets = status::daemon_sets(api).await.unwrap_or_default();
    let calls = daemons(api, part).await?.into_iter().map(|(node, pod)| {
        let (client, namespace) = (api.client(), api.namespace.clone());
        let (port, within) =
            (part.target.introspection_port, Duration::from_secs(part.target.timeout));
        async move {
            let at = PodPort { namespace: &namespace, pod: &pod.metadata.name, port };
            (node, book(&client, &at, within).await)
        }
    });
    let answers = parallel::all(calls.collect(), "calling daemons", progress).await?;
    data.answers = answers.into_iter().collect();
    Ok(data)
}

/// Lists the daemons' pods by node.
///
/// # Errors
/// There is none, so nothing can be read.
async fn daemons(api: &Api, part: &Part) -> Result<BTreeMap<String, Pod>> {
    let namespace = &api.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let mut pods: Vec<Pod> = api.list(&path, Selector::Label(OURS), "pods").await?;
    pods.retain(is_daemon);
    if pods.is_empty() {
        bail!(
            "cannot read addresses: namespace {namespace} has no Ferrule pod; install the chart, or set \
             --ferrule-namespace"
        );
    }
    // During a replacement a node has two pods; the one that stays is asked.
    pods.sort_by_key(|pod| pod.metadata.deletion_timestamp.is_none());
    let by_node: BTreeMap<String, Pod> = pods
        .into_iter()
        .filter_map(|pod| Some((pod.spec.node_name.clone()?, pod)))
        .filter(|(node, _)| part.node.is_empty() || part.node.contains(node))
        .collect();
    if by_node.is_empty() {
        let named = part.node.join(", ");
        bail!("cannot read addresses of {named}: no Ferrule pod runs there; run ferrule status");
    }
    Ok(by_node)
}

async fn book(client: &Client, at: &PodPort<'_>, within: Duration) -> Result<Addresses, String> {
    let body = forward::get(client, at, view_node::ADDRESSES, within).await?;
    match serde_json::from_slice::<Addresses>(&body) {
        // A daemon of an older version answers with its list of paths.
        Ok(book) if book.version.is_empty() => Err(format!(
            "the daemon has an older version without {}; finish the upgrade",
            view_node::ADDRESSES
        )),
        Ok(book) => Ok(book),
        Err(error) => Err(format!("cannot parse its answer: {error}")),
    }
}

/// The time between two looks. Addresses of pods that start or end differ for a moment.
const APART: Duration = Duration::from_secs(5);

/// The help text after `ferrule ip`.
pub(crate) const IP: &str = "\
COUNTED is the age of EC2's count: daemons receive counts with calls that they need anyway. PREFIXES is an upper
bound of the free /28. Other users of a subnet are in EC2's count only.

Exit code: 0 printed; 2 some data could not be read.";

/// The help text after `ferrule ip check`.
const IP_CHECK: &str = "\
Compares the daemons' address books with each other and with the pods of the API server. A finding must hold in two
looks, five seconds apart.

Exit code: 0 no findings; 1 findings, printed with the next step; 2 no findings, but some data could not be read.";
