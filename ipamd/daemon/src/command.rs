//! What the binary is asked on its command line. Everything else is set by the environment.

use ipamd_rpc::server::HealthName;

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
            _ => Err(Unknown(words.join(" "))),
        }
    }
}

/// The answer to `--help`.
pub const HELP: &str = "\
ferrule-ipamd manages the ENIs and addresses of this node, and its routing.

Usage: ferrule-ipamd                    be the daemon
       ferrule-ipamd health live|ready  exit 0 if the running daemon says so, 1 if not
       ferrule-ipamd --version
       ferrule-ipamd --help

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
        for bad in [&["health"][..], &["health", "well"], &["run"], &["--help", "x"]] {
            assert!(Command::parse(bad).is_err(), "{bad:?}");
        }
    }
}
