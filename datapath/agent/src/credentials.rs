//! The credentials of a connection to a replica: CA certificates and token, from files that are replaced while it runs.

use config_settings::Agent;
use control_rpc::Trust;
use std::{fs, path::PathBuf};

/// A file cannot be used. It is read again at the next attempt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    /// The CA file cannot be read.
    #[error("cannot read the controller's CA {}: {cause}; set FERRULE_CONTROLLER_CA", path.display())]
    NoAuthority { path: PathBuf, cause: std::io::Error },
    /// The CA file contains no CA certificate.
    #[error("cannot use the controller's CA {}: {cause}", path.display())]
    BadAuthority { path: PathBuf, cause: control_rpc::TrustError },
    /// The token's file cannot be read.
    #[error("cannot read the token {}: {cause}; set FERRULE_CONTROLLER_TOKEN", path.display())]
    NoToken { path: PathBuf, cause: std::io::Error },
}

/// The paths of these files.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    authority: PathBuf,
    token: PathBuf,
    name: String,
}

impl Credentials {
    pub(crate) fn of(agent: &Agent) -> Self {
        Self {
            authority: agent.authority.clone(),
            token: agent.token.clone(),
            name: agent.server_name.clone(),
        }
    }

    pub(crate) fn trust(&self) -> Result<Trust, CredentialsError> {
        let path = || self.authority.clone();
        let pem = fs::read(&self.authority);
        let pem = pem.map_err(|cause| CredentialsError::NoAuthority { path: path(), cause })?;
        let trust = Trust::new(&pem, &self.name);
        trust.map_err(|cause| CredentialsError::BadAuthority { path: path(), cause })
    }

    pub(crate) fn token(&self) -> Result<String, CredentialsError> {
        let token = fs::read_to_string(&self.token);
        let token =
            token.map_err(|cause| CredentialsError::NoToken { path: self.token.clone(), cause })?;
        Ok(token.trim().to_owned())
    }
}
