//! A certificate that somebody else makes, in files that they replace.

use super::Showing;
use anyhow::{Context as _, Result};
use std::{path::Path, time::Duration};
use tokio::{fs, time::sleep};

/// How often the files are looked at: a mounted Secret changes without a word.
const LOOK: Duration = Duration::from_secs(5);

/// Shows what is in the folder, for ever. A pair that does not fit, as between two writes, is passed over.
pub(super) async fn follow(folder: &Path, showing: &mut Showing) {
    let mut said = String::new();
    loop {
        let outcome = show(folder, showing).await;
        let now = outcome.map_or_else(|error| format!("--tls-dir: {error:#}"), |()| String::new());
        if !now.is_empty() {
            showing.lacks(&now);
            if now != said {
                tracing::warn!(why = now, "these files are not shown");
            }
        }
        said = now;
        sleep(LOOK).await;
    }
}

async fn show(folder: &Path, showing: &mut Showing) -> Result<()> {
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let read = |path: &Path| format!("read {}", path.display());
    let pem = fs::read(&certificate).await.with_context(|| read(&certificate))?;
    let key_pem = fs::read(&key).await.with_context(|| read(&key))?;
    showing.show(&pem, &key_pem).with_context(|| format!("in {}", folder.display()))
}
