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

/// Returns an ID that no other call returns.
///
/// # Errors
/// If the file of the kernel cannot be read.
pub fn random_id() -> io::Result<String> {
    read_line(Path::new("/proc/sys/kernel/random/uuid"))
}

fn read_line(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}
