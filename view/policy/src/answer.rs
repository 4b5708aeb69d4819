//! Requests and their documents.

use crate::{
    GROUP, VERSION,
    document::{Agent, Group, Meta, Peer, Policy, Realized, Stream},
};
use control_hub::{AgentReport, Hub, PolicyReport};
use policy_core::index::{GroupId, Role};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The page size if the request has none.
const PAGE: usize = 500;

#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The path including `/apis`.
    pub path: &'a str,
    /// The parameter `limit`.
    pub limit: Option<usize>,
    /// The parameter `continue`; empty for the first page.
    pub behind: &'a str,
}

/// An HTTP status and a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// 200 or 404.
    pub code: u16,
    pub document: Value,
}

/// Answers a request. `realized` returns a node's report, and `reporting` returns the names of the nodes that have
/// reported.
pub fn answer(
    hub: &Hub,
    asked: &Query<'_>,
    realized: &dyn Fn(&str) -> Option<Realized>,
    reporting: &BTreeSet<String>,
) -> Answer {
    let here = format!("/apis/{GROUP}/{VERSION}");
    let Some(rest) = asked.path.trim_end_matches('/').strip_prefix(&here) else {
        return missing(asked.path);
    };
    let words: Vec<&str> = rest.split('/').skip(1).collect();
    let all = All { hub, asked, realized, reporting };
    match *words {
        [] => found(resources()),
        ["agents"] => all.agents(),
        ["agents", node] => all.agent(node).map_or_else(|| missing(asked.path), one("Agent")),
        ["policies"] => all.policies(),
        ["policies", uid] => {
            let look = hub.policy_report(uid).as_ref().map(policy);
            look.map_or_else(|| missing(asked.path), one("Policy"))
        }
        ["groups"] => all.groups(),
        ["groups", id] => group(hub, id).map_or_else(|| missing(asked.path), one("Group")),
        _ => missing(asked.path),
    }
}

struct All<'a> {
    hub: &'a Hub,
    asked: &'a Query<'a>,
    realized: &'a dyn Fn(&str) -> Option<Realized>,
    reporting: &'a BTreeSet<String>,
}

impl All<'_> {
    fn most(&self) -> usize {
        self.asked.limit.filter(|limit| *limit > 0).map_or(PAGE, |limit| limit.min(PAGE))
    }

    fn agents(&self) -> Answer {
        let mut names: BTreeSet<String> =
            self.hub.agents().into_iter().map(|agent| agent.node).collect();
        names.extend(self.reporting.iter().cloned());
        let behind = names.into_iter().filter(|node| node.as_str() > self.asked.behind);
        let page: Vec<Agent> =
            behind.take(self.most()).filter_map(|node| self.agent(&node)).collect();
        self.list("Agent", page, |agent| agent.metadata.name.clone())
    }

    fn agent(&self, node: &str) -> Option<Agent> {
        let newest = self.hub.generation();
        let stream = self.hub.agent(node).map(|look| stream(&look, newest));
        let realized = (self.realized)(node);
        let known = stream.is_some() || realized.is_some();
        known.then(|| Agent { metadata: Meta { name: node.to_owned() }, stream, realized })
    }

    fn policies(&self) -> Answer {
        let page = self.hub.policies_behind(self.asked.behind, self.most());
        let page: Vec<Policy> = page.iter().map(policy).collect();
        self.list("Policy", page, |policy| policy.metadata.name.clone())
    }

    fn groups(&self) -> Answer {
        let behind = group_id(self.asked.behind).unwrap_or(GroupId([0; 16]));
        let page = self.hub.index().groups_behind(behind, self.most());
        let page = page.into_iter().map(|(id, roles)| Group {
            metadata: Meta { name: id.to_string() },
            roles: roles.iter().map(|role| words(*role).to_owned()).collect(),
            span: span(self.hub, id, &roles),
            ..Group::default()
        });
        self.list("Group", page.collect(), |group| group.metadata.name.clone())
    }

    fn list<T: Serialize>(&self, kind: &str, items: Vec<T>, name: fn(&T) -> String) -> Answer {
        // A full page may be the last one. Then the next page is empty.
        let more = items.len() == self.most();
        let next = items.last().filter(|_| more).map(name).unwrap_or_default();
        let items: Vec<Value> = items.into_iter().map(|item| object(kind, item)).collect();
        found(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": format!("{kind}List"),
            "metadata": { "continue": next }, "items": items,
        }))
    }
}

fn stream(look: &AgentReport, newest: u64) -> Stream {
    let AgentReport { follows, sent, acknowledged, pending, .. } = *look;
    Stream { follows, told: sent, holds: acknowledged, newest, owed: pending }
}

fn policy(look: &PolicyReport) -> Policy {
    let PolicyReport { policy, state } = look;
    let ids = |ids: &[GroupId]| ids.iter().map(ToString::to_string).collect();
    Policy {
        metadata: Meta { name: policy.uid.clone() },
        policy: policy.key.to_string(),
        generation: policy.generation,
        tier: state.tier,
        rules: policy.rules.len(),
        applied_to: ids(&state.uses.applied),
        peers: ids(&state.uses.address),
        span: state.span.iter().cloned().collect(),
    }
}

fn group(hub: &Hub, text: &str) -> Option<Group> {
    let id = group_id(text)?;
    let states: Vec<_> = [Role::Applied, Role::Address]
        .into_iter()
        .filter_map(|role| Some((role, hub.index().group_state(role, id)?)))
        .collect();
    // Pods without an address are only in the first state, ranges only in the second.
    let (_, first) = states.first()?;
    let (_, last) = states.last()?;
    let members = first.members.values().map(|member| Peer {
        namespace: member.namespace.clone(),
        name: member.name.clone(),
        node: member.node.clone(),
        addresses: member.addresses.iter().map(ToString::to_string).collect(),
    });
    let roles: Vec<Role> = states.iter().map(|(role, _)| *role).collect();
    Some(Group {
        metadata: Meta { name: id.to_string() },
        roles: roles.iter().map(|role| words(*role).to_owned()).collect(),
        members: Some(members.collect()),
        blocks: last.holds.blocks.iter().map(block).collect(),
        services: last.holds.vips.iter().map(ToString::to_string).collect(),
        unusable: last.holds.unusable.clone(),
        span: span(hub, id, &roles),
    })
}

fn block(block: &policy_objects::Block) -> String {
    let except: Vec<String> = block.except.iter().map(ToString::to_string).collect();
    match except.as_slice() {
        [] => block.cidr.to_string(),
        except => format!("{} without {}", block.cidr, except.join(", ")),
    }
}

fn span(hub: &Hub, id: GroupId, roles: &[Role]) -> Vec<String> {
    let nodes = roles.iter().flat_map(|role| hub.index().group_span(*role, id));
    nodes.collect::<BTreeSet<_>>().into_iter().collect()
}

fn words(role: Role) -> &'static str {
    match role {
        Role::Applied => "AppliedTo",
        Role::Address => "Peers",
    }
}

fn group_id(text: &str) -> Option<GroupId> {
    let mut id = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(GroupId(id))
}

fn object<T: Serialize>(kind: &str, item: T) -> Value {
    let mut value = json!(item);
    value["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
    value["kind"] = json!(kind);
    value
}

fn one<T: Serialize>(kind: &'static str) -> impl FnOnce(T) -> Answer {
    move |item| found(object(kind, item))
}

fn found(document: Value) -> Answer {
    Answer { code: 200, document }
}

fn missing(path: &str) -> Answer {
    let document = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404,
        "reason": "NotFound", "message": format!("there is nothing at {path} at this replica"),
    });
    Answer { code: 404, document }
}

fn resources() -> Value {
    let resource = |(name, singular, kind): (&str, &str, &str)| {
        json!({
            "name": name, "singularName": singular, "kind": kind, "namespaced": false,
            "verbs": ["get", "list"],
        })
    };
    let all = [
        ("agents", "agent", "Agent"),
        ("policies", "policy", "Policy"),
        ("groups", "group", "Group"),
    ];
    json!({
        "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": all.map(resource),
    })
}

#[cfg(test)]
mod tests;
