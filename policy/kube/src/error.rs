//! Errors of a read, each with its object and the next step.

use config_model::causes;
use thiserror::Error;

/// Reasons why a cluster is not read.
#[derive(Debug, Error)]
pub enum KubeError {
    /// There is no usable kubeconfig.
    #[error(
        "cannot find a cluster: {cause}; name one with --kubeconfig or KUBECONFIG, or files with -f"
    )]
    Config { cause: String },
    /// The kubeconfig has settings that this program cannot use.
    #[error(
        "cannot connect to the kubeconfig's cluster: {cause}; fix the kubeconfig, or HTTPS_PROXY \
         if a proxy fails"
    )]
    Client { cause: String },
    /// The server's words name the scope: a namespace, or the whole cluster.
    #[error(
        "cannot {verb} {what}: {said}; ask an administrator for the right to {verb} them there"
    )]
    Forbidden {
        verb: &'static str,
        /// On what.
        what: String,
        /// The server's words.
        said: String,
    },
    /// The API server does not accept the credentials.
    #[error(
        "the API server rejects the credentials: {said}; renew the credentials of the kubeconfig"
    )]
    Unknown {
        /// The server's words.
        said: String,
    },
    /// There is no such object or kind.
    #[error("there is no {what}: {said}")]
    NotFound {
        what: String,
        /// The server's words.
        said: String,
    },
    /// The object has another version or UID than the request expects, or exists already.
    #[error("cannot {verb} {what}: it changed meanwhile ({said}); run the command again")]
    Conflict {
        verb: &'static str,
        /// On what.
        what: String,
        /// The server's words.
        said: String,
    },
    /// The server did not answer, or not as it should.
    #[error(
        "cannot {verb} {what}: {cause}; check that the API server is reached (kubectl version)"
    )]
    Failed {
        verb: &'static str,
        /// On what.
        what: String,
        cause: String,
    },
}

impl KubeError {
    /// The answer has an unexpected form.
    pub fn odd(verb: &'static str, what: &str, error: &dyn std::error::Error) -> Self {
        Self::Failed { verb, what: what.to_owned(), cause: causes(error) }
    }

    /// Converts an error answer of the API server, or the failure to get an answer.
    pub fn of(error: &kube::Error, verb: &'static str, what: &str) -> Self {
        let what = what.to_owned();
        let kube::Error::Api(status) = error else {
            return Self::Failed { verb, what, cause: causes(error) };
        };
        let said = status.message.clone();
        match status.code {
            401 => Self::Unknown { said },
            403 => Self::Forbidden { verb, what, said },
            404 => Self::NotFound { what, said },
            409 => Self::Conflict { verb, what, said },
            _ => Self::Failed { verb, what, cause: said },
        }
    }
}
