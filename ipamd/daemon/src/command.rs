//! What the binary is asked on its command line. Everything else is set by the environment.

use crate::install::Order;
use runtime_socket::server::HealthName;
use std::time::Duration;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Be the daemon.
    Run,
    /// Say how to use it.
    Help,
    /// Say which version it is.
    Version,
    /// Ask a running daemon for its health.
    Health(HealthName),
    /// Put plugin and network configuration on the node.
    Install(Order),
    /// Take them away again.
    Uninstall {
        /// But the programs.
        keep_programs: bool,
    },
}

/// A command line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not understood; see ferrule-ipamd --help")]
pub struct Unknown(String);

impl Command {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    /// When they are no command.
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
    // More than a year is a slip.
    text.parse().ok().filter(|seconds| *seconds <= 31_536_000).map(Duration::from_secs)
}

/// The answer to `--help`.
pub const HELP: &str = "\
ferrule-ipamd manages the ENIs and addresses of this node, and its routing.

Usage: ferrule-ipamd                    be the daemon
       ferrule-ipamd health live|ready  exit 0 if the running daemon says so, 1 if not
       ferrule-ipamd install            put the plugin and its network configuration on the node
       ferrule-ipamd uninstall          take them away again; others get back what was theirs
       ferrule-ipamd --version
       ferrule-ipamd --help

install copies ferrule-cni, and ferrule if it is there, from this program's own folder to
HOST_CNI_BIN_PATH, and of /opt/cni/plugins those that are missing there; waits until the daemon can
serve pods, writes 05-ferrule.conflist to HOST_CNI_CONFDIR_PATH, and puts aside configurations that
would be used in its stead. Run again, it changes what differs and nothing else.
  --only-programs   only copy the programs: for an init container, before the daemon runs
  --stay            go on looking until SIGTERM, and put right what is changed
  --timeout SECONDS how long to wait for the daemon (300)
uninstall gives configurations their names back, then removes its own, then the programs.
  --keep-programs   leave the programs, for pods that are still to be deleted
Exit code of both: 0 done, 1 not done (run it again), 2 not understood.

Settings are environment variables; docs/settings.md lists them all.
It listens at FERRULE_SOCKET, serves /metrics on port 61678 and introspection at
INTROSPECTION_BIND_ADDRESS. SIGTERM ends it; pods keep their networking.
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
