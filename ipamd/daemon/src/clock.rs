//! The node's clock and its boot ID.

use config_model::{Span, Time};
use nix::time::{ClockId, clock_gettime};
use std::{fs, io, path::Path, time::Duration};

/// Milliseconds since boot, including suspended time.
///
/// # Panics
/// Never on Linux: `CLOCK_BOOTTIME` exists since 2.6.39 and does not fail.
pub fn now() -> Time {
    let spec = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
    let seconds = u64::try_from(spec.tv_sec()).unwrap_or_default();
    let nanos = u64::try_from(spec.tv_nsec()).unwrap_or_default();
    Time(seconds * 1000 + nanos / 1_000_000)
}

/// The time until `when`; zero if it has passed.
pub(crate) fn until(when: Time) -> Duration {
    duration(when.since(now()))
}

pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_millis(span.0)
}

/// The kernel's ID of this boot.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn boot_id() -> io::Result<String> {
    read_line(Path::new("/proc/sys/kernel/random/boot_id"))
}

/// Returns an identity for one start of the daemon.
///
/// Two daemons of one node can run at the same time, and only one of them holds the Lease. In a container both have the
/// process ID 1, so the identity has a random part.
///
/// # Errors
/// If a file of the kernel cannot be read.
pub fn process_identity(boot_id: &str) -> io::Result<String> {
    Ok(format!("{boot_id}-{}", read_line(Path::new("/proc/sys/kernel/random/uuid"))?))
}

fn read_line(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test has one process ID, as two daemons in containers have.
    #[test]
    fn two_starts_with_one_process_id_have_different_identities() {
        let boot = boot_id().expect("the kernel's ID of this boot");
        let [first, second] =
            [(); 2].map(|()| process_identity(&boot).expect("a random part of the kernel"));
        assert_ne!(first, second);
        assert!(first.starts_with(&boot) && second.starts_with(&boot));
    }
}
