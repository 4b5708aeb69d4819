use config_model::Time;
use nix::time::{ClockId, clock_gettime};

/// Time since boot, including suspended time. Leases are measured with it.
pub(crate) fn now() -> Time {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or_else(
        |_| Time::default(),
        |at| {
            let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
            let millis = u64::try_from(at.tv_nsec() / 1_000_000).unwrap_or(0);
            Time(seconds * 1000 + millis)
        },
    )
}
