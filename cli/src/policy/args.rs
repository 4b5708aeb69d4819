//! The arguments of `ferrule policy`.

use crate::{output::Output, target::KubeTarget};
use clap::{Args, Subcommand};
use config_model::registry;
use policy_objects::Protocol;
use std::path::PathBuf;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Explain the verdict on one packet: the rule that decides, and why earlier rules do not
    #[command(after_help = VERDICT)]
    Verdict(VerdictArgs),
    /// List the policies of a pod in the order of evaluation
    #[command(after_help = OF)]
    Of {
        /// The pod, with or without its namespace
        #[arg(value_name = "[NAMESPACE/]POD")]
        pod: String,
        /// The pod's namespace
        #[arg(short, long, value_name = "NAME")]
        namespace: Option<String>,
        /// The objects to read
        #[command(flatten)]
        input: Input,
    },
    /// Show which pods can reach which, as a table and as an SVG image
    #[command(after_help = MATRIX)]
    Matrix {
        /// Only this port, such as 443, 53/udp or 5060/sctp; repeat for several ports
        #[arg(long, value_name = "PORT[/PROTOCOL]", value_parser = port)]
        port: Vec<(Protocol, u16)>,
        /// Also write an SVG image to this file
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// The objects to read
        #[command(flatten)]
        input: Input,
    },
    /// Find probable mistakes in policies, and policies that are not enforced
    #[command(after_help = LINT)]
    Lint {
        /// The objects to read
        #[command(flatten)]
        input: Input,
    },
    /// Convert policies of old API versions to the current version
    #[command(after_help = CONVERT)]
    Convert {
        /// The input: a file, a folder (recursive), or - for standard input; repeat for several inputs
        #[arg(short, long = "file", value_name = "PATH", default_value = ".")]
        file: Vec<PathBuf>,
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Show the packets that the policies of this node's pods drop, and the connections that they allow
    #[command(after_help = FLOWS)]
    Flows(FlowsArgs),
    /// Show how often each rule was used on this node
    #[command(after_help = USES)]
    Uses {
        /// The agent of this node
        #[command(flatten)]
        agent: AgentArgs,
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Show the pairs of pods whose traffic changes if objects are applied
    #[command(after_help = DIFF)]
    Diff(DiffArgs),
    /// Show the state of each node, and the policies that are not in force
    #[command(after_help = STATUS)]
    Status {
        /// The cluster to read
        #[command(flatten)]
        cluster: KubeTarget,
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// The agent of this node.
#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    /// The agent's socket
    #[arg(long, value_name = "SOCKET", env = "FERRULE_AGENT_SOCKET", default_value = registry::AGENT_SOCKET)]
    pub(crate) agent: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct FlowsArgs {
    /// Also show each connection that is allowed
    #[arg(long, requires = "follow")]
    pub(crate) allowed: bool,
    /// Wait for more after the recent drops
    #[arg(short = 'w', long)]
    pub(crate) follow: bool,
    /// The agent of this node
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// The output format; json is one object a line
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The objects to apply: a file, a folder, or - for standard input
    #[arg(short, long = "file", value_name = "PATH", required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// The present objects in place of the cluster: a file, a folder, or - for standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) on: Vec<PathBuf>,
    /// The cluster to read
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// Only this port, such as 443, 53/udp or 5060/sctp; repeat for several ports
    #[arg(long, value_name = "PORT[/PROTOCOL]", value_parser = port)]
    pub(crate) port: Vec<(Protocol, u16)>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Args, Debug)]
pub(crate) struct VerdictArgs {
    /// The source: a pod or an address
    #[arg(long, value_name = "NAMESPACE/POD|IP")]
    pub(crate) from: String,
    /// The destination behind any Service: a pod or an address, with a port number or name
    #[arg(long, value_name = "NAMESPACE/POD[:PORT]|IP[:PORT]")]
    pub(crate) to: String,
    /// tcp, udp, sctp, icmp[:type[:code]], or a protocol number
    #[arg(long, default_value = "tcp")]
    pub(crate) protocol: String,
    /// The Service that the client connects to
    #[arg(long, value_name = "NAMESPACE/SERVICE")]
    pub(crate) via_service: Option<String>,
    /// A DNS name of the address in --to; repeat for several names
    #[arg(long = "name", value_name = "DNS NAME")]
    pub(crate) names: Vec<String>,
    /// Also look the packet up in the maps of this node, and compare
    #[arg(long)]
    pub(crate) kernel: bool,
    /// The agent of this node
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Also show rules that are about other pods
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The objects to read
    #[command(flatten)]
    pub(crate) input: Input,
}

/// The input and the output format.
#[derive(Args, Debug)]
pub(crate) struct Input {
    /// Read these files instead of the cluster: a file, a folder (recursive), or - for standard input; repeat for
    /// several inputs
    #[arg(short, long = "file", value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// The cluster to read
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

fn port(word: &str) -> Result<(Protocol, u16), String> {
    let (number, protocol) = word.split_once('/').unwrap_or((word, "tcp"));
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        other => return Err(format!("{other:?} is no protocol with ports: tcp, udp or sctp")),
    };
    match number.parse() {
        Ok(0) | Err(_) => Err(format!("{number:?} is no port from 1 to 65535")),
        Ok(port) => Ok((protocol, port)),
    }
}

/// The help text after every subcommand of `ferrule policy`.
pub(crate) const CODES: &str = "\
Without -f the command reads the cluster of the kubeconfig with your rights: to list pods, namespaces, nodes,
Services and network policies in all namespaces. With -f it reads all *.yaml, *.yml and *.json of a folder
and its subfolders: the same objects, as `kubectl get … -o yaml` writes them. The result lacks what the
input lacks: a pod needs its status.podIPs.

Exit code: 0 allowed, no change, no finding; 1 denied, changes, or findings; 2 the question or a file was not
understood (see standard error), so the result may be wrong.";

const VERDICT: &str = "\
Examples:
  ferrule policy verdict --from shop/web --to pay/api:8080
  ferrule policy verdict -f cluster/ --from shop/web --to pay/api:http --via-service pay/api
  ferrule policy verdict --from 198.51.100.7 --to shop/web:443 --protocol udp
  ferrule policy verdict --from shop/web --to 203.0.113.5:443 --name www.example.com
  kubectl get pods,ns,netpol -A -o yaml | ferrule policy verdict -f - --from a/b --to c/d:80

  kubectl exec -n kube-system ds/ferrule -c agent -- ferrule policy verdict --from shop/web --to pay/api:8080 --kernel

Exit code: 0 allowed; 1 denied; 2 the question or a file was not understood; 3 with --kernel, the maps differ.";

const FLOWS: &str = "\
Examples:
  ferrule policy flows                      the last drops on this node
  ferrule policy flows --follow             and further ones
  ferrule policy flows --follow --allowed   and connections that are allowed
  kubectl exec -n kube-system ferrule-abcde -c agent -- ferrule policy flows -o json

Each pod has at most 200 a second; ferrule_agent_packets_total{reason=\"event_limit\"} counts the others.

Exit code: 0; 2 the agent does not answer, or it has a backend without flows.";

const USES: &str = "\
Examples:
  ferrule policy uses
  kubectl exec -n kube-system ferrule-abcde -c agent -- ferrule policy uses -o json

FLOWS are connections that the rule allowed. DROPPED and BYTES are of packets that it denied.
A rule that is changed starts at 0.

Exit code: 0; 2 the agent does not answer, or it has a backend without counters.";

const OF: &str = "\
Examples:
  ferrule policy of shop/web
  ferrule policy of shop/web -f cluster/ -o json

Exit code: 0 printed; 2 the pod does not exist, or a file was not understood.";

const MATRIX: &str = "\
Examples:
  ferrule policy matrix
  ferrule policy matrix -f cluster/ --port 443 --port 53/udp
  ferrule policy matrix -f cluster/ --svg reach.svg

Without --port all ports that the policies distinguish are evaluated. Rows are sources, columns are
destinations. Sources with equal results share a row, destinations with equal results share a column.

Exit code: 0 printed; 2 a file was not understood.";

const DIFF: &str = "\
Examples:
  ferrule policy diff -f new.yaml
  kustomize build . | ferrule policy diff -f - --on cluster/ -o json

Objects of the same kind and name are replaced, others are added; none are deleted.

Exit code: 0 no change; 1 changes; 2 a file was not understood.";

const LINT: &str = "\
Examples:
  ferrule policy lint
  ferrule policy lint -f cluster/
  kubectl get pods,ns,netpol -A -o yaml | ferrule policy lint -f -

Exit code: 0 no findings; 1 findings; 2 a file was not understood.";

const CONVERT: &str = "\
Examples:
  ferrule policy convert -f old.yaml > new.yaml
  kubectl get adminnetworkpolicies -o yaml | ferrule policy convert -f - | kubectl apply -f -

Only converted objects are written. If the current version cannot express a field, the field is reported and
the object is left out.

Exit code: 0 each policy has a current version now; 1 some do not and are reported; 2 a file was not
understood.";

const STATUS: &str = "\
Reads the controller through the API server with your rights: to get agents and policies of
view.policy.ferrule.io, and to list nodes. IN FORCE counts policies. OWED counts the objects that are pending
for the node, if the replica that answers is the one that the node follows.

Exit code: 0 every node has reported and nothing fails; 1 some have not, or something fails; 2 the
controller cannot be reached.";
