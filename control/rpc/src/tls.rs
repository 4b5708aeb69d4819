//! Trust of a node in a replica: the replica has a certificate of the controller's authority for the controller's
//! name, at any address.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::sync::Arc;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Reason why the authority cannot be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// The text is no certificates.
    #[error("the authority's certificates cannot be read: {0}")]
    Unreadable(String),
    /// There is none in it.
    #[error("there is no certificate in the authority's file")]
    Empty,
    /// Not a name that a certificate can be for.
    #[error("{0:?} is no server name")]
    Name(String),
}

/// The controller's authority, and the name that its replicas' certificates are for.
#[derive(Clone)]
pub struct Trust {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Trust {
    /// From certificates in PEM.
    ///
    /// # Errors
    /// If they are none, or the name is no server name.
    pub fn new(pem: &[u8], name: &str) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let unreadable =
                |error: &dyn std::fmt::Display| TrustError::Unreadable(error.to_string());
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if roots.is_empty() {
            return Err(TrustError::Empty);
        }
        let named = ServerName::try_from(name.to_owned());
        let name = named.map_err(|_| TrustError::Name(name.to_owned()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TrustError::Unreadable(error.to_string()))?;
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    pub(crate) async fn wrap(&self, tcp: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), tcp).await
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trust").field("name", &self.name).finish_non_exhaustive()
    }
}
