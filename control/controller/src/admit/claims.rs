//! Claims of a token, which are not verified yet.

use super::judge::Refusal;
use crate::agents::{Account, Agents};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The claims of a service account's token that the controller reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Claims {
    exp: Option<u64>,
    #[serde(default)]
    sub: String,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Debug, Default, Deserialize)]
struct Kubernetes {
    pod: Option<Pod>,
}

#[derive(Debug, Deserialize)]
struct Pod {
    name: String,
    uid: String,
}

impl Claims {
    /// Decodes the claims of a JWT. `None` if the token is none.
    pub(crate) fn of(token: &str) -> Option<Self> {
        let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// Returns the expiry of the token.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let ends = UNIX_EPOCH.checked_add(Duration::from_secs(self.exp?))?;
        let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
        Instant::now().checked_add(left)
    }

    /// Returns the UID of the agent's pod in the claims. A token without such a pod is refused in any case, so the
    /// API server is not asked about it.
    pub(crate) fn agent(self, account: &Account, agents: &Agents) -> Result<String, Refusal> {
        let Account { namespace, name } = account;
        if self.sub != format!("system:serviceaccount:{namespace}:{name}") {
            return Err(Refusal::Account(self.sub));
        }
        let Pod { name, uid } = self.kubernetes.pod.ok_or(Refusal::Unbound)?;
        match agents.find(&name) {
            Some(agent) if agent.uid == uid => Ok(uid),
            Some(_) | None => Err(Refusal::Pod(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::Agent;
    use serde_json::{Value, json};

    fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn the_claims_have_the_expiry_of_the_token() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let ends = |exp: u64| Claims::of(&token(&json!({ "exp": exp }))).expect("claims").ends();
        let left = ends(now + 1_000).expect("an end").duration_since(Instant::now());
        assert!(left > Duration::from_secs(900) && left <= Duration::from_secs(1_000), "{left:?}");
        assert!(ends(1).expect("an end") <= Instant::now());
        assert!(ends(u64::MAX).is_none());
        assert!(Claims::of(&token(&json!({}))).expect("claims").ends().is_none());
        assert!(Claims::of("no token").is_none());
    }

    #[test]
    fn a_token_without_an_agents_pod_is_refused_without_a_review() {
        let account = Account { namespace: "kube-system".into(), name: "ferrule-agent".into() };
        let agents = Agents::new(account.clone());
        let agent = || Agent { uid: "u1".into(), node: "n1".into() };
        agents.saw("kube-system", "ferrule-agent", "agent-x", agent);
        let sub = "system:serviceaccount:kube-system:ferrule-agent";
        let of = |claims: Value| {
            let claims = Claims::of(&token(&claims)).expect("claims");
            claims.agent(&account, &agents).map_err(|refusal| refusal.reason())
        };
        let pod = |name: &str, uid: &str| json!({"pod": {"name": name, "uid": uid}});
        let rows = [
            (json!({"sub": sub, "kubernetes.io": pod("agent-x", "u1")}), Ok("u1".to_owned())),
            (json!({"sub": sub, "kubernetes.io": pod("agent-x", "u2")}), Err("pod")),
            (json!({"sub": sub, "kubernetes.io": pod("agent-y", "u1")}), Err("pod")),
            (json!({"sub": sub, "kubernetes.io": {}}), Err("unbound")),
            (json!({"sub": sub}), Err("unbound")),
            (json!({"sub": "admin", "kubernetes.io": pod("agent-x", "u1")}), Err("account")),
            (json!({"kubernetes.io": pod("agent-x", "u1")}), Err("account")),
        ];
        for (claims, answer) in rows {
            assert_eq!(of(claims.clone()), answer, "{claims}");
        }
    }
}
