//! The command line of `ferrule policy`.

use crate::{output::Output, target::KubeTarget};
use clap::{Args, Subcommand};
use policy_objects::Protocol;
use std::path::PathBuf;

/// What is asked.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Tell whether one packet passes, which rule decides, and why no earlier one does
    #[command(after_help = VERDICT)]
    Verdict(VerdictArgs),
    /// List the policies that a pod is subject to, in the order in which they are tried
    #[command(after_help = OF)]
    Of {
        /// The pod, as namespace/name
        #[arg(value_name = "NAMESPACE/POD")]
        pod: String,
        /// What is read
        #[command(flatten)]
        input: Input,
    },
    /// Show who reaches whom, as a table and as a picture
    #[command(after_help = MATRIX)]
    Matrix {
        /// Ask about this port alone, as 443, 53/udp or 5060/sctp; more than once for several
        #[arg(long, value_name = "PORT[/PROTOCOL]", value_parser = port)]
        port: Vec<(Protocol, u16)>,
        /// Write the picture to this file, too
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// What is read
        #[command(flatten)]
        input: Input,
    },
    /// Find what is not as its author will have meant it, and what is not enforced
    #[command(after_help = LINT)]
    Lint {
        /// What is read
        #[command(flatten)]
        input: Input,
    },
    /// Write policies of old API versions as the current ones have them
    #[command(after_help = CONVERT)]
    Convert {
        /// What is read: a file, a folder with all in it, or - for standard input; more than once for several
        #[arg(short, long = "file", value_name = "PATH", default_value = ".")]
        file: Vec<PathBuf>,
        /// How it is printed
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Tell between which pods something else passes once objects are applied
    #[command(after_help = DIFF)]
    Diff(DiffArgs),
    /// Tell how far each node of the cluster is, and which policies are not in force where
    #[command(after_help = STATUS)]
    Status {
        /// Which cluster
        #[command(flatten)]
        cluster: KubeTarget,
        /// How it is printed
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// Which change.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// What would be applied: a file, a folder, or - for standard input
    #[arg(short, long = "file", value_name = "PATH", required = true)]
    pub(crate) file: Vec<PathBuf>,
    /// What there is, instead of the cluster's objects: a file, a folder, or - for standard input
    #[arg(long, value_name = "PATH")]
    pub(crate) on: Vec<PathBuf>,
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// Ask about this port alone, as 443, 53/udp or 5060/sctp; more than once for several
    #[arg(long, value_name = "PORT[/PROTOCOL]", value_parser = port)]
    pub(crate) port: Vec<(Protocol, u16)>,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

/// Which packet.
#[derive(Args, Debug)]
pub(crate) struct VerdictArgs {
    /// Who sends: a pod, or an address
    #[arg(long, value_name = "NAMESPACE/POD|IP")]
    pub(crate) from: String,
    /// Who gets, behind any Service: a pod or an address, with the port (a number or its name)
    #[arg(long, value_name = "NAMESPACE/POD[:PORT]|IP[:PORT]")]
    pub(crate) to: String,
    /// tcp, udp, sctp, icmp[:type[:code]], or the number of another protocol
    #[arg(long, default_value = "tcp")]
    pub(crate) protocol: String,
    /// The Service that is asked for
    #[arg(long, value_name = "NAMESPACE/SERVICE")]
    pub(crate) via_service: Option<String>,
    /// A name that DNS gave for the address of --to; more than once for several
    #[arg(long = "name", value_name = "DNS NAME")]
    pub(crate) names: Vec<String>,
    /// Show each rule, also those that are about other pods
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// What is read
    #[command(flatten)]
    pub(crate) input: Input,
}

/// What is read, and how it is told.
#[derive(Args, Debug)]
pub(crate) struct Input {
    /// Read these instead of the cluster: a file, a folder with all in it, or - for standard input; more than
    /// once for several
    #[arg(short, long = "file", value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// How it is printed
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

/// After every verb of `ferrule policy`.
pub(crate) const CODES: &str = "\
Without -f it asks the cluster of the kubeconfig, with the rights of whoever asks: to list pods, namespaces,
nodes, Services and network policies everywhere. With -f it reads all *.yaml, *.yml and *.json of a folder
and of those in it: the same objects, as `kubectl get … -o yaml` writes them. What is missing in them is
missing in the answer: a pod needs its status.podIPs.

Exit code: 0 it passes, nothing changes, nothing is found; 1 it does not pass, something changes or is
found; 2 something was not understood (the question, or a file, which is told) and the answer may be
wrong.";

const VERDICT: &str = "\
Examples:
  ferrule policy verdict --from shop/web --to pay/api:8080
  ferrule policy verdict -f cluster/ --from shop/web --to pay/api:http --via-service pay/api
  ferrule policy verdict --from 198.51.100.7 --to shop/web:443 --protocol udp
  ferrule policy verdict --from shop/web --to 203.0.113.5:443 --name www.example.com
  kubectl get pods,ns,netpol -A -o yaml | ferrule policy verdict -f - --from a/b --to c/d:80

Exit code: 0 it passes; 1 it does not; 2 the question or a file was not understood.";

const OF: &str = "\
Examples:
  ferrule policy of shop/web
  ferrule policy of shop/web -f cluster/ -o json

Exit code: 0 it is told; 2 the pod is not there, or a file was not understood.";

const MATRIX: &str = "\
Examples:
  ferrule policy matrix
  ferrule policy matrix -f cluster/ --port 443 --port 53/udp
  ferrule policy matrix -f cluster/ --svg reach.svg

Without --port all that the policies tell apart is asked. Rows are who sends, columns who gets; pods that
reach alike are one row, pods that are reached alike one column.

Exit code: 0 it is told; 2 a file was not understood.";

const DIFF: &str = "\
Examples:
  ferrule policy diff -f new.yaml
  kustomize build . | ferrule policy diff -f - --on cluster/ -o json

Objects of the same kind and name are replaced, others are added; nothing is taken away.

Exit code: 0 nothing changes; 1 something changes; 2 a file was not understood.";

const LINT: &str = "\
Examples:
  ferrule policy lint
  ferrule policy lint -f cluster/
  kubectl get pods,ns,netpol -A -o yaml | ferrule policy lint -f -

Exit code: 0 nothing is found; 1 something is; 2 a file was not understood.";

const CONVERT: &str = "\
Examples:
  ferrule policy convert -f old.yaml > new.yaml
  kubectl get adminnetworkpolicies -o yaml | ferrule policy convert -f - | kubectl apply -f -

Writes what was converted and nothing else. What the current version cannot say is told with its field,
and that object is left out.

Exit code: 0 each policy is of a current version now; 1 some are not, and told; 2 a file was not
understood.";

const STATUS: &str = "\
Asks the controller, by way of the API server, with the rights of whoever asks: to get agents and policies
of view.policy.ferrule.io, and to list nodes. IN FORCE counts policies; OWED is what a node has yet to be
told, where the replica that answers is the one that it follows.

Exit code: 0 every node has reported, and nothing fails; 1 some have not, or something fails; 2 the
controller cannot be asked.";
