//! The cluster that a command reads.

use anyhow::{Result, bail};
use clap::Args;
use policy_kube::{Access, Cluster, KubeError};
use policy_objects::Named;
use std::path::PathBuf;

/// The cluster to read if no files are named.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct KubeTarget {
    /// The kubeconfig, if kubectl would not find it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if not the current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Send requests in the name of this user
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// A group of the user of --as; repeat for several groups
    #[arg(long = "as-group", value_name = "GROUP", requires = "user")]
    groups: Vec<String>,
    /// The UID of the user of --as
    #[arg(long = "as-uid", value_name = "UID", requires = "user")]
    uid: Option<String>,
}

/// The namespace of Ferrule's own pods.
#[derive(Args, Clone, Debug)]
pub(crate) struct OwnNamespace {
    /// The namespace of Ferrule's own pods
    #[arg(id = "ferrule_namespace", long = "ferrule-namespace", value_name = "NAME", env = "FERRULE_NAMESPACE",
        default_value = "kube-system", value_parser = object_name)]
    pub(crate) name: String,
}

impl KubeTarget {
    /// Returns true if the user named a cluster.
    pub(crate) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.user.is_some()
    }

    /// Reads the kubeconfig.
    ///
    /// # Errors
    /// No kubeconfig exists or it is not usable.
    pub(crate) async fn connect(&self) -> Result<Cluster, KubeError> {
        let access = Access {
            file: self.kubeconfig.clone(),
            context: self.context.clone(),
            user: self.user.clone(),
            groups: self.groups.clone(),
            uid: self.uid.clone(),
        };
        Cluster::connect(&access).await
    }
}

/// Returns a pod as the user named it: `NAMESPACE/POD`, or `POD` in the given namespace.
///
/// # Errors
/// The name is not a pod's name, it has no namespace, or it has another namespace than the given one.
pub(crate) fn pod_name(word: &str, namespace: Option<&str>) -> Result<Named> {
    named("pod", word, namespace)
}

/// Returns an object of a kind as the user named it, with or without its namespace.
///
/// # Errors
/// The same as those of [`pod_name`].
pub(crate) fn named(kind: &str, word: &str, namespace: Option<&str>) -> Result<Named> {
    let read = || format!("cannot read the {kind} name {word:?}");
    let place = kind.to_ascii_uppercase();
    let (of_word, name) = match word.split_once('/') {
        Some((of_word, name)) => (Some(of_word), name),
        None => (None, word),
    };
    if let (Some(one), Some(other)) = (of_word, namespace.filter(|it| Some(*it) != of_word)) {
        bail!("{}: it is in namespace {one}, and -n names {other}; use one of them", read());
    }
    let Some(namespace) = of_word.or(namespace) else {
        bail!("{}: it has no namespace; use NAMESPACE/{place} or -n NAMESPACE", read());
    };
    if !is_name(namespace) || !is_name(name) {
        bail!(
            "{}: it is not a name of Kubernetes; use NAMESPACE/{place}, or {place} with -n",
            read()
        );
    }
    Ok(Named { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Checks the name of a namespace.
///
/// # Errors
/// Kubernetes does not accept the name.
pub(crate) fn check_namespace(name: &str) -> Result<()> {
    match is_name(name) {
        true => Ok(()),
        false => bail!("cannot read namespace {name:?}: it is not a name of Kubernetes; see -n"),
    }
}

/// Reads the name of an object for a flag.
///
/// # Errors
/// Kubernetes does not accept the name.
pub(crate) fn object_name(word: &str) -> Result<String, String> {
    match is_name(word) {
        true => Ok(word.to_owned()),
        false => Err("it is not a name of Kubernetes".to_owned()),
    }
}

/// Returns true if Kubernetes accepts the name. Other words could change the path of a request.
fn is_name(word: &str) -> bool {
    let letter =
        |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-' || it == '.';
    word.starts_with(char::is_alphanumeric) && word.len() <= 253 && word.chars().all(letter)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn a_pod_is_named_as_in_kubectl_or_with_its_namespace() {
        let named = |word, namespace| pod_name(word, namespace).map(|it| (it.namespace, it.name));
        let shop = ("shop".to_owned(), "web-0".to_owned());
        assert_eq!(named("shop/web-0", None).unwrap(), shop);
        assert_eq!(named("web-0", Some("shop")).unwrap(), shop);
        assert_eq!(named("shop/web-0", Some("shop")).unwrap(), shop);
        let error = named("shop/web-0", Some("pay")).unwrap_err().to_string();
        assert!(error.contains("in namespace shop, and -n names pay"), "{error}");
        let error = named("web-0", None).unwrap_err().to_string();
        assert!(error.contains("-n NAMESPACE"), "{error}");
        let error = super::named("service", "web", None).unwrap_err().to_string();
        let expected = "cannot read the service name \"web\": it has no namespace; \
                        use NAMESPACE/SERVICE or -n NAMESPACE";
        assert_eq!(error, expected);
    }

    #[test]
    fn an_invalid_name_is_not_requested() {
        for odd in ["/web", "shop/", "a/b/c d", "a/..", "a/b?x=1", "a/B", "a/b%2f"] {
            assert!(pod_name(odd, None).is_err(), "{odd}");
        }
        assert!(pod_name("web", Some("a/../b")).is_err());
        assert!(check_namespace("a/../b").is_err() && check_namespace("shop").is_ok());
        for odd in ["", "a/../b", "a?b", "a b", "A"] {
            assert!(object_name(odd).is_err(), "{odd:?}");
        }
        assert_eq!(object_name("kube-system"), Ok("kube-system".to_owned()));
    }
}
