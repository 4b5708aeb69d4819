//! The owner of an ENI and the allowed uses.

#[cfg(test)]
mod tests;

use crate::{EniKind, NodeFacts, PoolConfig, SeenEni};
use config_model::CardIndex;
use std::collections::BTreeMap;

/// The instance for which the ENI was created.
pub(crate) const TAG_INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";
/// We tagged the ENI, but another program created it, so it is never freed.
pub(crate) const TAG_ADOPTED: &str = "ferrule.io/adopted";
/// `true`: the ENI is left alone. Another value: it is used.
const TAG_NO_MANAGE: &str = "node.k8s.amazonaws.com/no_manage";

/// The class of an ENI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: EniKind,
    /// The daemon manages its link and routing. Other ENIs only occupy a place.
    pub(crate) managed: bool,
    /// Pods may get its addresses, according to its tags and kind.
    pub(crate) pods: bool,
    /// The daemon created it, or its tags show so. Other ENIs are never freed.
    pub(crate) ours: bool,
    /// Its tags do not show its owner yet.
    pub(crate) untagged: bool,
}

impl Class {
    /// The same ENI, left alone.
    pub(crate) fn unused(self) -> Self {
        Self { managed: false, pods: false, ours: false, untagged: false, ..self }
    }
}

/// Classifies an ENI on a card.
pub(crate) fn classify(
    config: &PoolConfig,
    node: &NodeFacts,
    seen: &SeenEni,
    card: CardIndex,
    made_here: bool,
) -> Class {
    let kind = seen.kind.unwrap_or(EniKind::Standard);
    let is_primary = seen.id == node.primary_eni;
    let made_for_us = made_here || is_of_this_node(node, seen);
    let no_manage = tag(seen, TAG_NO_MANAGE);
    let spared = no_manage == Some("true");
    let wanted = made_for_us || no_manage.is_some() || config.manage_untagged;
    let usable = match kind {
        EniKind::Standard | EniKind::Efa => true,
        // A trunk carries branch ENIs and gives pods no addresses of its own.
        EniKind::Trunk | EniKind::EfaOnly | EniKind::Branch | EniKind::Other => false,
    };
    let on_our_card = card == CardIndex(0) || config.multi_nic;
    let managed = is_primary || (wanted && !spared && usable && on_our_card);
    Class {
        kind,
        managed,
        pods: managed && !(is_primary && config.custom_networking),
        ours: made_for_us && managed && !is_primary && kind == EniKind::Standard,
        untagged: managed && lacks_tags(node, seen),
    }
}

/// Returns whether its tags show that it was created for this node.
pub(crate) fn is_of_this_node(node: &NodeFacts, seen: &SeenEni) -> bool {
    tag(seen, TAG_INSTANCE) == Some(node.instance_id.as_str()) && tag(seen, TAG_ADOPTED).is_none()
}

/// The tags that mark an ENI as used by this node, and as adopted if another program created it.
pub(crate) fn tags_to_add(node: &NodeFacts, adopted: bool) -> BTreeMap<String, String> {
    let mut tags = node.tags.clone();
    if adopted {
        tags.insert(TAG_ADOPTED.to_owned(), "true".to_owned());
    }
    tags
}

/// Returns whether pods get addresses of a card with these ENIs, each with its kind and whether we manage it. A card
/// besides card 0 with efa-only ENIs belongs to its user.
pub(crate) fn is_card_in_use(card: CardIndex, enis: &[(EniKind, bool)]) -> bool {
    let efa_only = enis.iter().any(|(kind, _)| *kind == EniKind::EfaOnly);
    card == CardIndex(0) || !efa_only || enis.iter().any(|(_, managed)| *managed)
}

fn lacks_tags(node: &NodeFacts, seen: &SeenEni) -> bool {
    let Some(tags) = &seen.tags else { return false };
    node.tags.iter().any(|(name, value)| tags.get(name) != Some(value))
}

fn tag<'a>(seen: &'a SeenEni, name: &str) -> Option<&'a str> {
    seen.tags.as_ref()?.get(name).map(String::as_str)
}
