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

/// A connection that has come through a listen, and its other end.
async fn through() -> (SecuredStream, client::TlsStream<TcpStream>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![NAME.to_owned()]).expect("parameters");
    let certificate = params.self_signed(&key).expect("a certificate");
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = any_supported_type(&private).expect("a key that signs");
    let shown = Arc::<Certificates>::default();
    shown.show(CertifiedKey::new(vec![certificate.der().clone()], signing));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("its address");
    let mut door = listen(listener, shown).expect("TLS");
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
    let secured = door.next().await.expect("a connection").expect("with TLS");
    (secured, client.expect("TLS"))
}

#[tokio::test]
async fn a_connection_that_is_to_end_writes_nothing_more() {
    let (mut secured, _client) = through().await;
    secured.write_all(b"said").await.expect("it stays");
    secured.flush().await.expect("it stays");
    secured.place.0.end();
    let written = secured.write_all(b"more").await.expect_err("it is to end");
    assert_eq!(written.kind(), io::ErrorKind::TimedOut);
    let flushed = secured.flush().await.expect_err("it is to end");
    assert_eq!(flushed.kind(), io::ErrorKind::TimedOut);
}

#[tokio::test]
async fn a_connection_that_is_written_to_for_ever_ends_where_nobody_takes_anything() {
    let (mut secured, _client) = through().await;
    let visitor = secured.place.0.clone();
    let writing = tokio::spawn(async move {
        loop {
            if let Err(error) = secured.write_all(&[0; 1 << 16]).await {
                break error;
            }
        }
    });
    visitor.end();
    let error = timeout(Duration::from_secs(60), writing).await.expect("an end").expect("no panic");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
