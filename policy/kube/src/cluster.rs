//! The way to the API server.

use crate::KubeError;
use config_model::causes;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{path::PathBuf, time::Duration};

const CONNECT: Duration = Duration::from_secs(10);
/// Longest time without an answer of the server.
const READ: Duration = Duration::from_secs(60);

/// The cluster and the user of requests. The default is that of kubectl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The kubeconfig file; `None` for the files that kubectl reads.
    pub file: Option<PathBuf>,
    /// The context of the kubeconfig; `None` for the current one.
    pub context: Option<String>,
    /// The user in whose name requests are sent, with `groups` and `uid`; `None` for the user of the context.
    pub user: Option<String>,
    pub groups: Vec<String>,
    pub uid: Option<String>,
}

impl Access {
    pub fn of_file(file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..Self::default() }
    }
}

/// A cluster, as somebody with these credentials sees it.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    name: String,
    namespace: String,
}

impl Cluster {
    /// Reads the kubeconfig. Sends no request yet.
    ///
    /// # Errors
    /// If no kubeconfig exists or the configuration is not usable.
    pub async fn connect(access: &Access) -> Result<Self, KubeError> {
        let unusable = |error: &dyn std::error::Error| KubeError::Config { cause: causes(error) };
        let options =
            KubeConfigOptions { context: access.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = match &access.file {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let (mut config, name) = match kubeconfig {
            Ok(kubeconfig) => {
                let current = kubeconfig.current_context.clone();
                let name = options.context.clone().or(current).unwrap_or_default();
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                (config.map_err(|error| unusable(&error))?, name)
            }
            // In a pod there is none, and need not be.
            Err(error) if access.file.is_none() && access.context.is_none() => {
                let config = Config::incluster().map_err(|_| unusable(&error))?;
                (config, "this pod's cluster".to_owned())
            }
            Err(error) => return Err(unusable(&error)),
        };
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        if access.user.is_some() {
            config.auth_info.impersonate.clone_from(&access.user);
            config.auth_info.impersonate_groups = Some(access.groups.clone());
            config.auth_info.impersonate_uid.clone_from(&access.uid);
        }
        let namespace = namespace_of(&config.default_namespace);
        let client = Client::try_from(config)
            .map_err(|error| KubeError::Client { cause: causes(&error) })?;
        Ok(Self { client, name, namespace })
    }

    /// The client of the API server, for callers that need more than policy reads.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The context's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace of the context; `default` if it names none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Gets an object at a path of the API server, as JSON.
    ///
    /// # Errors
    /// If the object does not exist or the user may not read it.
    pub async fn get(&self, path: &str, what: &str) -> Result<String, KubeError> {
        self.read(path, "get", what).await
    }

    /// Like [`Cluster::get`]; `verb` is the verb of RBAC that the path needs, such as `list`.
    ///
    /// # Errors
    /// If the object does not exist or the user may not read it.
    pub async fn read(
        &self,
        path: &str,
        verb: &'static str,
        what: &str,
    ) -> Result<String, KubeError> {
        let request = http::Request::get(path).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError);
        let answered = match request {
            Ok(request) => self.client.request_text(request).await,
            Err(error) => Err(error),
        };
        answered.map_err(|error| KubeError::of(&error, verb, what))
    }
}

/// Returns the namespace of a context. An empty one is none, as in kubectl.
fn namespace_of(context: &str) -> String {
    if context.is_empty() { "default".to_owned() } else { context.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_namespace_of_a_context_is_the_default_one() {
        assert_eq!(namespace_of(""), "default");
        assert_eq!(namespace_of("shop"), "shop");
    }
}
