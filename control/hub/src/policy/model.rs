//! Policies in the form that nodes receive.

use control_wire::model;
use policy_core::{
    Action, Peer, Peers, Pods, Policy, Rank, Rule, Standing,
    index::{Expanded, GroupId, PolicyId, PolicyState},
};

/// Returns a policy in the form that nodes receive.
pub(crate) fn model(
    policy: &Policy,
    generation: i64,
    state: &PolicyState,
    requires: fn(&Rule) -> Vec<u32>,
) -> model::Policy {
    let PolicyState { tier, uses, .. } = state;
    let own = policy.key.namespace.as_str();
    let applied = |pods: &[Pods]| -> Vec<GroupId> {
        pods.iter().filter_map(|pods| GroupId::of_subject(pods, own)).collect()
    };
    let isolation = policy.isolation.as_ref().map(|isolation| model::Isolation {
        applied: applied(&isolation.subject),
        doubt: isolation.doubt.clone(),
        ingress: isolation.ingress,
        egress: isolation.egress,
    });
    let rule = |(at, rule): (usize, &Rule)| model::Rule {
        direction: rule.direction,
        index: rule.index,
        name: rule.name.clone(),
        action: rule.action,
        applied: applied(&rule.subject),
        doubt: rule.doubt.clone(),
        peers: match &rule.peers {
            Peers::Any => model::Peers::Any,
            Peers::Of(peers) => model::Peers::Of(far(peers, alike(&uses.expanded, at))),
        },
        traffic: rule.traffic.clone(),
        log: rule.log.clone(),
        standing: standing(rule, own, &uses.doubted),
        names: GroupId::of_names(rule),
        requires: requires(rule),
    };
    let rank = Rank::of(policy, *tier);
    model::Policy {
        uid: uid_of(policy),
        key: policy.key.clone(),
        generation,
        place: model::Position {
            stage: rank.stage(),
            number: *tier,
            family: rank.walk().family,
            priority: policy.place.priority,
        },
        isolation,
        rules: policy.rules.iter().enumerate().map(rule).collect(),
    }
}

/// Returns the identity of a policy. A policy that no API server created has its name alone.
pub(crate) fn uid_of(policy: &Policy) -> String {
    if policy.uid.is_empty() { policy.key.to_string() } else { policy.uid.clone() }
}

fn far(peers: &[Peer], alike: Vec<model::NamespacePeers>) -> model::PeerSet {
    let mut far = model::PeerSet { alike, ..model::PeerSet::default() };
    for peer in peers {
        match peer {
            Peer::Pods(_) | Peer::Nodes(_) => far.groups.extend(GroupId::of_peer(peer)),
            Peer::Service(_) => far.services.extend(GroupId::of_peer(peer)),
            Peer::Block(block) => far.blocks.push(block.clone()),
            Peer::Name(name) => far.names.push(name.clone()),
        }
    }
    far
}

fn alike(expanded: &[Expanded], at: usize) -> Vec<model::NamespacePeers> {
    let mine = expanded.iter().filter(|expanded| expanded.rule == at);
    mine.map(|Expanded { applied, address, .. }| model::NamespacePeers {
        applied: applied.clone(),
        address: *address,
    })
    .collect()
}

/// Returns the identity of a policy in the form that nodes receive.
pub(crate) fn uid_text(id: &PolicyId) -> String {
    match id {
        PolicyId::Uid(uid) => uid.clone(),
        PolicyId::Named(key) => key.to_string(),
    }
}

/// Returns how far a rule is understood with the existing groups. A rule that may select more pods than intended
/// allows nothing, and its Pass denies all.
fn standing(rule: &Rule, own: &str, doubted: &[(GroupId, String)]) -> Standing {
    let doubt = |pods: &Pods| {
        let id = GroupId::of_subject(pods, own)?;
        doubted.iter().find(|(group, _)| *group == id).map(|(_, why)| why.clone())
    };
    match (&rule.standing, rule.action, rule.subject.iter().find_map(doubt)) {
        (Standing::Understood, Action::Allow, Some(why)) => Standing::MatchesNothing { why },
        (Standing::Understood, Action::Pass, Some(why)) => Standing::DeniesAll { why },
        (standing, _, _) => standing.clone(),
    }
}
