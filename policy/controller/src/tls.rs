//! The certificate that nodes see.

mod files;
mod kept;
mod made;
mod plan;

use crate::{metrics::Metrics, options::Options};
use anyhow::{Context as _, Result};
use kept::Keeper;
use kube::Client;
use policy_rpc::Shown;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use std::sync::Arc;
use tokio::sync::watch;

/// Shows certificates, one after another.
pub(crate) struct Showing {
    shown: Arc<Shown>,
    metrics: Arc<Metrics>,
    /// Why there is none; nothing once there is one.
    lacks: watch::Sender<Option<String>>,
    last: Vec<u8>,
}

impl Showing {
    pub(crate) fn new(
        shown: Arc<Shown>,
        metrics: Arc<Metrics>,
    ) -> (Self, watch::Receiver<Option<String>>) {
        let (lacks, seen) = watch::channel(Some("no certificate is made yet".to_owned()));
        (Self { shown, metrics, lacks, last: Vec::new() }, seen)
    }

    /// Shows this one from now on, if it is another.
    fn show(&mut self, certificate: &[u8], key: &[u8]) -> Result<()> {
        let both = [certificate, key].concat();
        if both == self.last {
            return Ok(());
        }
        self.shown.show(read(certificate, key)?);
        self.last = both;
        self.metrics.certificates.inc();
        self.lacks.send_replace(None);
        tracing::info!("another certificate is shown");
        Ok(())
    }

    /// There is none, or the one that is shown cannot be renewed.
    fn lacks(&self, why: &str) {
        let is_news = self.lacks.send_if_modified(|lacks| {
            let is_news = lacks.as_deref().is_some_and(|before| before != why);
            if is_news {
                *lacks = Some(why.to_owned());
            }
            is_news
        });
        if is_news {
            tracing::warn!(why, "there is no certificate to show");
        }
    }
}

fn read(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.context("read the certificate")?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in it");
    let key = PrivateKeyDer::from_pem_slice(key).context("read the key")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).context("use the certificate with its key")
}

/// Shows certificates for ever: those of files, or those that the replicas make.
pub(crate) async fn keep(client: Client, options: Arc<Options>, mut showing: Showing) {
    match &options.tls_dir {
        Some(folder) => files::follow(folder, &mut showing).await,
        None => Keeper::new(client, &options).run(&mut showing).await,
    }
}
