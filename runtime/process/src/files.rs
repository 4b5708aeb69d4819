//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit. Container runtimes leave the soft limit of systemd, 1,024,
/// and each client of a port uses one file. An error is only logged: the program works with the lower limit.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough for the other tests of this process.
    const LOW: u64 = 512;

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let low = Rlimit { current: Some(LOW), maximum };
        setrlimit(Resource::Nofile, low).expect("a lower soft limit");
        raise_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((limit.current, limit.maximum), (maximum, maximum));
        assert_ne!(limit.current, Some(LOW));
    }
}
