//! A certificate in files, which another program renews.

use super::Showing;
use anyhow::{Context as _, Result};
use std::{path::Path, time::Duration};
use tokio::{fs, time::sleep};

/// Interval of reads. A mounted Secret changes without a notification.
const LOOK: Duration = Duration::from_secs(5);

/// Serves the certificate of the folder, forever. A pair that does not fit, as between two writes, is skipped.
pub(super) async fn follow(folder: &Path, showing: &mut Showing) {
    let mut last_fault = String::new();
    loop {
        let outcome = show(folder, showing).await;
        let now = outcome.map_or_else(|error| format!("--tls-dir: {error:#}"), |()| String::new());
        if !now.is_empty() {
            showing.lacks(&now);
            if now != last_fault {
                tracing::warn!(why = now, "cannot use the certificate files");
            }
        }
        last_fault = now;
        sleep(LOOK).await;
    }
}

async fn show(folder: &Path, showing: &mut Showing) -> Result<()> {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let read = |path: &Path| format!("cannot read {}", path.display());
    let pem = fs::read(&certificate).await.with_context(|| read(&certificate))?;
    let key_pem = fs::read(&key).await.with_context(|| read(&key))?;
    showing.show(&pem, &key_pem).with_context(|| format!("in {}", folder.display()))?;
    showing.check_end();
    Ok(())
}
