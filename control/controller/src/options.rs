//! Flags of a replica, and their environment variables.

use crate::agents::Account;
use clap::{Parser, ValueEnum};
use config_model::registry;
use config_settings as settings;
use runtime_process::log::{Form, Log};
use std::{
    net::{Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// Sends each node its part of network policy. Every flag can be given by the environment instead.
#[derive(Clone, Debug, Parser)]
#[command(name = "ferrule-controller", version)]
pub struct Options {
    /// A kubeconfig; by default the pod's service account
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The API server's own URL or host; by default that of the kubeconfig or of the environment
    #[arg(long, env = "FERRULE_CONTROLLER_API_SERVER", value_name = "URL")]
    pub api_server: Option<String>,
    /// The namespace of the Lease, the Secret and the ConfigMap
    #[arg(long, env = "POD_NAMESPACE", default_value = "kube-system")]
    pub namespace: String,
    /// The unique name of this replica; by default a random name
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// The address and port for agents
    #[arg(long, env = "FERRULE_CONTROLLER_LISTEN", value_name = "ADDRESS",
        default_value_t = SocketAddr::from((Ipv6Addr::UNSPECIFIED, registry::CONTROLLER_PORT)))]
    pub listen: SocketAddr,
    /// The address and port of /livez, /readyz and /metrics
    #[arg(long, env = "FERRULE_CONTROLLER_HEALTH", value_name = "ADDRESS",
        default_value_t = SocketAddr::from((Ipv6Addr::UNSPECIFIED, registry::CONTROLLER_HEALTH_PORT)))]
    pub health: SocketAddr,
    /// The address and port of the aggregated API for policies, groups and nodes; by default it is off
    #[arg(long, env = "FERRULE_CONTROLLER_VIEW", value_name = "ADDRESS")]
    pub view: Option<SocketAddr>,
    /// The Service of --view, in the same namespace
    #[arg(
        long,
        env = "FERRULE_CONTROLLER_VIEW_SERVICE",
        default_value = "ferrule-controller-view"
    )]
    pub view_service: String,
    /// The address and port at which agents send reports to this replica; by default POD_IP and the port of --listen
    #[arg(long, env = "FERRULE_CONTROLLER_ADVERTISE", value_name = "ADDRESS")]
    pub advertise: Option<SocketAddr>,
    /// This replica's address
    #[arg(long, env = "POD_IP", value_name = "IP", hide = true)]
    pub pod_ip: Option<std::net::IpAddr>,
    /// The audience of agents' tokens
    #[arg(long, env = "FERRULE_CONTROLLER_AUDIENCE", default_value = registry::CONTROLLER_NAME)]
    pub audience: String,
    /// The agents' service account
    #[arg(
        long,
        env = "FERRULE_CONTROLLER_AGENTS",
        value_name = "NAMESPACE/NAME",
        default_value = "kube-system/ferrule-agent"
    )]
    pub agents: Account,
    /// The DNS name in the serving certificate
    #[arg(long, env = "FERRULE_CONTROLLER_SERVER_NAME", default_value = registry::CONTROLLER_NAME)]
    pub server_name: String,
    /// A folder with tls.crt and tls.key, read again after a change; by default the replicas issue certificates themselves
    #[arg(long, env = "FERRULE_CONTROLLER_TLS_DIR", value_name = "FOLDER")]
    pub tls_dir: Option<PathBuf>,
    /// The Secret of the replicas' own certificate authority
    #[arg(long, env = "FERRULE_CONTROLLER_TLS_SECRET", default_value = "ferrule-controller-tls")]
    pub tls_secret: String,
    /// The ConfigMap with the authority's certificates, as ca.crt
    #[arg(long, env = "FERRULE_CONTROLLER_CA_CONFIGMAP", default_value = registry::CONTROLLER_CA)]
    pub ca_configmap: String,
    /// The lifetime of issued certificates; they are renewed after two thirds
    #[arg(long, env = "FERRULE_CONTROLLER_CERTIFICATE_LIFE", value_name = "TIME",
        default_value = "90d", value_parser = duration)]
    pub certificate_life: Duration,
    /// The lifetime of the authority; the next one is published after half and used after two thirds
    #[arg(long, env = "FERRULE_CONTROLLER_AUTHORITY_LIFE", value_name = "TIME",
        default_value = "730d", value_parser = duration)]
    pub authority_life: Duration,
    /// The Lease of the replica that collects reports and writes status
    #[arg(long, env = "FERRULE_CONTROLLER_LEASE", default_value = registry::CONTROLLER_NAME)]
    pub lease: String,
    /// The lease duration
    #[arg(long, env = "FERRULE_CONTROLLER_LEASE_LASTS", value_name = "TIME",
        default_value = "15s", value_parser = duration)]
    pub lease_lasts: Duration,
    /// The time for which streams stay open after SIGTERM, so that agents can move to another replica
    #[arg(long, env = "FERRULE_CONTROLLER_GRACE", value_name = "TIME",
        default_value = "5s", value_parser = duration)]
    pub grace: Duration,
    /// The component that serves Services on nodes; with ebpf the replica reads EndpointSlices, and sends them and Services to
    /// nodes that serve Services
    #[arg(long, env = "FERRULE_CONTROLLER_SERVICES", default_value = "none")]
    pub services: Services,
    /// The page size of lists
    #[arg(long, env = "FERRULE_CONTROLLER_PAGE", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(1..=5_000))]
    pub page: u32,
    /// The silence after which a watch is restarted at its position; bookmarks arrive about every minute
    #[arg(long, env = "FERRULE_CONTROLLER_WATCH_SILENCE", value_name = "TIME", hide = true,
        default_value = "90s", value_parser = duration)]
    pub watch_silence: Duration,
    /// The log format: text or JSON
    #[arg(long, env = "FERRULE_CONTROLLER_LOG_FORMAT", default_value = "json")]
    pub log_format: LogFormat,
    /// The lowest level of logged messages
    #[arg(long, env = "FERRULE_CONTROLLER_LOG_LEVEL", default_value = "info")]
    pub log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Services {
    /// Another program, such as kube-proxy
    None,
    /// The agents
    Ebpf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line
    Json,
    /// Plain text
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// All messages
    Debug,
    /// Changes of state
    Info,
    /// Problems
    Warn,
    /// Failures
    Error,
}

impl Options {
    /// Returns the log settings. `ours` are the own crates.
    pub fn log(&self, ours: &'static [&'static str]) -> Log {
        let level = match self.log_level {
            LogLevel::Debug => settings::LogLevel::Debug,
            LogLevel::Info => settings::LogLevel::Info,
            LogLevel::Warn => settings::LogLevel::Warn,
            LogLevel::Error => settings::LogLevel::Error,
        };
        let form = match self.log_format {
            LogFormat::Json => Form::Json,
            LogFormat::Text => Form::Text,
        };
        Log { ours, level, form }
    }

    /// Returns true if nodes serve Services.
    pub(crate) fn serves(&self) -> bool {
        self.services == Services::Ebpf
    }

    /// Returns the address at which nodes reach this replica with reports.
    pub fn reports_to(&self) -> Option<SocketAddr> {
        let own = || Some(SocketAddr::new(self.pod_ip?, self.listen.port()));
        let at = Some(self.listen).filter(|at| !at.ip().is_unspecified());
        self.advertise.or_else(own).or(at)
    }

    /// Returns the address at which the API server finds `--view` at this port. `None` for an address that a Service
    /// cannot have.
    pub fn view_at(&self, port: u16) -> Option<SocketAddr> {
        let at = SocketAddr::new(self.reports_to()?.ip(), port);
        Some(at).filter(|at| !at.ip().is_loopback())
    }

    /// Returns the DNS names of the certificate: the name that nodes verify, then the API server's.
    pub fn certified(&self) -> String {
        match self.view {
            Some(_) => format!("{},{}.{}.svc", self.server_name, self.view_service, self.namespace),
            None => self.server_name.clone(),
        }
    }

    /// Checks flags against each other.
    ///
    /// # Errors
    /// Names the conflicting flags.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.certificate_life * 2 <= self.authority_life,
            "--certificate-life ({:?}) is more than half of --authority-life ({:?}): shorten it",
            self.certificate_life,
            self.authority_life
        );
        anyhow::ensure!(
            self.certificate_life >= SHORTEST,
            "--certificate-life ({:?}) is less than {SHORTEST:?}: lengthen it",
            self.certificate_life
        );
        anyhow::ensure!(
            self.lease_lasts >= Duration::from_secs(3),
            "--lease-lasts ({:?}) is less than 3s: lengthen it",
            self.lease_lasts
        );
        Ok(())
    }
}

/// Minimum lifetime of a certificate, as expiry has a resolution of one second.
const SHORTEST: Duration = Duration::from_secs(6);

/// Parses a duration such as `90d`, `12h`, `15m`, `30s` or `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} has no number"))?;
    let scale = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err("write a number and ms, s, m, h or d".to_owned()),
    };
    let seconds = number.checked_mul(scale).filter(|seconds| *seconds <= CENTURY);
    seconds.map(Duration::from_secs).ok_or_else(|| "that is too long".to_owned())
}

const CENTURY: u64 = 100 * 366 * 86_400;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use clap::CommandFactory as _;

    fn parse(args: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["ferrule-controller"], args].concat())
    }

    #[test]
    fn the_reference_page_has_every_flag_as_it_is_read() {
        let command = Options::command();
        let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let text =
            |text: Option<&std::ffi::OsStr>| text.and_then(|t| t.to_str()).unwrap().to_owned();
        let read = shown.map(|arg| {
            let default = arg.get_default_values().first().map(|default| text(Some(default)));
            let flag = arg.get_long().unwrap().to_owned();
            let meaning = arg.get_help().unwrap().to_string();
            [flag, text(arg.get_env()), default.unwrap_or_default(), meaning]
        });
        let page = settings::CONTROLLER.iter();
        let page = page.map(|at| [at.flag, at.variable, at.default, at.meaning].map(str::to_owned));
        assert_eq!(read.collect::<Vec<_>>(), page.collect::<Vec<_>>());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90d"), Ok(Duration::from_secs(7_776_000)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["", "5", "s", "1w", "-1s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_invalid_value_names_its_flag() {
        let wrong = [
            (["--listen", "here"], "--listen"),
            (["--agents", "ferrule-agent"], "--agents"),
            (["--certificate-life", "soon"], "--certificate-life"),
            (["--page", "0"], "--page"),
        ];
        for (args, flag) in wrong {
            let error = parse(&args).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
        let odd = parse(&["--certificate-life", "30d", "--authority-life", "30d"]).unwrap();
        assert!(odd.check().unwrap_err().to_string().contains("--authority-life"));
        parse(&[]).unwrap().check().unwrap();
    }

    #[test]
    fn nodes_find_a_replica_at_its_own_address() {
        let at = |args: &[&str]| parse(args).unwrap().reports_to().map(|at| at.to_string());
        assert_eq!(at(&["--listen", "[::]:7"]), None);
        assert_eq!(at(&["--listen", "127.0.0.1:7"]).as_deref(), Some("127.0.0.1:7"));
        assert_eq!(
            at(&["--listen", "[::]:7", "--pod-ip", "fd00::1"]).as_deref(),
            Some("[fd00::1]:7")
        );
        let args = ["--pod-ip", "10.0.0.1", "--advertise", "10.0.0.2:8"];
        assert_eq!(at(&args).as_deref(), Some("10.0.0.2:8"));
    }
}
