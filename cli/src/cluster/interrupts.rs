//! Signals that stop a command early.

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals are caught from the creation of this value on.
pub(super) struct Interrupts {
    by_key: Signal,
    by_others: Signal,
    by_terminal: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self> {
        let to = |kind| signal(kind).context("cannot listen for signals");
        let (by_key, by_others) = (to(SignalKind::interrupt())?, to(SignalKind::terminate())?);
        Ok(Self { by_key, by_others, by_terminal: to(SignalKind::hangup())? })
    }

    /// Waits for the next signal and returns its description.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.by_key.recv() => "interrupted",
            _ = self.by_others.recv() => "ended",
            _ = self.by_terminal.recv() => "its terminal was closed",
        }
    }
}
