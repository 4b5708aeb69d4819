//! The grace period.

use std::time::Duration;

/// The longest time for which a program runs. After it no program uses a row that was removed.
pub(crate) const GRACE: Duration = Duration::from_millis(10);
