use super::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    RootCertStore,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::{TlsConnector, client};
use tokio_stream::StreamExt as _;

const NAME: &str = "ferrule-controller";

/// Returns an accepted connection and its other end.
async fn pair() -> (SecuredStream, client::TlsStream<TcpStream>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate");
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private).expect("a key that signs");
    let certificates = Arc::<Certificates>::default();
    certificates.show(CertifiedKey::new(vec![certificate.der().clone()], signing));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("its address");
    let mut tls_listener = listen(listener, certificates).expect("TLS");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().expect("versions of TLS");
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tcp = TcpStream::connect(at).await.expect("a connection");
    let name = NAME.try_into().expect("a name");
    let client = TlsConnector::from(Arc::new(config)).connect(name, tcp).await;
    let secured = tls_listener.next().await.expect("a connection").expect("with TLS");
    (secured, client.expect("TLS"))
}

#[tokio::test]
async fn an_ended_connection_writes_no_more_data() {
    let (mut secured, _client) = pair().await;
    secured.write_all(b"data").await.expect("an open connection");
    secured.flush().await.expect("an open connection");
    secured.place.connection().end();
    let written = secured.write_all(b"more").await.expect_err("a closed connection");
    assert_eq!(written.kind(), io::ErrorKind::TimedOut);
    let flushed = secured.flush().await.expect_err("a closed connection");
    assert_eq!(flushed.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_connection_with_a_blocked_reader_ends_during_a_write() {
    let (mut secured, _client) = pair().await;
    let connection = secured.place.connection().clone();
    let writing = tokio::spawn(async move {
        loop {
            if let Err(error) = secured.write_all(&[0; 1 << 16]).await {
                break error;
            }
        }
    });
    connection.end();
    let error = timeout(Duration::from_secs(60), writing).await.expect("an end").expect("no panic");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
