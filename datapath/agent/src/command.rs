//! The command line. All other settings are in the environment.

use config_settings::PolicyBackend;
use runtime_socket::server::HealthName;
use std::net::SocketAddr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the agent.
    Run(Flags),
    /// Print the usage.
    Help,
    /// Print the version.
    Version,
    /// Remove enforcement from this node: its pods are open.
    Retire,
    /// Probe a running agent's health.
    Health(HealthName),
}

/// The flags that override the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `None` is the backend of the settings.
    pub backend: Option<PolicyBackend>,
    /// The controller's replicas. If there are any, the daemon's file is not read.
    pub replicas: Vec<SocketAddr>,
}

/// An invalid command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid command line; see ferrule-agent --help")]
pub struct Unknown(String);

impl Command {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    /// The arguments are not a command.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, Unknown> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        match words.as_slice() {
            ["--help" | "-h" | "help"] => Ok(Self::Help),
            ["--version" | "-V" | "version"] => Ok(Self::Version),
            ["retire"] => Ok(Self::Retire),
            ["health", "live"] => Ok(Self::Health(HealthName::Live)),
            ["health", "ready"] => Ok(Self::Health(HealthName::Ready)),
            options => flags(options).map(Self::Run).ok_or_else(|| Unknown(words.join(" "))),
        }
    }
}

fn flags(words: &[&str]) -> Option<Flags> {
    let mut flags = Flags::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value),
            None => (*word, *words.next()?),
        };
        match name {
            "--backend" => {
                flags.backend = Some(match value {
                    "none" => PolicyBackend::None,
                    "ebpf" => PolicyBackend::Ebpf,
                    _ => return None,
                });
            }
            "--replica" => flags.replicas.push(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(flags)
}

/// The answer to `--help`.
pub const HELP: &str = "\
ferrule-agent enforces network policy on this node: it follows a replica of ferrule-controller, persists its
snapshot, and lets pods start once their policies are in force.

Usage: ferrule-agent [--backend none|ebpf] [--replica ADDRESS:PORT]...
       ferrule-agent retire             remove the backend ebpf's programs and pins: all pods of this node are open.
                                        Refused while an agent runs
       ferrule-agent health live|ready  exit 0 if the running agent is, 1 if not
       ferrule-agent --version
       ferrule-agent --help

  --backend none   enforce nothing: policies are received, persisted and reported only
                   (FERRULE_AGENT_BACKEND)
  --backend ebpf   enforce policies by eBPF programs at each pod's host veth; needs kernel 6.1, a bpffs,
                   and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; CAP_NET_RAW for DNS names
  --replica AT     dial this replica; may be given more than once. Without it the addresses in
                   FERRULE_CONTROLLER_REPLICAS are dialed, a file that ferrule-ipamd writes

MY_NODE_NAME must name the node. docs/settings.md lists all settings. SIGTERM stops the agent; what is in
force stays in force.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_a_command_or_refused() {
        assert_eq!(Command::parse::<&str>(&[]), Ok(Command::Run(Flags::default())));
        assert_eq!(Command::parse(&["retire"]), Ok(Command::Retire));
        assert_eq!(Command::parse(&["health", "live"]), Ok(Command::Health(HealthName::Live)));
        let words = ["--backend", "none", "--replica=127.0.0.1:1", "--replica", "[::1]:2"];
        let Ok(Command::Run(flags)) = Command::parse(&words) else { panic!("it is a command") };
        let at = ["127.0.0.1:1", "[::1]:2"].map(|text| text.parse().expect("an address"));
        assert_eq!((flags.backend, flags.replicas), (Some(PolicyBackend::None), at.to_vec()));
        let ebpf = Flags { backend: Some(PolicyBackend::Ebpf), ..Flags::default() };
        assert_eq!(Command::parse(&["--backend=ebpf"]), Ok(Command::Run(ebpf)));
        for bad in [
            &["--backend"][..],
            &["--backend", "magic"],
            &["--replica", "controller"],
            &["health"],
            &["health", "well"],
            &["run"],
            &["retire", "now"],
        ] {
            assert!(Command::parse(bad).is_err(), "{bad:?}");
        }
    }
}
