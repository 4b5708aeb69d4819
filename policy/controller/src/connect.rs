//! The way to the API server.

use crate::{fault::chain, options::Options};
use anyhow::{Context as _, Result, anyhow};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);

/// Makes a client. That reads files but reaches nobody, so it succeeds with an API server that is down.
///
/// # Errors
/// What is missing, and which flag says where it should be.
pub(crate) async fn client(options: &Options) -> Result<Client> {
    let mut config = match &options.kubeconfig {
        Some(path) => {
            let flag = || format!("--kubeconfig {}", path.display());
            let read = Kubeconfig::read_from(path).map_err(|error| anyhow!(chain(&error)));
            let read = read.with_context(flag)?;
            let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
            config.map_err(|error| anyhow!(chain(&error))).with_context(flag)?
        }
        None => Config::incluster()
            .map_err(|error| anyhow!(chain(&error)))
            .context("this is no pod with a service account's token: say --kubeconfig")?,
    };
    config.connect_timeout = Some(CONNECT);
    // Each request has its own bound and its own way to try again.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| anyhow!(chain(&error))).context("make a client")
}
