//! The certificates and the server of a replica that accepts each node.

use anyhow::{Context as _, Result};
use control_rpc::{Authenticated, Caller, Certificates, Gatekeeper, SharedHub, listen};
use control_wire::proto::{AnnounceRequest, ReportRequest};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use std::sync::Arc;
use tempfile::NamedTempFile;
use tokio::{net::TcpListener, runtime::Runtime};
use tonic::{Status, transport::Server};

/// The name in the certificate of a replica.
pub const NAME: &str = "ferrule-controller";

/// Accepts every token as the name of the node.
struct TokenIsName;

#[tonic::async_trait]
impl Gatekeeper for TokenIsName {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        Ok(Caller { node: token.to_owned(), ..Caller::default() })
    }

    async fn announce(&self, _: &Caller, _: AnnounceRequest) -> Result<(), Status> {
        Ok(())
    }

    async fn report(&self, _: &Caller, _: ReportRequest) -> Result<(), Status> {
        Ok(())
    }
}

/// A certificate authority with the certificate of a replica.
pub struct Authority {
    /// The certificate of the authority.
    pub file: NamedTempFile,
    certificates: Arc<Certificates>,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate().context("generate a key")?;
        let mut params =
            CertificateParams::new(Vec::new()).context("describe the certificate authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).context("create the certificate authority")?.pem();
        let authority = Issuer::new(params, key);
        let file = NamedTempFile::new().context("create a temporary file")?;
        std::fs::write(file.path(), pem).context("write the authority's certificate")?;
        let certificates = Arc::new(Certificates::default());
        certificates.show(certified(&authority)?);
        Ok(Self { file, certificates })
    }

    /// Serves a hub. The shutdown of the runtime ends all tasks and connections, as the exit of a process would.
    pub fn serve(&self, listener: std::net::TcpListener, hub: &Arc<SharedHub>) -> Result<Runtime> {
        let runtime = Runtime::new().context("start tokio")?;
        let _inside = runtime.enter();
        listener.set_nonblocking(true).context("make the listener non-blocking")?;
        let listener = TcpListener::from_std(listener).context("pass the listener to tokio")?;
        let service = Authenticated::new(hub.clone(), Arc::new(TokenIsName));
        let inside = listen(listener, self.certificates.clone()).context("set up TLS")?;
        tokio::spawn(async move {
            let _ = Server::builder().add_service(service).serve_with_incoming(inside).await;
        });
        drop(_inside);
        Ok(runtime)
    }
}

fn certified(authority: &Issuer<'_, KeyPair>) -> Result<CertifiedKey> {
    let key = KeyPair::generate().context("generate a key")?;
    let params = CertificateParams::new(vec![NAME.to_owned()]).context("describe a certificate")?;
    let certificate = params.signed_by(&key, authority).context("sign a certificate")?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private).context("the key cannot sign")?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signing))
}
