//! The serving certificate.

mod files;
mod issued;
mod plan;
mod stored;

use crate::{metrics::Metrics, options::Options};
use anyhow::{Context as _, Result};
use control_rpc::Certificates;
use kube::Client;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use stored::Keeper;
use tokio::sync::watch;
use x509_parser::parse_x509_certificate;

/// The current serving certificate.
pub(crate) struct Showing {
    shown: Arc<Certificates>,
    metrics: Arc<Metrics>,
    /// The reason why there is no valid certificate; `None` if there is one.
    lacks: watch::Sender<Option<String>>,
    last: Vec<u8>,
    /// Expiry of the current certificate, in seconds since 1970.
    ends: i64,
}

impl Showing {
    pub(crate) fn new(
        shown: Arc<Certificates>,
        metrics: Arc<Metrics>,
    ) -> (Self, watch::Receiver<Option<String>>) {
        let (lacks, seen) = watch::channel(Some("no certificate yet".to_owned()));
        (Self { shown, metrics, lacks, last: Vec::new(), ends: i64::MIN }, seen)
    }

    /// Replaces the certificate if the new one differs.
    fn show(&mut self, certificate: &[u8], key: &[u8]) -> Result<()> {
        let both = [certificate, key].concat();
        if both == self.last {
            return Ok(());
        }
        let certified = read(certificate, key)?;
        self.ends = end_of(&certified)?;
        self.shown.show(certified);
        self.last = both;
        self.metrics.certificate(self.ends);
        self.lacks.send_replace(None);
        tracing::info!("serving certificate replaced");
        Ok(())
    }

    /// Reports the current certificate if it has expired.
    fn check_end(&self) {
        if self.has_ended() {
            self.lacks("the certificate has expired");
        }
    }

    fn has_ended(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(now.as_secs()).is_ok_and(|now| now >= self.ends)
    }

    /// Records and logs that the certificate could not be replaced. This matters only if the current one has expired.
    fn lacks(&self, why: &str) {
        if self.record_lack(why) {
            tracing::warn!(why, "no valid serving certificate");
        }
    }

    /// Records that the certificate could not be replaced. Returns true if the current one has expired and the reason is
    /// new.
    fn record_lack(&self, why: &str) -> bool {
        let has_ended = self.has_ended();
        self.lacks.send_if_modified(|lacks| {
            let has_changed = has_ended && lacks.as_deref() != Some(why);
            if has_changed {
                *lacks = Some(why.to_owned());
            }
            has_changed
        })
    }
}

/// Returns the expiry of a certificate in seconds since 1970.
fn end_of(certified: &CertifiedKey) -> Result<i64> {
    let certificate = certified.end_entity_cert().context("cannot read the certificate")?;
    let (_, parsed) = parse_x509_certificate(certificate).context("cannot read the certificate")?;
    Ok(parsed.validity().not_after.timestamp())
}

fn read(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.context("cannot read the certificate")?;
    anyhow::ensure!(!chain.is_empty(), "no certificate in the PEM file");
    let key = PrivateKeyDer::from_pem_slice(key).context("cannot read the key")?;
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(chain, key, &provider).context("the key does not fit the certificate")
}

/// Keeps the serving certificate up to date, forever: from files, or issued by the replicas.
pub(crate) async fn keep(client: Client, options: Arc<Options>, mut showing: Showing) {
    match &options.tls_dir {
        Some(folder) => files::follow(folder, &mut showing).await,
        None => Keeper::new(client, &options).run(&mut showing).await,
    }
}
