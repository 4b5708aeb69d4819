//! The client authority of the API server, which signs the certificates with which it calls aggregated APIs.

use anyhow::{Context as _, Result, anyhow, bail};
use control_rpc::Certificates;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The ConfigMap of the client authority.
pub(super) const WHERE: &str = "see ConfigMap extension-apiserver-authentication in kube-system";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// Timeout of the request.
const ANSWER: Duration = Duration::from_secs(10);

/// The authority and the allowed names of those certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    authority: String,
    /// Empty allows any name.
    names: BTreeSet<String>,
}

impl Front {
    /// Reads the ConfigMap.
    pub(super) async fn look(client: &Client) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let map = timeout(ANSWER, maps.get(NAME)).await.context("no answer in time")?;
        let data = map.with_context(|| format!("cannot get ConfigMap {NAMESPACE}/{NAME}"))?.data;
        let mut data = data.unwrap_or_default();
        let authority = data.remove("requestheader-client-ca-file");
        let authority = authority.filter(|pem| !pem.trim().is_empty());
        let names = data.remove("requestheader-allowed-names").unwrap_or_else(|| "[]".to_owned());
        Ok(Self {
            authority: authority.ok_or_else(|| {
                anyhow!("no requestheader-client-ca-file: the API server has no aggregation")
            })?,
            names: serde_json::from_str(&names)
                .context("cannot read requestheader-allowed-names")?,
        })
    }

    /// Returns an acceptor that requires such a certificate.
    pub(super) fn acceptor(&self, shown: Arc<Certificates>) -> Result<TlsAcceptor> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.authority.as_bytes()) {
            let certificate = certificate.context("cannot read requestheader-client-ca-file")?;
            roots.add(certificate).context("cannot use requestheader-client-ca-file")?;
        }
        if roots.is_empty() {
            bail!("no certificate in requestheader-client-ca-file");
        }
        let provider = Arc::new(default_provider());
        let signed = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let signed = signed.build().context("cannot use requestheader-client-ca-file")?;
        let named = Named { signed, names: self.names.clone() };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("cannot configure TLS")?
            .with_client_cert_verifier(Arc::new(named))
            .with_cert_resolver(shown);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Verifier that accepts certificates of the authority with one of the names.
#[derive(Debug)]
struct Named {
    signed: Arc<dyn ClientCertVerifier>,
    names: BTreeSet<String>,
}

impl Named {
    fn has_name(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, read)) = X509Certificate::from_der(certificate) else { return false };
        let mut names = read.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        self.names.is_empty() || names.any(|name| self.names.contains(name))
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end, between, now)?;
        let wrong = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
        self.has_name(end).then_some(verified).ok_or(wrong)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
