//! The command line of the binary. All other settings are environment variables.

use crate::install::Order;
use runtime_socket::server::HealthName;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Run the daemon.
    Run,
    Help,
    Version,
    /// Ask a running daemon for its health.
    Health(HealthName),
    /// Install the plugin and its network configuration.
    Install(Order),
    /// Remove them.
    Uninstall {
        /// Except the programs.
        keep_programs: bool,
    },
}

/// A command line that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse {0:?}; see ferrule-ipamd --help")]
pub struct Unknown(String);

impl Command {
    /// Parses the words after the program's name.
    ///
    /// # Errors
    /// If they are not a command.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, Unknown> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        match words.as_slice() {
            [] => Ok(Self::Run),
            ["--help" | "-h" | "help"] => Ok(Self::Help),
            ["--version" | "-V" | "version"] => Ok(Self::Version),
            ["health", "live"] => Ok(Self::Health(HealthName::Live)),
            ["health", "ready"] => Ok(Self::Health(HealthName::Ready)),
            ["install", ..] if asks_for_help(&words) => Ok(Self::Help),
            ["uninstall", ..] if asks_for_help(&words) => Ok(Self::Help),
            ["install", options @ ..] => {
                install(options).map(Self::Install).ok_or_else(|| Unknown(words.join(" ")))
            }
            ["uninstall"] => Ok(Self::Uninstall { keep_programs: false }),
            ["uninstall", "--keep-programs"] => Ok(Self::Uninstall { keep_programs: true }),
            _ => Err(Unknown(words.join(" "))),
        }
    }
}

fn asks_for_help(words: &[&str]) -> bool {
    words.iter().any(|word| ["--help", "-h"].contains(word))
}

fn install(options: &[&str]) -> Option<Order> {
    let mut order = Order::default();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "--only-programs" => order.only_programs = true,
            "--stay" => order.stay = true,
            "--timeout" => order.timeout = seconds(options.next()?)?,
            other => order.timeout = seconds(other.strip_prefix("--timeout=")?)?,
        }
    }
    (!(order.only_programs && order.stay)).then_some(order)
}

fn seconds(text: &str) -> Option<Duration> {
    // More than a year is a mistake.
    text.parse().ok().filter(|seconds| *seconds <= 31_536_000).map(Duration::from_secs)
}

/// The answer to `--help`.
pub const HELP: &str = "\
ferrule-ipamd manages the ENIs and addresses of this node, and its routing.

Usage: ferrule-ipamd                    run the daemon
       ferrule-ipamd health live|ready  exit 0 if the running daemon is live or ready, 1 if not
       ferrule-ipamd install            install the plugin and its network configuration
       ferrule-ipamd uninstall          remove them and restore the configurations of others
       ferrule-ipamd --version
       ferrule-ipamd --help

install copies ferrule-cni, and ferrule if present, from the folder of this program to
HOST_CNI_BIN_PATH, and adds the missing programs of /opt/cni/plugins. It waits until the daemon can
serve pods, writes 05-ferrule.conflist to HOST_CNI_CONFDIR_PATH, and renames configurations that the
runtime would use instead. A second run changes only what differs.
  --only-programs   only copy the programs: for an init container, before the daemon runs
  --stay            keep checking until SIGTERM, and restore changed files
  --timeout SECONDS how long to wait for the daemon (300)
uninstall restores the names of configurations, then removes its own, then the programs.
  --keep-programs   keep the programs, for pods that are not deleted yet
Exit code of both: 0 done, 1 not done (run it again), 2 invalid command line.

Settings are environment variables; docs/settings.md lists them all.
The daemon listens at FERRULE_SOCKET, serves /metrics on port 61678 and introspection at
INTROSPECTION_BIND_ADDRESS. It exits on SIGTERM; pods keep their networking.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_a_command_or_refused() {
        assert_eq!(Command::parse::<&str>(&[]), Ok(Command::Run));
        assert_eq!(Command::parse(&["--version"]), Ok(Command::Version));
        assert_eq!(Command::parse(&["health", "ready"]), Ok(Command::Health(HealthName::Ready)));
        let order = |words: &[&str]| match Command::parse(words) {
            Ok(Command::Install(order)) => order,
            other => panic!("{words:?}: {other:?}"),
        };
        assert_eq!(order(&["install"]), Order::default());
        let minute = Duration::from_secs(60);
        assert_eq!(order(&["install", "--timeout", "60", "--stay"]).timeout, minute);
        assert!(order(&["install", "--timeout=60", "--stay"]).stay);
        assert!(order(&["install", "--only-programs"]).only_programs);
        assert_eq!(Command::parse(&["install", "--help"]), Ok(Command::Help));
        let kept = Command::Uninstall { keep_programs: true };
        assert_eq!(Command::parse(&["uninstall", "--keep-programs"]), Ok(kept));
        for bad in [
            &["install", "--timeout"][..],
            &["install", "--timeout", "soon"],
            &["install", "--timeout=-1"],
            &["install", "here"],
            &["install", "--only-programs", "--stay"],
            &["uninstall", "--stay"],
        ] {
            assert!(Command::parse(bad).is_err(), "{bad:?}");
        }
        for bad in [&["health"][..], &["health", "well"], &["run"], &["--help", "x"]] {
            assert!(Command::parse(bad).is_err(), "{bad:?}");
        }
    }
}
