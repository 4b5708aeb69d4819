//! The owner of the node: two daemons must never assign its addresses.

use anyhow::{Context as _, Result, bail, ensure};
use config_model::{Migration, Owner};
use config_settings::Settings;
use std::{fs, io, os::unix::net::UnixStream, path::Path};

/// Checks that the amazon-vpc-cni agent does not serve this node and that the node was not given back to it.
///
/// # Errors
/// If the node is not ours, or the owner is unknown.
pub(super) fn is_us(settings: &Settings) -> Result<()> {
    let journal = settings.state_dir.join(Migration::FILE);
    match fs::read(&journal) {
        Ok(bytes) => {
            let told: Migration = serde_json::from_slice(&bytes)
                .with_context(|| format!("read {}", journal.display()))?;
            ensure!(
                told.owner == Owner::Ferrule,
                "the node was given back to amazon-vpc-cni; take it over again with `ferrule migrate \
                 apply`, or exclude it from the DaemonSet of Ferrule"
            );
        }
        Err(err) if err.kind() == io::ErrorKind::NotFound => {}
        Err(err) => return Err(err).with_context(|| format!("read {}", journal.display())),
    }
    let folder = settings.backing_store.parent().unwrap_or_else(|| Path::new("/"));
    let socket = folder.join(SOCKET);
    if UnixStream::connect(&socket).is_ok() {
        bail!(
            "the amazon-vpc-cni agent serves this node at {}; exclude the node from the DaemonSet \
             aws-node",
            socket.display()
        );
    }
    Ok(())
}

/// The amazon-vpc-cni agent's socket, beside its checkpoint.
const SOCKET: &str = "ipamd.sock";

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_node_is_ours_unless_it_was_rolled_back_or_the_agent_serves() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (settings, _) = Settings::resolve([
            ("FERRULE_STATE_DIR".to_owned(), path("")),
            ("AWS_VPC_K8S_CNI_BACKING_STORE".to_owned(), path("ipam.json")),
        ])
        .unwrap();
        let told = || is_us(&settings).map_err(|error| format!("{error:#}"));
        assert_eq!(told(), Ok(()));
        let socket = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        assert!(told().unwrap_err().contains("agent serves"));
        // The socket file of a stopped agent does not count.
        drop(socket);
        assert_eq!(told(), Ok(()));
        let journal = folder.path().join(Migration::FILE);
        for (owner, ours) in [(Owner::Ferrule, true), (Owner::AmazonVpcCni, false)] {
            fs::write(&journal, serde_json::to_vec(&Migration::to(owner)).unwrap()).unwrap();
            assert_eq!(told().is_ok(), ours, "{owner:?}");
        }
        fs::write(&journal, "{").unwrap();
        assert!(told().unwrap_err().contains("migration.json"));
    }
}
