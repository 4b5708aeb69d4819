//! Access to the API server: a certificate authority, and certificates for any user.

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::json;
use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// A user, as the API server sees one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user's name, for example `system:node:node-1`.
    pub user: String,
    /// The group, if any; `system:masters` passes every check.
    pub group: Option<String>,
    /// The namespace that is meant where none is named.
    pub namespace: Option<String>,
}

impl Identity {
    /// A user with all rights.
    pub fn admin() -> Self {
        Self { user: "admin".to_owned(), group: Some("system:masters".to_owned()), namespace: None }
    }

    /// A user with only the rights that RBAC objects give.
    pub fn user(name: &str) -> Self {
        Self { user: name.to_owned(), group: None, namespace: None }
    }

    /// A service account, as a pod of its namespace.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Self { user, group: None, namespace: Some(namespace.to_owned()) }
    }
}

/// The cluster's certificate authority and its files.
pub struct Access {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Access {
    /// A new authority, and the API server's own certificate for loopback.
    pub(crate) fn create(folder: &Path, also_at: &[Ipv4Addr]) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("protect {}", folder.display()))?;
        let key = KeyPair::generate().context("make the authority's key")?;
        let pem = key.serialize_pem();
        let access = Self { folder: folder.to_owned(), authority: authority(NAME, key)? };
        access.write("ca.crt", &access.authority.pem())?;
        access.write("ca.key", &pem)?;
        access.server(also_at)?;
        access.front()?;
        let key = KeyPair::generate().context("make the service accounts' key")?;
        access.write("accounts.key", &key.serialize_pem())?;
        access.write("accounts.pub", &key.public_key_pem())?;
        Ok(access)
    }

    /// The authority that an earlier command made in this folder.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("ca.key");
        let pem = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let key = KeyPair::from_pem(&pem).with_context(|| format!("use {}", path.display()))?;
        // Of the same name and key: what it issues is good by the first one's certificate.
        Ok(Self { folder: folder.to_owned(), authority: authority(NAME, key)? })
    }

    /// A file of the authority.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn server(&self, also_at: &[Ipv4Addr]) -> Result<()> {
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec())
            .context("name the API server")?;
        for &address in [Ipv4Addr::LOCALHOST, FIRST_SERVICE].iter().chain(also_at) {
            params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(address)));
        }
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue("server", params)
    }

    /// Client certificate, from a separate authority, that the API server shows to aggregated API servers.
    fn front(&self) -> Result<()> {
        let key = KeyPair::generate().context("make the front's key")?;
        let by = authority("ferrule-cluster-front", key)?;
        self.write("front-ca.crt", &by.pem())?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, FRONT);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue_by(&by, "front", params)
    }

    /// A server's certificate for this address; its path without `.crt` and `.key`.
    pub(crate) fn server_of(&self, name: &str, at: IpAddr) -> Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress(at));
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params)?;
        Ok(self.file(name))
    }

    /// A user's certificate; its path without `.crt` and `.key`.
    pub(crate) fn client_of(&self, name: &str, who: &Identity) -> Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, who.user.as_str());
        if let Some(group) = &who.group {
            params.distinguished_name.push(DnType::OrganizationName, group.as_str());
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(name, params)?;
        Ok(self.file(name))
    }

    fn issue(&self, name: &str, params: CertificateParams) -> Result<()> {
        self.issue_by(&self.authority, name, params)
    }

    fn issue_by(
        &self,
        by: &CertifiedIssuer<'static, KeyPair>,
        name: &str,
        params: CertificateParams,
    ) -> Result<()> {
        let key = KeyPair::generate().with_context(|| format!("make the key of {name}"))?;
        let certificate = params
            .signed_by(&key, by)
            .with_context(|| format!("sign the certificate of {name}"))?;
        self.write(&format!("{name}.crt"), &certificate.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    /// Writes a kubeconfig `NAME.kubeconfig` for this user at that server; its path.
    pub(crate) fn kubeconfig(&self, name: &str, who: &Identity, server: &str) -> Result<PathBuf> {
        self.client_of(name, who)?;
        // JSON is YAML; the server's name is given, so that a forwarded address works as well.
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{ "name": "ferrule", "cluster": {
                "server": server,
                "tls-server-name": "kubernetes",
                "certificate-authority-data": self.encoded("ca.crt")?,
            }}],
            "users": [{ "name": name, "user": {
                "client-certificate-data": self.encoded(&format!("{name}.crt"))?,
                "client-key-data": self.encoded(&format!("{name}.key"))?,
            }}],
            "contexts": [{ "name": name, "context": {
                "cluster": "ferrule",
                "user": name,
                "namespace": who.namespace.as_deref().unwrap_or("default"),
            } }],
        });
        let file = format!("{name}.kubeconfig");
        self.write(&file, &format!("{config:#}\n"))?;
        Ok(self.file(&file))
    }

    /// A file as kubeconfigs hold it, so that they can be taken to where the file is not.
    fn encoded(&self, name: &str) -> Result<String> {
        let path = self.file(name);
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(BASE64_STANDARD.encode(text))
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        use std::io::Write as _;
        let path = self.file(name);
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let write = || options.open(&path)?.write_all(text.as_bytes());
        write().with_context(|| format!("write {}", path.display()))
    }
}

fn authority(name: &str, key: KeyPair) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, key).context("make the authority's certificate")
}

/// The authority's name.
const NAME: &str = "ferrule-cluster";
/// Name of the API server as a client of aggregated API servers.
pub(crate) const FRONT: &str = "front-proxy-client";
/// The first address of the services' range, at which pods would find the API server.
const FIRST_SERVICE: Ipv4Addr = Ipv4Addr::new(172, 20, 0, 1);
