//! Decision whether the bearer of a token is an agent, and the node of that agent.

use crate::agents::{Account, Agents};
use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
use std::collections::BTreeMap;

/// Reason to refuse a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The token is expired or forged, or its pod is gone.
    #[error("the API server rejects the token: {0}")]
    Token(String),
    /// The token was issued for another audience.
    #[error("the token is not for the audience {0:?}")]
    Audience(String),
    /// The token belongs to another account.
    #[error("{0} is not the agents' service account")]
    Account(String),
    /// The token is not bound to a pod, or its pod is on no node.
    #[error("the token is not bound to a pod on a node")]
    Unbound,
    /// The watch has not delivered the pod yet, or has another pod of this name.
    #[error("this replica does not know the pod {0} with the token's UID")]
    Pod(String),
    /// The pod is on another node than the token.
    #[error("the pod {pod} is on {actual:?}, and its token names {claimed:?}")]
    Node {
        pod: String,
        /// Node of the pod.
        actual: String,
        /// Node in the token.
        claimed: String,
    },
    /// There was no review, or the API server did not answer.
    #[error("cannot review the token: {0}")]
    Unreviewed(String),
}

impl Refusal {
    /// Returns the label of the metric.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Token(_) => "token",
            Self::Audience(_) => "audience",
            Self::Account(_) => "account",
            Self::Unbound => "unbound",
            Self::Pod(_) => "pod",
            Self::Node { .. } => "node",
            Self::Unreviewed(_) => "unasked",
        }
    }
}

/// The pod to which a reviewed token is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) node: String,
}

/// Reads the API server's answer.
pub(crate) fn read(
    status: &TokenReviewStatus,
    audience: &str,
    agents: &Account,
) -> Result<Bound, Refusal> {
    if status.authenticated != Some(true) {
        let why = status.error.clone().unwrap_or_else(|| "no reason given".to_owned());
        // The answer has no other sign of a wrong audience.
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

/// Returns the node of a token's pod if the watch of pods agrees.
pub(crate) fn node(bound: &Bound, agents: &Agents) -> Result<String, Refusal> {
    let Bound { pod, uid, node } = bound;
    still(pod, uid, node, agents)?;
    Ok(node.clone())
}

/// Checks an admitted pod again.
pub(crate) fn still(pod: &str, uid: &str, node: &str, agents: &Agents) -> Result<(), Refusal> {
    match agents.find(pod) {
        Some(agent) if agent.uid == uid && agent.node == node => Ok(()),
        Some(agent) if agent.uid == uid => {
            let (pod, claimed) = (pod.to_owned(), node.to_owned());
            Err(Refusal::Node { pod, actual: agent.node, claimed })
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
    fn an_agents_token_gives_its_node() {
        assert_eq!(reason(answer(), Some(("u1", "n1"))), Ok("n1".to_owned()));
    }

    #[test]
    fn every_other_token_is_refused_with_its_reason() {
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
