//! Whether a token's bearer is an agent, and of which node.

use crate::agents::{Account, Agents};
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use std::collections::BTreeMap;

/// Why somebody is not let in, or something not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The API server does not take the token: expired, forged, or its pod is gone.
    #[error("the API server does not take the token: {0}")]
    Token(String),
    /// It was made for somebody else to check.
    #[error("the token is not for the audience {0:?}")]
    Audience(String),
    /// It is another account's.
    #[error("{0} is not the agents' service account")]
    Account(String),
    /// It belongs to no pod, or to one that is on no node.
    #[error("the token is not bound to a pod on a node")]
    Unbound,
    /// Its pod has not been seen yet, or is another.
    #[error("the pod {0} is not known here as the token has it")]
    Pod(String),
    /// Its pod is on another node than it says.
    #[error("the pod {pod} is on {is:?}, and its token says {says:?}")]
    Node {
        /// The pod's name.
        pod: String,
        /// Where it is.
        is: String,
        /// Where it says that it is.
        says: String,
    },
    /// The API server was not asked, or did not answer.
    #[error("the token could not be shown to the API server: {0}")]
    Unasked(String),
}

impl Refusal {
    /// In one word, to be counted by.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Audience(_) => "audience",
            Self::Account(_) => "account",
            Self::Unbound => "unbound",
            Self::Pod(_) => "pod",
            Self::Node { .. } => "node",
            Self::Unasked(_) => "unasked",
        }
    }
}

/// What a token that the API server took says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: String,
}

/// What the API server's answer comes to.
pub(crate) fn read(
    status: &TokenReviewStatus,
    audience: &str,
    agents: &Account,
) -> Result<Bound, Refusal> {
    if status.authenticated != Some(true) {
        let why = status.error.clone().unwrap_or_else(|| "it says no more".to_owned());
        // That is all that its answer has of it.
        return Err(if why.contains("audience") {
            Refusal::Audience(audience.to_owned())
        } else {
            Refusal::Token(why)
        });
    }
    let audiences = status.audiences.as_deref().unwrap_or_default();
    if !audiences.iter().any(|of| of == audience) {
        return Err(Refusal::Audience(audience.to_owned()));
    }
    let user = status.user.clone().unwrap_or_default();
    let name = user.username.clone().unwrap_or_default();
    if name != format!("system:serviceaccount:{}:{}", agents.namespace, agents.name) {
        return Err(Refusal::Account(name));
    }
    bound(user).ok_or(Refusal::Unbound)
}

fn bound(user: UserInfo) -> Option<Bound> {
    let extra: BTreeMap<String, Vec<String>> = user.extra.unwrap_or_default();
    let one = |name: &str| {
        let values = extra.get(&format!("authentication.kubernetes.io/{name}"))?;
        values.first().filter(|value| !value.is_empty()).cloned()
    };
    Some(Bound { pod: one("pod-name")?, uid: one("pod-uid")?, node: one("node-name")? })
}

/// Compares it with the pods that were seen.
pub(crate) fn node(bound: &Bound, agents: &Agents) -> Result<String, Refusal> {
    let Bound { pod, uid, node } = bound;
    still(pod, uid, node, agents)?;
    Ok(node.clone())
}

/// The same of a pod that was let in before.
pub(crate) fn still(pod: &str, uid: &str, node: &str, agents: &Agents) -> Result<(), Refusal> {
    match agents.find(pod) {
        Some(agent) if agent.uid == uid && agent.node == node => Ok(()),
        Some(agent) if agent.uid == uid => {
            let (pod, says) = (pod.to_owned(), node.to_owned());
            Err(Refusal::Node { pod, is: agent.node, says })
        }
        Some(_) | None => Err(Refusal::Pod(pod.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agent;
    use serde_json::{Value, json};

    fn account() -> Account {
        Account { namespace: "kube-system".into(), name: "ferrule-agent".into() }
    }

    fn answer() -> Value {
        json!({
            "authenticated": true,
            "audiences": ["ferrule-controller"],
            "user": {
                "username": "system:serviceaccount:kube-system:ferrule-agent",
                "extra": {
                    "authentication.kubernetes.io/pod-name": ["agent-x"],
                    "authentication.kubernetes.io/pod-uid": ["u1"],
                    "authentication.kubernetes.io/node-name": ["n1"],
                },
            },
        })
    }

    fn reason(answer: Value, seen: Option<(&str, &str)>) -> Result<String, &'static str> {
        let status = serde_json::from_value(answer).expect("a status");
        let agents = Agents::new(account());
        if let Some((uid, on)) = seen {
            let agent = || Agent { uid: uid.into(), node: on.into() };
            agents.saw("kube-system", "ferrule-agent", "agent-x", agent);
        }
        let bound = read(&status, "ferrule-controller", &account());
        bound.and_then(|bound| node(&bound, &agents)).map_err(|refusal| refusal.reason())
    }

    #[test]
    fn an_agents_token_is_its_nodes() {
        assert_eq!(reason(answer(), Some(("u1", "n1"))), Ok("n1".to_owned()));
    }

    #[test]
    fn every_other_is_refused_for_its_reason() {
        let with = |path: &str, value: Value| {
            let mut answer = answer();
            *answer.pointer_mut(path).expect("a field") = value;
            answer
        };
        let seen = Some(("u1", "n1"));
        let node = "/user/extra/authentication.kubernetes.io~1node-name";
        let rows = [
            (json!({"error": "token has expired"}), seen, "token"),
            (json!({}), seen, "token"),
            (
                json!({"error": "invalid bearer token, token audiences [] is invalid for the target audiences []"}),
                seen,
                "audience",
            ),
            (with("/audiences", json!(["https://kubernetes.default.svc"])), seen, "audience"),
            (with("/audiences", json!([])), seen, "audience"),
            (
                with("/user/username", json!("system:serviceaccount:default:ferrule-agent")),
                seen,
                "account",
            ),
            (
                with("/user/username", json!("system:serviceaccount:kube-system:other")),
                seen,
                "account",
            ),
            (with("/user/username", json!("admin")), seen, "account"),
            (with("/user/extra", json!({})), seen, "unbound"),
            (with(node, json!([])), seen, "unbound"),
            (with(node, json!(["n2"])), seen, "node"),
            (answer(), Some(("u1", "n2")), "node"),
            (answer(), Some(("u1", "")), "node"),
            (answer(), Some(("u2", "n1")), "pod"),
            (answer(), None, "pod"),
        ];
        for (answer, seen, refused) in rows {
            assert_eq!(reason(answer.clone(), seen), Err(refused), "{answer} {seen:?}");
        }
    }
}
